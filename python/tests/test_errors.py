"""Exceptions of the library come out with their types and fields, those of Python as themselves."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import onestep
from onestep import MisuseError, Status


def test_a_solve_that_did_not_converge_has_a_status_and_no_derivative(logistic):
    s = onestep.newton(logistic.objective, max_iterations=1).solve(np.zeros(4), logistic.w)
    assert s.status is Status.iteration_limit
    assert not s.status.is_solution
    assert s.status.explanation
    with pytest.raises(onestep.NotConvergedError) as caught:
        s.vjp(s.x)
    assert (caught.value.status, caught.value.iterations) == (Status.iteration_limit, 1)
    assert np.isfinite(s.even_if_unconverged().vjp(s.x)).all()
    with pytest.raises(onestep.NotConvergedError):
        s.jvp(logistic.w)
    assert s.certificate(s.x).basis is onestep.Certificate.Basis.refused
    assert s.certificate(s.x).reason


def test_a_derivative_that_does_not_exist_has_a_reason():
    flat = onestep.newton(lambda x, t: (x[0] - t) ** 2 + 0.0 * np.sum(x))
    s = flat.solve(np.ones(2), 1.0)
    with pytest.raises((onestep.NoDerivativeError, onestep.NotConvergedError)) as caught:
        s.vjp(np.array([0.0, 1.0]))
    assert isinstance(caught.value.status, Status)
    double_root = onestep.newton_root(lambda x, t: x**2 - t)
    s = double_root.solve(np.ones(1), np.zeros(1))
    with pytest.raises(onestep.NoDerivativeError) as caught:
        s.vjp(np.ones(1))
    assert caught.value.reason
    assert isinstance(caught.value.residual, float)


def test_options_of_a_wrong_name_or_type_are_type_errors():
    f = lambda x: np.sum(x**2)  # noqa: E731
    for options in ({"tolerence": 1e-3}, {"tolerance": "a"}, {"max_iterations": 1e3}, {"history": "yes"}, {"callback": 3}):
        with pytest.raises(TypeError, match=next(iter(options))):
            onestep.newton(f, **options)
    assert len(onestep.newton(f, history=np.bool_(True), max_iterations=np.int64(5)).solve(np.ones(2)).statistics.history) > 0
    assert onestep.newton(f, history=np.bool_(False)).solve(np.ones(2)).statistics.history == []


def test_all_errors_derive_from_one_and_can_be_pickled():
    for error in (
        onestep.MisuseError("a"),
        onestep.TracingError("a"),
        onestep.NotConvergedError("a", Status.diverged, 3),
        onestep.NoDerivativeError("a", "b", Status.singular, 0.5),
        onestep.FileError("a", "f", 3, 4, "p", "drop"),
        onestep.WriteError("a", "f"),
    ):
        assert isinstance(error, onestep.Error)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error) == "a"
        assert vars(copy) == vars(error)
    assert issubclass(onestep.MisuseError, ValueError)
    assert issubclass(onestep.TracingError, TypeError)


def test_a_checkpoint_of_another_problem_is_a_file_error(tmp_path):
    def tune(scale, file):
        fit = onestep.newton(lambda x, t: scale * np.sum((x - 1) ** 2) + np.sum(t * x**2))
        inner = onestep.Inner(fit, np.zeros(2), lambda x: np.sum((x - 0.3) ** 2))
        return onestep.minimise(inner, onestep.Parameter.positive(np.ones(2)), checkpoint=str(file), identity=str(scale))

    tune(1.0, tmp_path / "a")
    assert tune(1.0, tmp_path / "a").resumed
    with pytest.raises(onestep.FileError) as caught:
        tune(2.0, tmp_path / "a")
    assert caught.value.file == str(tmp_path / "a")
    assert caught.value.remedy == "none"
    with pytest.raises(onestep.FileError):
        tune(1.0, tmp_path / "no" / "folder")


def test_an_exception_of_the_traced_function_comes_out_as_it_is():
    error = LookupError("of mine")

    def failing(x, t):
        raise error

    solver = onestep.newton(failing)
    for call in (solver.solve, solver.prepare):
        with pytest.raises(LookupError) as caught:
            call(np.zeros(2), 1.0)
        assert caught.value is error
    with pytest.raises(LookupError):
        onestep.traced(failing, (2,), ())


def test_an_exception_of_a_callback_comes_out_and_the_solver_works_afterwards(logistic):
    fail = True

    def callback(iteration):
        if fail and iteration.number == 2:
            raise LookupError("of mine")

    fit = onestep.newton(logistic.objective, callback=callback)
    for _ in range(3):
        with pytest.raises(LookupError, match="of mine"):
            fit.solve(np.zeros(4), logistic.w)
    with pytest.raises(LookupError, match="of mine"):
        onestep.solve_many(fit, np.zeros(4), [logistic.w] * 4)
    prepared = fit.prepare(np.zeros(4), logistic.w)
    with pytest.raises(LookupError, match="of mine"):
        prepared.solve(np.zeros(4), logistic.w)
    fail = False
    assert fit.solve(np.zeros(4), logistic.w).status is Status.converged
    assert prepared.solve(np.zeros(4), logistic.w).status is Status.converged


def test_an_expression_of_another_function_is_misuse():
    kept = []

    def first(x):
        kept.append(x)
        return x * 2

    onestep.traced(first, (2,))
    with pytest.raises(onestep.MisuseError):
        onestep.traced(lambda x: x + kept[0], (2,))
    assert "traced" in repr(kept[0])


def test_messages_have_the_names_of_python(logistic):
    fit = onestep.newton(lambda x, t: np.sum((x - t) ** 2))
    with pytest.raises(MisuseError, match=r"the function takes 2 arguments; 3 parts .*\(a tuple has an array for each part"):
        fit.solve((1.0, 2.0, 3.0), 1.0)
    slow = onestep.gradient_descent(logistic.objective, tolerance=1e-6)
    for estimator, advice in (
        (onestep.OneStep(), "Implicit() leaves nothing out but what its tolerance allows"),
        (onestep.Implicit(), "solve with a smaller tolerance"),
    ):
        assert slow.solve(np.zeros(4), logistic.w, estimator=estimator).certificate(np.ones(4)).advice == advice
    crossing = onestep.quadratic_program(lambda u: {"Q": np.eye(1), "G": np.ones((2, 1)), "l": np.array([2.0, -9.0]), "u": u})
    s = crossing.solve(np.array([9.0, 1.0]))
    assert s.status is Status.infeasible and "the solution's proof says which" in s.message
    for status in Status:
        assert "::" not in status.explanation and "{" not in status.explanation
    with pytest.raises(MisuseError, match=r"KStep\(K\) differentiates.*, OneStep\(\) the last one, Implicit\(\) the solution"):
        onestep.newton_cg(lambda x, t: np.sum((x - t) ** 2)).solve(np.zeros(2), np.ones(2), estimator=onestep.Unrolled()).vjp(np.ones(2))


def test_a_callback_answers_with_anything_that_is_true_or_false():
    fit = onestep.newton(lambda x, t: np.sum((x - t) ** 4), callback=lambda i: np.bool_(i.number < 2))
    assert fit.solve(np.zeros(2), np.ones(2)).status is Status.cancelled
    inner = onestep.Inner(onestep.newton(lambda x, t: np.sum((x - t) ** 2)), np.zeros(2), lambda x: np.sum((x - 3) ** 4))
    found = onestep.minimise(inner, onestep.Parameter.real(np.zeros(2)), callback=lambda i: np.bool_(i.number < 2))
    assert found.status is Status.cancelled and found.iterations == 2
