"""Quadratic programs, traced and as arrays; many problems at once."""

from __future__ import annotations

import numpy as np
import pytest

import onestep
from onestep import Implicit, OneStep, Status


def simplex(c):
    return {"Q": onestep.eye(3), "q": -c, "A": np.ones((1, 3)), "b": np.ones(1), "lo": 0.0}


C = np.array([0.9, 0.4, -0.5])
# The projection is c - its mean excess on the coordinates that stay positive: here the first two.
PROJECTED = np.array([0.75, 0.25, 0.0])
JACOBIAN = np.array([[0.5, -0.5, 0], [-0.5, 0.5, 0], [0, 0, 0]])


@pytest.mark.parametrize("estimator", [None, OneStep(), Implicit()], ids=repr)
def test_projection_on_the_simplex(estimator):
    s = onestep.quadratic_program(simplex).solve(C, estimator=estimator)
    np.testing.assert_allclose(s.x, PROJECTED, atol=1e-9)
    x, y, z, bounds = s.state
    assert (x.shape, y.shape, z.shape, bounds.shape) == ((3,), (1,), (0,), (3,))
    np.testing.assert_allclose(s.jacobian()[:3], JACOBIAN, atol=1e-7)
    np.testing.assert_allclose(s.vjp(np.array([1.0, 0, 0])), JACOBIAN[0], atol=1e-7)
    dx, *_ = s.jvp(np.array([1.0, 0, 0]))
    np.testing.assert_allclose(dx, JACOBIAN[:, 0], atol=1e-7)
    assert s.certificate(np.array([1.0, 0, 0])).bound < 1e-6


def test_a_program_whose_data_are_the_parameters():
    solver = onestep.quadratic_program()
    infinity = np.inf
    data = (np.eye(3), -C, np.ones((1, 3)), np.ones(1), np.zeros((0, 3)), np.zeros(0), np.zeros(0), np.zeros(3), np.full(3, infinity))
    s = solver.solve(*data, estimator=Implicit())
    np.testing.assert_allclose(s.x, PROJECTED, atol=1e-9)
    gradients = s.vjp(np.array([1.0, 0, 0]))
    assert len(gradients) == 9
    np.testing.assert_allclose(gradients[1], -JACOBIAN[0], atol=1e-7)


def test_a_program_as_arrays_with_gradients():
    s = onestep.solve_qp(Q=np.eye(3), q=-C, A=np.ones((1, 3)), b=1.0, lo=0.0)
    assert s.status is Status.converged
    np.testing.assert_allclose(s.x, PROJECTED, atol=1e-9)
    gradients = s.vjp(np.array([1.0, 0, 0]))
    np.testing.assert_allclose(gradients["q"], -JACOBIAN[0], atol=1e-7)
    np.testing.assert_allclose(gradients["b"], [0.5], atol=1e-7)
    assert gradients["Q"].shape == (3, 3)
    np.testing.assert_allclose(s.gradient_of_objective()["q"], s.x, atol=1e-9)
    assert s.degeneracy()["none"]
    np.testing.assert_allclose(s.objective, 0.5 * s.x @ s.x - C @ s.x, rtol=1e-8)
    assert repr(s).startswith("<ProgramSolution: converged in ")
    assert (s.y.shape, s.z.shape, s.bound_multipliers.shape) == ((1,), (0,), (3,))


def test_an_infeasible_program_has_a_status_and_a_proof():
    s = onestep.quadratic_program(lambda b: {"Q": onestep.eye(2), "A": np.ones((2, 2)), "b": b}).solve(np.array([1.0, 2.0]))
    assert s.status is Status.infeasible
    assert s.proof[1].shape == (2,)
    with pytest.raises(onestep.NotConvergedError) as caught:
        s.vjp(np.ones(2))
    assert caught.value.status is Status.infeasible
    assert onestep.solve_qp(q=np.array([-1.0]), lo=0.0).status is Status.unbounded
    assert onestep.solve_qp(Q=np.array([[-1.0]]), q=np.ones(1), lo=0.0, hi=1.0).status is Status.not_convex


def test_parts_of_a_program_that_do_not_exist_are_named():
    with pytest.raises(onestep.MisuseError, match="no part 'H'"):
        onestep.quadratic_program(lambda c: {"H": c}).solve(C)
    with pytest.raises(onestep.MisuseError, match="no part 'H'"):
        onestep.solve_qp(H=np.eye(2))
    with pytest.raises(onestep.TracingError, match="dict"):
        onestep.quadratic_program(lambda c: c).solve(C)
    with pytest.raises(onestep.MisuseError):
        onestep.solve_qp(Q=np.eye(3), q=np.ones(2))


def test_many_problems_have_the_bits_of_each_alone(logistic, rng):
    fit = onestep.newton(lambda x, w, penalty: logistic.objective(x, w) + penalty * np.sum(x**2))
    weights = rng.uniform(0.5, 1.5, size=(5, 40))
    many = onestep.solve_many(fit, np.zeros(4), list(weights), 0.3)
    alone = [fit.solve(np.zeros(4), w, 0.3) for w in weights]
    assert len(many) == 5
    assert many.statuses == [Status.converged] * 5
    assert many.failed == []
    np.testing.assert_array_equal(many.x, [s.x for s in alone])
    of_w, of_penalty = many.vjp(many.x)
    each = [s.vjp(s.x) for s in alone]
    np.testing.assert_array_equal(of_w, [g[0] for g in each])
    np.testing.assert_allclose(of_penalty, sum(g[1] for g in each), rtol=1e-14)
    same_for_all, _ = many.vjp(np.ones(4))
    np.testing.assert_array_equal(same_for_all, [s.vjp(np.ones(4))[0] for s in alone])
    moved = many.jvp((weights, 1.0))
    np.testing.assert_array_equal(moved, [s.jvp((w, 1.0)) for s, w in zip(alone, weights)])
    np.testing.assert_array_equal(many[-1].x, alone[-1].x)
    assert many[1].certificate(np.ones(4)).bound < 1e-10
    with pytest.raises(IndexError):
        many[5]
    assert repr(many) == "<ManySolutions: 5 problems, 0 failed>"


def test_many_states_have_all_parts(rng):
    project = onestep.quadratic_program(
        lambda c: {"Q": onestep.eye(3), "q": -c, "A": np.ones((1, 3)), "b": np.ones(1), "lo": 0.0}
    )
    c = rng.normal(size=(4, 3))
    many = onestep.solve_many(project, list(c))
    assert [part.shape for part in many.state] == [(4, 3), (4, 1), (4, 0), (4, 3)]
    for i in range(4):
        for part, of_one in zip(many.state, many[i].state):
            np.testing.assert_array_equal(part[i], of_one)


def test_a_matrix_is_no_list_of_problems(rng):
    nearest = onestep.newton(lambda x, t: np.sum((x - t) ** 2))
    T = rng.normal(size=(5, 3))
    for call in (
        lambda: onestep.solve_many(nearest, np.zeros(3), T),
        lambda: onestep.solve_many(nearest.from_(np.zeros(3)), T),
        lambda: onestep.solve_many(nearest, T, start=np.zeros(3)),
    ):
        with pytest.raises(onestep.MisuseError, match=r"no argument is a list.*list\(T\) makes the rows"):
            call()
    np.testing.assert_allclose(onestep.solve_many(nearest, np.zeros(3), list(T)).x, T)
    np.testing.assert_allclose(onestep.solve_many(nearest, list(T), T[0]).x, [T[0]] * 5, atol=1e-12)


def test_each_of_many_has_its_own_status():
    project = onestep.quadratic_program(lambda b: {"Q": onestep.eye(2), "A": np.ones((2, 2)), "b": b})
    many = onestep.solve_many(project, [np.array([1.0, 1.0]), np.array([1.0, 2.0])])
    assert many.statuses == [Status.converged, Status.infeasible]
    assert many.failed == [1]
    with pytest.raises(onestep.NotConvergedError):
        many.vjp(np.ones(2))


def test_derivatives_of_many_that_did_not_converge_are_had_on_request(logistic):
    fit = onestep.newton(logistic.objective, max_iterations=1)
    many = onestep.solve_many(fit, np.zeros(4), [logistic.w, 2 * logistic.w])
    assert many.failed == [0, 1]
    with pytest.raises(onestep.NotConvergedError, match="problem 0"):
        many.vjp(np.ones(4))
    assert np.isfinite(many.even_if_unconverged().vjp(np.ones(4))).all()
