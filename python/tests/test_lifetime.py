"""Results own their memory, solutions keep their data as they were, and nothing grows."""

from __future__ import annotations

import gc
import resource
import weakref

import numpy as np
import pytest

import onestep
from onestep import Implicit, Unrolled


@pytest.mark.parametrize("estimator", [None, Implicit(), Unrolled()], ids=repr)
def test_arrays_may_change_and_go_after_a_solve(logistic, estimator):
    A, y, w = logistic.A.copy(), logistic.y.copy(), logistic.w.copy()
    x0 = np.zeros(4)
    fit = onestep.newton(lambda x, w: np.sum(w * np.logaddexp(0, -y * (A @ x))) + 0.1 * np.sum(x**2))
    s = fit.solve(x0, w, estimator=estimator)
    prepared = fit.prepare(x0, w)
    x, gradient, bound = s.x, s.vjp(s.x), s.certificate(s.x).bound
    A[:], y[:], w[:], x0[:] = np.nan, np.nan, np.nan, np.nan
    del A, y, w, x0, fit
    gc.collect()
    np.testing.assert_array_equal(s.x, x)
    np.testing.assert_array_equal(s.vjp(x), gradient)
    np.testing.assert_allclose(s.jacobian().T @ x, gradient, rtol=1e-10)
    assert s.certificate(x).bound == bound
    np.testing.assert_allclose(prepared.solve(np.zeros(4), logistic.w).x, x, rtol=1e-12)


def test_a_solve_sees_what_changed_since_the_last():
    a = np.array([1.0, 2.0])
    fit = onestep.newton(lambda x, t: np.sum((x - a) ** 2) + t * np.sum(x**2))
    first = fit.solve(np.zeros(2), 1.0)
    a[0] = 5.0
    second = fit.solve(np.zeros(2), 1.0)
    np.testing.assert_allclose(first.x, [0.5, 1.0])
    np.testing.assert_allclose(second.x, [2.5, 1.0])
    np.testing.assert_allclose(first.jvp(1.0), [-0.25, -0.5])


def test_an_array_that_changes_while_it_is_traced_is_two_constants():
    buffer = np.zeros(2)

    def f(x):
        buffer[:] = 1
        first = buffer * x
        buffer[:] = 2
        return first + buffer * x

    np.testing.assert_array_equal(onestep.traced(f, (2,))(np.ones(2)), [3, 3])


def test_temporaries_are_copied():
    s = onestep.newton(lambda x, t: np.sum((np.array([[2.0, 0.0], [0.0, 1.0]]) @ x - t) ** 2)).solve(np.zeros(2), np.ones(2) * 2)
    np.testing.assert_allclose(s.x, [1, 2])
    np.testing.assert_allclose(s.vjp(np.ones(2) + 0), [0.5, 1])


def test_results_are_memory_of_their_own(logistic):
    fit = onestep.newton(logistic.objective)
    s = fit.solve(np.zeros(4), logistic.w)
    x = s.x
    x[:] = 0
    assert not np.array_equal(s.x, x)
    g = s.vjp(np.ones(4))
    kept = g.copy()
    s.vjp(np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(g, kept)
    assert g.flags.owndata and g.flags.writeable
    prepared = fit.prepare(np.zeros(4), logistic.w)
    first = prepared.solve(np.zeros(4), logistic.w)
    kept = first.x
    prepared.solve(np.zeros(4), 3 * logistic.w)
    np.testing.assert_array_equal(first.x, kept)


def test_a_solution_outlives_its_solver_and_a_step_its_names():
    def make():
        step = onestep.ForeignStep(lambda x, t: 0.5 * x + t, vjp=lambda x, t, c: (0.5 * c, (c,)))
        return onestep.fixed_point(step).solve(np.zeros(2), np.ones(2))

    s = make()
    gc.collect()
    np.testing.assert_allclose(s.vjp(np.ones(2)), 2, rtol=1e-5)


def test_a_cycle_through_a_solver_is_collected():
    class Model:
        def __init__(self):
            self.A = np.eye(2)
            self.fit = onestep.newton(lambda x, t: np.sum((self.A @ x - t) ** 2), callback=self.see)
            self.step = onestep.fixed_point(onestep.ForeignStep(self.apply))
            self.prepared = self.fit.prepare(np.zeros(2), np.ones(2))
            self.s = self.fit.solve(np.zeros(2), np.ones(2))
            self.many = onestep.solve_many(self.fit, np.zeros(2), [np.ones(2)] * 2)
            self.inner = onestep.Inner(self.fit, np.zeros(2), lambda x: np.sum((x - self.A[0]) ** 2))
            self.traced = onestep.traced(lambda t: np.sum(self.fit.from_(np.zeros(2))(t)), np.ones(2))

        def see(self, iteration):
            return True

        def apply(self, x, t):
            return self.A @ x

    model = Model()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_solver_made_inside_a_traced_function_lives_as_long_as_needed():
    gone = []

    def outer(x, t):
        apply = lambda z, v: 0.5 * z + v  # noqa: E731
        gone.append(weakref.ref(apply))
        inner = onestep.fixed_point(onestep.ForeignStep(apply, vjp=lambda z, v, c: (0.5 * c, (c,)), jvp=forward))
        return 0.5 * x + 0.1 * inner.from_(np.zeros(2))(t)

    def forward(z, v, dz, dv):
        return (0.5 * dz if dz is not None else 0) + (dv[0] if dv is not None else np.zeros(2))

    solver = onestep.fixed_point(outer, estimator=Implicit())
    solutions = [solver.solve(np.zeros(2), np.ones(2)) for _ in range(60)]
    gc.collect()
    for s in (solutions[0], solutions[-1]):
        np.testing.assert_allclose(s.x, 0.4, rtol=1e-8)
        np.testing.assert_allclose(s.vjp(np.ones(2)), 0.4, rtol=1e-5)
    assert all(apply() is not None for apply in gone)
    del solutions, s
    gc.collect()
    assert sum(apply() is not None for apply in gone) < 30


def test_memory_does_not_grow_over_ten_thousand_solves(logistic):
    fit = onestep.newton(logistic.objective)
    prepared = fit.prepare(np.zeros(4), logistic.w)

    def work(times):
        for i in range(times):
            w = logistic.w * (1 + 1e-3 * (i % 7))
            s = fit.solve(np.zeros(4), w)
            s.vjp(s.x)
            prepared.solve(np.zeros(4), w).jvp(w)
            fresh = onestep.newton_root(lambda x, t: x**3 - t) if i % 10 == 0 else None
            if fresh is not None:
                fresh.solve(np.ones(2), np.ones(2)).certificate(np.ones(2))

    work(500)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work(10_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB


def test_inner_problems_may_come_from_an_iterator(logistic):
    """Which has the only references to them: what their callbacks call must not be gone."""

    def problem(factor):
        w = factor * logistic.w
        fit = onestep.newton(lambda x, penalty: logistic.objective(x, w) + penalty * np.sum(x**2))
        judge = lambda x: logistic.objective(x, logistic.w)  # noqa: E731
        gone.append(weakref.ref(judge))
        return onestep.Inner(fit, np.zeros(4), judge)

    def problems():
        for factor in (0.5, 1.0, 2.0):
            yield problem(factor)
            assert gone[-1]() is not None

    gone = []
    found = onestep.minimise(problems(), onestep.Parameter.positive(1.0), max_iterations=3)
    expected = onestep.minimise([problem(f) for f in (0.5, 1.0, 2.0)], onestep.Parameter.positive(1.0), max_iterations=3)
    np.testing.assert_array_equal(found.theta[0], expected.theta[0])
    assert found.value == expected.value
    gc.collect()
    assert all(judge() is None for judge in gone)
