"""Solvers, estimators and certificates on problems whose solutions and derivatives are known."""

from __future__ import annotations

import numpy as np
import pytest

import onestep
from onestep import Auto, Implicit, KStep, OneStep, Status, Unrolled

ESTIMATORS = [OneStep(), KStep(2), Implicit(), Unrolled(), Auto(1e-10)]


def relative_error(a, b):
    return np.linalg.norm(np.asarray(a) - b) / np.linalg.norm(b)


def test_logistic_regression_has_the_numbers_of_the_library_in_cpp():
    A = np.array([[1.0, 0.5], [1.0, -1.5], [1.0, 2.0], [1.0, -0.3]])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    fit = onestep.newton(lambda x, w: np.sum(w * np.logaddexp(0, -y * (A @ x))) + 0.1 * np.sum(x**2))
    s = fit.solve(np.zeros(2), np.ones(4), estimator=OneStep())
    np.testing.assert_allclose(s.x, [-0.16309480842221119, 1.8902106321639833], rtol=1e-14)
    gradient = [0.50793513682871128, 0.30122053329810683, 0.19844752115044223, 0.50913195175506909]
    np.testing.assert_allclose(s.vjp(s.x), gradient, rtol=1e-13)
    assert s.status is Status.converged
    assert s.statistics.iterations == 7
    certificate = s.certificate(s.x)
    assert certificate.basis is onestep.Certificate.Basis.observed
    assert certificate.bound < 1e-12
    assert str(certificate).startswith("error <= ")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_derivatives_of_logistic_regression_are_those_by_hand(logistic, estimator):
    s = onestep.newton(logistic.objective).solve(np.zeros(4), logistic.w, estimator=estimator)
    J = logistic.jacobian(s.x, logistic.w)
    assert relative_error(s.jacobian(), J) < 1e-9
    assert relative_error(s.vjp(s.x), J.T @ s.x) < 1e-9
    assert relative_error(s.jvp(logistic.w), J @ logistic.w) < 1e-9
    assert s.report.method.split("{")[0].split("(")[0] != ""
    for certificate, truth, got in (
        (s.certificate(s.x), J.T @ s.x, s.vjp(s.x)),
        (s.certificate_jvp(logistic.w), J @ logistic.w, s.jvp(logistic.w)),
    ):
        assert np.linalg.norm(got - truth) <= certificate.bound


@pytest.mark.parametrize(
    "make",
    [
        lambda f: onestep.newton(f),
        lambda f: onestep.newton_cg(f, derivative_tolerance=1e-13),
        lambda f: onestep.gradient_descent(f, estimator=Implicit()),
        lambda f: onestep.gradient_descent(f, step=0.02, max_iterations=100000, estimator=Implicit()),
        lambda f: onestep.gradient_descent(
            f, step=onestep.GradientStep.optimal(), momentum=onestep.Momentum.nesterov(0.5), estimator=Implicit()
        ),
    ],
)
def test_ridge_regression_by_all_minimisers(rng, make):
    A, b = rng.normal(size=(30, 4)), rng.normal(size=30)

    def objective(x, penalty):
        return 0.5 * np.sum((A @ x - b) ** 2) + 0.5 * penalty * np.sum(x**2)

    s = make(objective).solve(np.zeros(4), 0.7)
    assert s.status.is_solution
    H = A.T @ A + 0.7 * np.eye(4)
    x = np.linalg.solve(H, A.T @ b)
    np.testing.assert_allclose(s.x, x, rtol=1e-8)
    derivative = -np.linalg.solve(H, x)
    along = s.jvp(1.0)  # with momentum, x and what it was before
    np.testing.assert_allclose(along[0] if isinstance(along, tuple) else along, derivative, rtol=1e-7)
    gradient = s.vjp(np.ones(4))
    assert gradient.shape == ()
    np.testing.assert_allclose(gradient, derivative.sum(), rtol=1e-7)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_a_square_root_as_a_root_and_as_a_fixed_point(estimator):
    theta = np.array([2.0, 9.0])
    root = onestep.newton_root(lambda x, y: x**2 - y)
    heron = onestep.fixed_point(lambda x, y: 0.5 * (x + y / x))
    for solver in (root, heron):
        s = solver.solve(np.ones(2), theta, estimator=estimator)
        np.testing.assert_allclose(s.x, np.sqrt(theta), rtol=1e-14)
        np.testing.assert_allclose(s.jacobian(), np.diag(0.5 / np.sqrt(theta)), rtol=1e-9, atol=1e-15)


def test_halleys_method_with_an_equation_of_its_own():
    def circles(x, theta):
        centre = np.array([1.0, 0.0])
        return np.stack([np.sum(x**2), np.sum((x - centre) ** 2)]) - theta

    def halley(x, theta):
        g = circles(x, theta)
        J = onestep.jacobian(g, x)
        s = np.linalg.solve(J, g)
        return x - np.linalg.solve(J - 0.5 * onestep.jvp(J, x, s), g)

    solver = onestep.fixed_point(halley).equation(circles)
    for estimator in ESTIMATORS:
        s = solver.solve(np.ones(2), np.array([1.5, 1.0]), estimator=estimator)
        np.testing.assert_allclose(s.vjp(np.array([1.0, 0.0])), [0.5, -0.5], rtol=1e-9)


def test_several_parameters_give_a_tuple(logistic):
    def objective(x, w, penalty):
        return np.sum(w * np.logaddexp(0, -logistic.y * (logistic.A @ x))) + penalty * np.sum(x**2)

    s = onestep.newton(objective).solve(np.zeros(4), logistic.w, 0.1)
    of_w, of_penalty = s.vjp(s.x)
    J = logistic.jacobian(s.x, logistic.w)
    of_penalty_by_hand = -2 * np.linalg.solve(logistic.hessian(s.x, logistic.w), s.x)
    np.testing.assert_allclose(of_w, J.T @ s.x, rtol=1e-9)
    np.testing.assert_allclose(of_penalty, of_penalty_by_hand @ s.x, rtol=1e-9)
    np.testing.assert_allclose(s.jvp((logistic.w, 0.5)), J @ logistic.w + 0.5 * of_penalty_by_hand, rtol=1e-9)
    by_w, by_penalty = s.jacobian()
    assert by_w.shape == (4, 40)
    np.testing.assert_allclose(by_penalty.ravel(), of_penalty_by_hand, rtol=1e-9)


def test_several_parts_of_the_state():
    # Two vectors that pull at each other.
    solver = onestep.fixed_point(lambda u, v, a: ((a + v) / 2, (1.0 + u) / 2), estimator=Implicit())
    s = solver.solve((np.zeros(2), np.zeros(2)), np.array([1.0, 2.0]))
    u, v = s.state
    np.testing.assert_allclose(u, (2 * np.array([1.0, 2.0]) + 1) / 3, rtol=1e-9)
    np.testing.assert_allclose(s.x, u)
    du, dv = s.jvp(np.array([1.0, 0.0]))
    np.testing.assert_allclose(du, [2 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(dv, [1 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(s.vjp((np.ones(2), np.ones(2))), [1, 1], rtol=1e-9)
    np.testing.assert_allclose(s.vjp(np.ones(2)), [2 / 3, 2 / 3], rtol=1e-9)


def test_states_and_parameters_may_be_numbers():
    s = onestep.newton_root(lambda x, y: x**2 - y).solve(1.0, 2)
    assert s.x.shape == ()
    assert s.x == pytest.approx(np.sqrt(2), rel=1e-15)
    assert s.vjp(1) == pytest.approx(0.5 / np.sqrt(2), rel=1e-14)
    assert s.jacobian().size == 1


def test_a_warm_start_changes_the_time_and_not_the_derivative(logistic):
    fit = onestep.newton(logistic.objective)
    cold = fit.solve(np.zeros(4), logistic.w)
    for start in (cold.x, cold.state):
        warm = fit.solve(start, 1.01 * logistic.w)
        again = fit.solve(np.zeros(4), 1.01 * logistic.w)
        assert warm.statistics.iterations < again.statistics.iterations
        np.testing.assert_allclose(warm.vjp(warm.x), again.vjp(again.x), rtol=1e-10)


def test_a_solver_with_a_start_takes_the_parameters_alone(logistic):
    fit = onestep.newton(logistic.objective)
    x = fit.solve(np.zeros(4), logistic.w).x
    np.testing.assert_array_equal(fit.from_(np.zeros(4)).solve(logistic.w).x, x)
    np.testing.assert_allclose(fit.from_(np.zeros(4)).solve(logistic.w, start=np.ones(4)).x, x, rtol=1e-10)
    by_function = fit.from_(lambda w: 0.01 * w[:4])
    np.testing.assert_allclose(by_function.solve(logistic.w).x, x, rtol=1e-10)


def test_options_are_keyword_arguments(logistic):
    seen = []
    fit = onestep.newton(logistic.objective, tolerance=1e-6, history=True, callback=seen.append)
    s = fit.solve(np.zeros(4), logistic.w)
    assert [i.number for i in seen] == list(range(1, s.statistics.iterations + 1))
    assert s.statistics.history == [i.step for i in seen]
    assert fit.with_options(max_iterations=2, callback=None).solve(np.zeros(4), logistic.w).status is Status.iteration_limit
    assert len(seen) == s.statistics.iterations
    cancelled = fit.with_options(callback=lambda i: i.number < 2).solve(np.zeros(4), logistic.w)
    assert cancelled.status is Status.cancelled
    assert cancelled.statistics.iterations == 2
    slow = onestep.fixed_point(lambda x, t: 0.9999999 * x + t, max_iterations=10**9, time_limit=0.05)
    assert slow.solve(np.ones(1), np.ones(1)).status is Status.time_limit
    assert "tolerance=1e-06" in repr(fit)


def test_the_estimator_is_that_of_the_call_or_of_the_solver(logistic):
    fit = onestep.newton(logistic.objective, estimator=Implicit(tolerance=1e-13))
    s = fit.solve(np.zeros(4), logistic.w)
    s.vjp(s.x)
    implicit = s.report.method
    t = fit.solve(np.zeros(4), logistic.w, estimator=OneStep())
    t.vjp(t.x)
    assert t.report.method != implicit
    assert "Implicit(" in repr(fit)


def test_a_prepared_solver_gives_the_same_numbers(logistic):
    fit = onestep.newton(logistic.objective)
    prepared = fit.prepare(np.zeros(4), logistic.w)
    first = prepared.solve(np.zeros(4), logistic.w)
    second = prepared.solve(np.zeros(4), 2 * logistic.w)
    np.testing.assert_array_equal(first.x, fit.solve(np.zeros(4), logistic.w).x)
    np.testing.assert_array_equal(second.x, fit.solve(np.zeros(4), 2 * logistic.w).x)
    np.testing.assert_allclose(first.vjp(first.x), logistic.jacobian(first.x, logistic.w).T @ first.x, rtol=1e-9)
    np.testing.assert_array_equal(fit.from_(np.zeros(4)).prepare(logistic.w).solve(logistic.w).x, first.x)
    with pytest.raises(onestep.MisuseError):
        prepared.solve(np.zeros(4), logistic.w[:-1])


def test_a_solve_is_a_node_of_another_function(logistic):
    fit = onestep.newton(logistic.objective).from_(np.zeros(4))
    inside = onestep.traced(lambda w: onestep.grad(np.sum(fit(w) ** 2), w), (40,))
    s = fit.solve(logistic.w)
    np.testing.assert_allclose(inside(logistic.w), 2 * s.vjp(s.x), rtol=1e-9)


def test_known_constants_and_a_context_of_its_own():
    slow = onestep.fixed_point(lambda x, t: 0.5 * x + t).knowing(rho=0.5, L_A=0.0, L_J=0.0)
    s = slow.on(onestep.Context(threads=1)).solve(np.zeros(3), np.ones(3))
    certificate = s.certificate(np.ones(3))
    assert certificate.rho == 0.5
    np.testing.assert_allclose(s.vjp(np.ones(3)), 2, rtol=max(1e-6, certificate.relative))
    with pytest.raises(onestep.MisuseError):
        onestep.Context(threads=0)


def test_a_minimisation_over_a_minimisation():
    A = np.array([[1.0, 0.5], [1.0, -1.5], [1.0, 2.0], [1.0, -0.3]])
    y = np.array([1.0, -1.0, 2.0, 0.0])
    B = np.array([[1.0, 0.1], [1.0, -0.7], [1.0, 1.4], [1.0, 0.9]])
    z = np.array([0.3, -0.2, 1.6, 0.1])
    fit = onestep.newton(lambda x, penalty: np.sum((A @ x - y) ** 2) + np.sum(penalty * x**2))
    inner = onestep.Inner(fit, np.zeros(2), lambda x: np.sum((B @ x - z) ** 2))
    seen = []
    outcome = onestep.minimise(inner, onestep.Parameter.positive(np.ones(2)).within(1e-4, 1e4), callback=seen.append)
    assert outcome.status is Status.converged
    assert len(seen) > 2
    # The README's numbers, of the same problem in C++.
    np.testing.assert_allclose(outcome.theta[0], [5.48778, 2.05478], rtol=1e-5)
    np.testing.assert_allclose(outcome.x[0], [0.16055, 0.68106], rtol=1e-4)
    assert outcome.bound < 1e-12
    assert "converged" in repr(outcome)
    for method in (onestep.Descent(), onestep.Adam(0.1)):
        other = onestep.minimise([inner], [onestep.Parameter.positive(np.ones(2))], method, max_iterations=20)
        assert other.value < seen[0].value


def test_reprs_say_what_things_are(logistic):
    fit = onestep.newton(logistic.objective)
    assert repr(fit) == "<Solver newton(objective)>"
    s = fit.solve(np.zeros(4), logistic.w)
    assert repr(s) == f"<Solution: converged in {s.statistics.iterations} iterations, x of shape (4)>"
    assert repr(KStep(3)) == "KStep(K=3)"
    assert repr(Auto()) == "Auto(tolerance=1e-06)"
    assert "iterations=" in repr(s.statistics)
    assert repr(fit.prepare(np.zeros(4), logistic.w)) == "<Prepared>"
