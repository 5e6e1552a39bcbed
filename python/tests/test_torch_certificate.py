"""onestep.torch.fixed_point: certificates beside the truth, which Newton's method and a dense solve give in double precision."""

from __future__ import annotations

import math
import os

import pytest

import onestep
from onestep import Auto, Certificate, Implicit, KStep, OneStep

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402
from onestep.torch import fixed_point  # noqa: E402

DOUBLE = torch.float64
SIZES, RATES = (1, 2, 5, 20, 40), (0.3, 0.6, 0.9, 0.97, 0.99)
COUNT = 1000 if "ONESTEP_LONG" in os.environ else 75


def affine(z, A, b):
    return z @ A.T + b


def network(z, W, b):
    return torch.tanh(z @ W.T + b)


def two_layers(z, U, V, b):
    return torch.tanh(z @ U.T + b) @ V.T + 0.3


def problem(kind, n, rho, generator):
    """A map and its parameters; rho is the spectral radius of A, or a bound of its norm."""

    def normal(*shape):
        return torch.randn(*shape, dtype=DOUBLE, generator=generator)

    Q = torch.linalg.qr(normal(n, n))[0]
    values = rho * (2 * torch.rand(n, dtype=DOUBLE, generator=generator) - 1)
    if kind == "symmetric":
        values[0] = rho
        return affine, [(Q * values) @ Q.T, normal(n)]
    if kind == "rotation":
        return affine, [rho * Q, normal(n)]
    if kind == "not normal":
        return affine, [torch.triu(normal(n, n), 1) * 3 / math.sqrt(n) + torch.diag(values), normal(n)]
    if kind == "network":
        W = normal(n, n)
        return network, [rho * W / torch.linalg.matrix_norm(W, 2), 0.5 * normal(n)]
    U, V = normal(2 * n, n), normal(n, 2 * n)
    factors = rho / torch.linalg.matrix_norm(U, 2) / torch.linalg.matrix_norm(V, 2)
    return two_layers, [U, factors * V, 0.3 * normal(2 * n)]


def truth(f, theta, z, c):
    """The gradient at the fixed point next to z."""
    theta = [t.detach().double().requires_grad_() for t in theta]
    fixed = [t.detach() for t in theta]
    z = z.detach().double()
    eye = torch.eye(len(z), dtype=DOUBLE)
    for _ in range(50):
        A = torch.func.jacrev(lambda z: f(z, *fixed))(z)
        step = torch.linalg.solve(eye - A, f(z, *fixed) - z)
        z = z + step
        if step.norm() <= 1e-15 * z.norm():
            break
    A = torch.func.jacrev(lambda z: f(z, *fixed))(z)
    u = torch.linalg.solve((eye - A).T, c.double())
    return torch.autograd.grad(f(z, *theta), theta, u)


def norm(parts):
    return math.sqrt(sum(float(p.double().square().sum()) for p in parts))


KINDS = ("symmetric", "rotation", "not normal", "network", "two layers")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_never_below_the_true_error(kind, dtype):
    observed, tight = 0, []
    for i in range(COUNT // 5):
        generator = torch.Generator().manual_seed(1000 * KINDS.index(kind) + i)

        def draw(most, generator=generator):
            return float(torch.rand(1, generator=generator)) * most

        f, theta = problem(kind, SIZES[i % 5], RATES[(i // 5) % 5], generator)
        theta = [t.to(dtype).requires_grad_() for t in theta]
        n = SIZES[i % 5]
        c = torch.randn(n, dtype=DOUBLE, generator=generator).to(dtype)
        choices = [OneStep(), KStep(5), Implicit(tolerance=10 ** -(3 + draw(9))), Auto(1e-4), None, Implicit()]
        loops = [{}, {}, {"anderson": 5}, {"damping": 0.8}]
        tolerance = 10 ** -(3 + draw(7 if dtype is DOUBLE else 2.5))
        estimator, loop = choices[int(draw(6))], loops[int(draw(4))]
        found = fixed_point(
            f, torch.zeros(n, dtype=dtype), theta, estimator, tolerance=tolerance, max_iterations=20000, **loop
        )
        certificate = found.certificate(c)
        try:
            ours = torch.autograd.grad(found.z, theta, c)
        except onestep.NoDerivativeError:
            assert certificate.basis is Certificate.Basis.refused
            continue
        if certificate.basis is Certificate.Basis.refused:
            continue
        error = norm([a.double() - b for a, b in zip(ours, truth(f, theta, found.z, c))])
        assert error <= certificate.bound, (i, n, estimator, loop, tolerance, error, certificate)
        observed += 1
        tight.append(certificate.bound / max(error, 1e-300))
    assert observed >= 0.7 * (COUNT // 5)
    if dtype is DOUBLE:
        assert sorted(tight)[len(tight) // 2] < 10


@pytest.mark.parametrize("estimator", [OneStep(), KStep(3), Implicit(), None], ids=repr)
def test_a_batch_and_what_f_closes_over_have_one_certificate(estimator):
    generator = torch.Generator().manual_seed(3)
    f, (W, b) = problem("network", 6, 0.8, generator)
    W.requires_grad_()
    x = torch.randn(5, 6, dtype=DOUBLE, generator=generator).requires_grad_()
    c = torch.randn(5, 6, dtype=DOUBLE, generator=generator)
    found = fixed_point(lambda z: torch.tanh(z @ W.T + x + b), torch.zeros(5, 6, dtype=DOUBLE), (), estimator)
    ours = torch.autograd.grad(found.z, (W, x), c, retain_graph=True)
    exact = [truth(lambda z, W, x: f(z, W, x + b), (W, one), z, v) for one, z, v in zip(x, found.z, c)]
    theirs = sum(e[0] for e in exact), torch.stack([e[1] for e in exact])
    error = norm([a - b for a, b in zip(ours, theirs)])
    certificate = found.certificate(c)
    assert error <= certificate.bound <= 1e3 * error
    assert certificate.value == pytest.approx(norm(ours), rel=1e-6)


def test_items_that_act_on_each_other_have_a_certificate():
    generator = torch.Generator().manual_seed(4)
    mixing, W, x = (torch.randn(n, m, dtype=DOUBLE, generator=generator) for n, m in ((4, 4), (3, 3), (4, 3)))
    mixing, W = 0.8 * mixing / torch.linalg.matrix_norm(mixing, 2), W / torch.linalg.matrix_norm(W, 2)
    W.requires_grad_()

    def f(z, W):
        return torch.tanh(mixing @ z @ W + x)

    found = fixed_point(f, torch.zeros(4, 3, dtype=DOUBLE), W, Implicit(), tolerance=1e-6)
    c = torch.zeros(4, 3, dtype=DOUBLE)
    c[0] = 1.0
    (ours,) = torch.autograd.grad(found.z, W, c, retain_graph=True)
    (theirs,) = truth(lambda z, W: f(z.reshape(4, 3), W).reshape(-1), (W,), found.z.reshape(-1), c.reshape(-1))
    assert norm([ours - theirs]) <= found.certificate(c).bound < 1e-4


def test_a_kink_within_reach_is_refused_and_one_that_is_far_is_not():
    w = torch.tensor([0.5], dtype=DOUBLE, requires_grad=True)
    for shift, basis in ((0.0, Certificate.Basis.refused), (0.3, Certificate.Basis.observed)):
        # z = 1 where w = 1/2, which is where the second piece begins.
        found = fixed_point(
            lambda z, w, shift=shift: w * z + 0.5 - 0.4 * torch.relu(z - 1 - shift), torch.zeros(1, dtype=DOUBLE), w
        )
        certificate = found.certificate(torch.ones(1, dtype=DOUBLE))
        assert certificate.basis is basis
        assert "kink" in certificate.reason or basis is Certificate.Basis.observed


def test_what_has_no_bound_is_refused_with_a_reason_and_advice():
    one = torch.ones(1, dtype=DOUBLE)
    w = torch.tensor([2.0], dtype=DOUBLE, requires_grad=True)
    diverged = fixed_point(lambda z, w: w * z + 1, one, w, on_error="keep").certificate(one)
    assert diverged.basis is Certificate.Basis.refused
    assert "diverged" in diverged.reason
    assert diverged.bound == math.inf
    free = fixed_point(lambda z, w: z + 0 * w, one, w, on_error="keep").certificate(one)
    assert free.basis is Certificate.Basis.refused
    assert "singular" in free.reason or "not be unique" in free.advice
    contracts = 0.25 * w
    found = fixed_point(lambda z: contracts * z + 1, one)
    assert found.certificate(0 * one).bound == 0.0
    for cotangent, message in ((torch.ones(2), "has shape"), (float("nan") * one, "finite"), ((one,), "tuple"), (1.0, "shape")):
        with pytest.raises(onestep.MisuseError, match=message):
            found.certificate(cotangent)
    with pytest.raises(onestep.MisuseError, match="nothing that f depends on"):
        fixed_point(lambda z: 0.5 * z + 1, one).certificate(one)


def test_a_certificate_changes_no_report_and_no_gradient():
    w = torch.tensor([0.7], dtype=DOUBLE, requires_grad=True)
    found = fixed_point(lambda z, w: torch.cos(w * z), torch.zeros(1, dtype=DOUBLE), w, Implicit())
    one = torch.ones(1, dtype=DOUBLE)
    first, second = found.certificate(one), found.certificate(one)
    assert first == second
    assert found.report is None
    (g,) = torch.autograd.grad(found.z, w, one)
    assert first.value == pytest.approx(abs(g.item()), rel=1e-12)
    assert "error <=" in str(first)
    assert first.dominant is not None
