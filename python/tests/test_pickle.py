"""Options, estimators, statistics, reports and certificates can be pickled; a Solution says what of it can."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import onestep
from onestep import Auto, Implicit, KStep, OneStep, Unrolled


@pytest.mark.parametrize(
    "value",
    [
        OneStep(),
        KStep(3),
        Implicit(Implicit.How.matrix_free, tolerance=1e-9, on_step=True),
        Unrolled(Unrolled.Mode.reverse, memory=1000),
        Auto(1e-4),
        onestep.GradientStep.optimal(0.5, 2.0),
        onestep.Momentum.nesterov(0.9),
        onestep.Lbfgs(20),
        onestep.Adam(0.1),
        onestep.Status.singular,
    ],
    ids=repr,
)
def test_options(value):
    for other in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert type(other) is type(value)
        assert other == value
        assert repr(other) == repr(value)


def test_options_compare_by_value():
    assert KStep(3) != KStep(4)
    assert KStep(3) != Auto(3)
    assert Implicit() == Implicit(tolerance=1e-12)


def test_estimators_are_keys():
    for estimator in (OneStep(), KStep(3), Implicit(tolerance=1e-9), Unrolled(), Auto(1e-4), Auto(float("nan"))):
        again = pickle.loads(pickle.dumps(estimator))
        assert again == estimator and hash(again) == hash(estimator)
    assert len({OneStep(), KStep(3), KStep(3), KStep(4), Auto(3)}) == 4
    with pytest.raises(TypeError, match="unhashable"):
        hash(onestep.newton(lambda x: np.sum(x**2)).solve(np.ones(1)).statistics)


def test_records_with_a_number_that_is_not_known_are_equal_to_themselves():
    seen = []
    s = onestep.fixed_point(lambda x, a: 0.5 * x + a, callback=seen.append).solve(np.zeros(2), np.ones(2))
    certificate = s.certificate(np.ones(2))
    assert np.isnan(seen[0].value)
    for record in (seen[0], certificate, s.statistics, s.report):
        assert record == record  # noqa: PLR0124
        assert pickle.loads(pickle.dumps(record)) == record
    assert seen[0] != seen[1]


def test_results(logistic):
    s = onestep.newton(logistic.objective, history=True).solve(np.zeros(4), logistic.w)
    s.vjp(s.x)
    for value in (s.statistics, s.report, s.certificate(s.x), s.status, s.x, s.state):
        other = pickle.loads(pickle.dumps(value))
        assert repr(other) == repr(value)
    assert pickle.loads(pickle.dumps(s.certificate(s.x))).bound == s.certificate(s.x).bound
    with pytest.raises(TypeError, match=r"its numbers can: s\.x"):
        pickle.dumps(s)


def test_outcomes_and_parameters(logistic):
    fit = onestep.newton(lambda x, penalty: logistic.objective(x, logistic.w) + penalty * np.sum(x**2))
    inner = onestep.Inner(fit, np.zeros(4), lambda x: logistic.objective(x, np.ones(40)))
    parameter = onestep.Parameter.positive(np.array(0.7)).within(0.1, 2.0)
    copied = pickle.loads(pickle.dumps(parameter))
    assert repr(copied) == repr(parameter)
    outcome = onestep.minimise(inner, parameter, max_iterations=3)
    assert onestep.minimise(inner, copied, max_iterations=3).theta == outcome.theta
    for other in (pickle.loads(pickle.dumps(outcome)), copy.deepcopy(outcome)):
        assert repr(other) == repr(outcome) and other.message == outcome.message
        assert other.history == outcome.history and other.status is outcome.status
        for a, b in zip((*other.theta, *other.hypergradient, *other.x), (*outcome.theta, *outcome.hypergradient, *outcome.x)):
            np.testing.assert_array_equal(a, b)


def test_solutions_of_programs_are_their_numbers():
    s = onestep.solve_qp(Q=np.eye(2), q=np.array([1.0, -2.0]), A=np.ones((1, 2)), b=np.ones(1), lo=0.0)
    other = pickle.loads(pickle.dumps(s))
    assert repr(other) == repr(s) and other.status is s.status
    for name in ("x", "y", "z", "bound_multipliers"):
        np.testing.assert_array_equal(getattr(other, name), getattr(s, name))
    with pytest.raises(onestep.MisuseError, match="solve again for its derivatives"):
        other.vjp(np.ones(2))
    assert s.vjp(np.ones(2))["b"].shape == (1,)


def test_what_holds_functions_says_what_can_be_pickled(logistic):
    fit = onestep.newton(logistic.objective)
    for holder, what in (
        (fit, "a Solver .* a function of a module that makes it can"),
        (fit.prepare(np.zeros(4), logistic.w), "a Prepared .* a function of a module that makes it can"),
        (onestep.solve_many(fit, np.zeros(4), [logistic.w] * 2), r"ManySolutions .* their numbers can: s\.x"),
    ):
        with pytest.raises(TypeError, match=what):
            pickle.dumps(holder)
