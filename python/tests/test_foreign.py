"""Steps that are not traced: any Python on arrays, with derivatives of its own."""

from __future__ import annotations

import numpy as np
import pytest

import onestep
from onestep import Implicit, KStep


def heron(x, theta):
    return np.array([0.5 * (x[i] + theta[i] / x[i]) for i in range(x.size)])


def jvp(x, thetas, dx, dthetas):
    (theta,) = thetas
    out = np.zeros_like(x)
    if dx is not None:
        out += 0.5 * (1 - theta / x**2) * dx
    if dthetas is not None:
        out += 0.5 / x * dthetas[0]
    return out


def vjp(x, thetas, c):
    (theta,) = thetas
    return 0.5 * (1 - theta / x**2) * c, (0.5 / x * c,)


THETA = np.array([2.0, 9.0])


@pytest.mark.parametrize("estimator", [None, KStep(2), Implicit()], ids=repr)
def test_a_foreign_step_has_all_estimators(estimator):
    solver = onestep.fixed_point(onestep.ForeignStep(heron, jvp, vjp), tolerance=1e-12)
    s = solver.solve(np.ones(2), THETA, estimator=estimator)
    np.testing.assert_allclose(s.x, np.sqrt(THETA), rtol=1e-13)
    np.testing.assert_allclose(s.vjp(np.ones(2)), 0.5 / np.sqrt(THETA), rtol=1e-6)
    np.testing.assert_allclose(s.jvp(np.ones(2)), 0.5 / np.sqrt(THETA), rtol=1e-6)
    assert s.certificate(np.ones(2)).bound < 1e-6


def test_a_derivative_that_is_left_out_is_named_where_it_is_needed():
    s = onestep.fixed_point(onestep.ForeignStep(heron)).solve(np.ones(2), THETA)
    with pytest.raises(onestep.MisuseError, match="vjp"):
        s.vjp(np.ones(2))


def test_what_a_step_returns_is_checked():
    with pytest.raises(onestep.MisuseError, match="apply returned 3 entries"):
        onestep.fixed_point(onestep.ForeignStep(lambda x, t: np.ones(3))).solve(np.ones(2), THETA)
    for wrong in (lambda x, t, c: c, lambda x, t, c: (c, c), lambda x, t, c: (c, (c, c))):
        s = onestep.fixed_point(onestep.ForeignStep(heron, vjp=wrong)).solve(np.ones(2), THETA)
        with pytest.raises(onestep.MisuseError):
            s.vjp(np.ones(2))
    with pytest.raises(TypeError):
        onestep.ForeignStep(None)


def test_what_a_step_raises_comes_out_as_it_is():
    def failing(x, theta):
        raise LookupError("of mine")

    with pytest.raises(LookupError, match="of mine"):
        onestep.fixed_point(onestep.ForeignStep(failing)).solve(np.ones(2), THETA)

    def failing_vjp(x, theta, c):
        raise LookupError("of mine, backwards")

    s = onestep.fixed_point(onestep.ForeignStep(heron, vjp=failing_vjp)).solve(np.ones(2), THETA)
    with pytest.raises(LookupError, match="backwards"):
        s.vjp(np.ones(2))


def test_a_step_may_keep_what_it_was_given():
    seen = []

    def step(x, theta):
        seen.append(x)
        return heron(x, theta)

    onestep.fixed_point(onestep.ForeignStep(step, vjp=vjp)).solve(np.ones(2), THETA)
    np.testing.assert_array_equal(seen[0], np.ones(2))
    assert len({id(x) for x in seen}) == len(seen)
