"""Steps written with PyTorch: the derivatives are torch's, everything else is the library's."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import onestep  # noqa: E402
import onestep.torch  # noqa: E402
from onestep import Auto, Implicit, KStep, Unrolled  # noqa: E402

RNG = np.random.default_rng(5)
W = RNG.normal(size=(6, 6))
W *= 0.6 / np.linalg.norm(W, 2)
THETA, SCALE = RNG.normal(size=6), np.array(0.7)


def torch_step(x, theta, scale):
    return torch.tanh(scale * (torch.as_tensor(W) @ x) + theta)


def numpy_step(x, theta, scale):
    return np.tanh(scale * (W @ x) + theta)


@pytest.mark.parametrize("estimator", [None, KStep(80), Implicit(), Auto(1e-9), Unrolled()], ids=repr)
def test_a_step_of_torch_has_the_derivatives_of_the_same_step_traced(estimator):
    c, v = RNG.normal(size=6), (RNG.normal(size=6), np.array(0.3))
    foreign = onestep.fixed_point(onestep.torch.foreign_step(torch_step), tolerance=1e-13)
    traced = onestep.fixed_point(numpy_step, tolerance=1e-15)
    s = foreign.solve(np.zeros(6), THETA, SCALE, estimator=estimator)
    t = traced.solve(np.zeros(6), THETA, SCALE, estimator=Implicit(tolerance=1e-14))
    np.testing.assert_allclose(s.x, t.x, rtol=1e-12)
    for ours, theirs in zip(s.vjp(c), t.vjp(c)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(s.jvp(v), t.jvp(v), rtol=1e-6)
    error = np.sqrt(sum(np.sum((ours - theirs) ** 2) for ours, theirs in zip(s.vjp(c), t.vjp(c))))
    assert error <= s.certificate(c).bound < 1e-3 * np.linalg.norm(c)


def test_branches_on_values_are_no_trouble_to_a_step_of_torch():
    def step(x, t):
        return x / 2 + t if bool(x.sum() < 10) else x / 2 - t

    s = onestep.fixed_point(onestep.torch.foreign_step(step)).solve(np.zeros(1), np.ones(1))
    np.testing.assert_allclose(s.x, 2, rtol=1e-8)
    np.testing.assert_allclose(s.vjp(np.ones(1)), 2, rtol=1e-6)


def test_what_a_step_of_torch_returns_is_checked():
    for wrong, what in [(lambda x, t: 1.0, "tensor, not float"), (lambda x, t: x.repeat(2), r"shape \(2,\) for a state")]:
        with pytest.raises(onestep.MisuseError, match=what):
            onestep.fixed_point(onestep.torch.foreign_step(wrong)).solve(np.zeros(1), np.ones(1))
    with pytest.raises(onestep.MisuseError, match="a function of torch is needed"):
        onestep.torch.foreign_step(3)
