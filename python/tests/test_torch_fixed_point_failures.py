"""onestep.torch.fixed_point: what has no solution or no derivative, and what is refused."""

from __future__ import annotations

import pytest

import onestep
from onestep import Auto, Implicit, KStep, OneStep, Status

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402
from onestep.torch import fixed_point  # noqa: E402

DOUBLE = torch.float64
ALL = pytest.mark.parametrize("estimator", [None, Implicit(), OneStep(), KStep(3)], ids=repr)


def line(z, a, b):
    return a * z + b


def lines(*slopes):
    """z = b / (1 - a) for each item, with a b that all share."""
    a = torch.tensor(slopes, dtype=DOUBLE)[:, None].requires_grad_()
    return torch.zeros(len(slopes), 1, dtype=DOUBLE), a, torch.ones(1, dtype=DOUBLE, requires_grad=True)


def test_a_solve_that_did_not_converge_raises_with_its_status():
    z0, a, b = lines(0.5, 2.0)
    with pytest.raises(onestep.NotConvergedError, match="1 of 2 items.*number 1: diverged.*on_error='nan'") as raised:
        fixed_point(line, z0, (a, b))
    assert raised.value.status is Status.diverged
    assert raised.value.iterations > 10


@ALL
@pytest.mark.parametrize("on_error", ["nan", "keep"])
def test_an_item_that_failed_adds_nothing_to_the_gradient_of_the_others(estimator, on_error):
    z0, a, b = lines(0.5, 2.0, float("nan"), 1.0)
    found = fixed_point(line, z0, (a, b), estimator, on_error=on_error)
    alone = fixed_point(line, z0[:1], (a[:1], b), estimator)
    for ours, theirs in zip(
        torch.autograd.grad(found.z[0].sum(), (a, b), retain_graph=True), torch.autograd.grad(alone.z.sum(), (a, b))
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    if on_error == "nan":
        assert found.z.isnan().flatten().tolist() == [False, True, True, True]
        assert torch.autograd.grad(found.z.sum(), b)[0].isnan().all()


@pytest.mark.parametrize("estimator", [None, Implicit()], ids=repr)
def test_a_singular_system_has_no_derivative(estimator):
    # The first item stays where it begins; the second has a solution and a derivative.
    z0 = torch.ones(2, 1, dtype=DOUBLE)
    b = torch.zeros(2, 1, dtype=DOUBLE, requires_grad=True)
    pull = torch.tensor([[0.0], [-0.5]], dtype=DOUBLE)

    def f(z, b):
        return z + 0 * b + pull * (z - 1 - b)

    with pytest.raises(onestep.NoDerivativeError, match="of item 0 is singular") as raised:
        fixed_point(f, z0, b, estimator).z.sum().backward()
    assert raised.value.status is Status.singular
    assert raised.value.residual > 0.1
    found = fixed_point(f, z0, b, estimator, on_error="nan")
    gradient = torch.autograd.grad(found.z.sum(), b)[0].flatten()
    assert gradient[0].isnan()
    assert gradient[1].item() == pytest.approx(1.0)
    assert found.report.status is Status.singular
    kept = fixed_point(f, z0, b, estimator, on_error="keep")
    assert torch.autograd.grad(kept.z.sum(), b)[0].isfinite().all()


def test_a_linear_solve_that_falls_short_is_refused_and_says_how_to_go_on():
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(80, 80, dtype=DOUBLE, generator=generator)
    W = (0.95 * W / torch.linalg.eigvals(W).abs().max()).requires_grad_()
    z0 = torch.zeros(80, dtype=DOUBLE)
    found = fixed_point(lambda z, W: W @ z + 1, z0, W, Implicit(max_iterations=20))
    with pytest.raises(onestep.NoDerivativeError, match="not solved within .* products.*max_iterations=5000"):
        found.z.sum().backward()


@pytest.mark.parametrize("estimator", [OneStep(), KStep(4)], ids=repr)
@pytest.mark.parametrize("loop", [{"damping": 0.3}, {"anderson": 3}], ids=str)
def test_derivatives_of_steps_that_do_not_contract_are_refused(estimator, loop):
    # Undamped steps go away from 1 / (1 - w) by a factor of 3.
    w = torch.tensor([-3.0], dtype=DOUBLE, requires_grad=True)
    found = fixed_point(lambda z, w: w * z + 1, torch.zeros(1, dtype=DOUBLE), w, estimator, **loop)
    with pytest.raises(onestep.NoDerivativeError, match=r"multiplied by 3.*Implicit\(\) needs no contraction"):
        found.z.sum().backward()
    assert found.certificate(torch.ones(1, dtype=DOUBLE)).basis is onestep.Certificate.Basis.refused
    exact = fixed_point(lambda z, w: w * z + 1, torch.zeros(1, dtype=DOUBLE), w, Implicit(), **loop)
    assert torch.autograd.grad(exact.z.sum(), w)[0].item() == pytest.approx(1 / 16, rel=1e-9)
    assert exact.certificate(torch.ones(1, dtype=DOUBLE)).bound < 1e-9


@pytest.mark.parametrize("estimator", [OneStep(), KStep(4)], ids=repr)
def test_an_item_that_stays_where_it_began_is_no_evidence_of_contraction(estimator):
    z0, b = torch.tensor([[1.0], [5.0]], dtype=DOUBLE), torch.zeros(2, 1, dtype=DOUBLE, requires_grad=True)
    a = torch.tensor([[1.0], [0.5]], dtype=DOUBLE)
    found = fixed_point(lambda z, b: a * z + (1 - a) * b, z0, b, estimator, typical_z=1.0)
    with pytest.raises(onestep.NoDerivativeError, match="does not contract"):
        found.z.sum().backward()


def test_a_short_step_alone_is_no_convergence():
    one = torch.ones(1, dtype=DOUBLE)
    for loop in ({}, {"anderson": 3}):
        assert not fixed_point(lambda z: z + 1e-12, one, on_error="keep", **loop).converged
    assert not fixed_point(lambda z: z - 1e-3 * z**3, one, on_error="keep").converged
    assert not fixed_point(lambda z: 1 - z, 0 * one, on_error="keep").converged
    slow = fixed_point(lambda z: 0.99 * z + 1e-2, 0 * one, max_iterations=10**4)
    assert abs(slow.z.item() - 1) < 1e-7


def test_auto_says_which_it_took_and_whether_it_met_its_tolerance():
    W = 0.9 * torch.linalg.qr(torch.randn(6, 6, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)))[0]
    W.requires_grad_()
    exact = None
    for tolerance in (1e-12, 1e-3, 0.5):
        found = fixed_point(lambda z, W: W @ z + 1, torch.zeros(6, dtype=DOUBLE), W, Auto(tolerance), tolerance=1e-14)
        assert found.report is None
        (g,) = torch.autograd.grad(found.z.sum(), W)
        exact = g if exact is None else exact
        assert found.report.met_tolerance
        assert (g - exact).norm() <= tolerance * exact.norm()
        assert found.report.method == "implicit"
        assert found.report.products > 2
    free = fixed_point(lambda z, W: 1e-9 * (W @ z) + W.sum(), torch.zeros(6, dtype=DOUBLE), W, Auto(1e-3))
    torch.autograd.grad(free.z.sum(), W)
    assert free.report.method == "one step"
    unable = fixed_point(
        lambda z, W: W @ z + 1, torch.zeros(6), W.detach().float().requires_grad_(), Auto(1e-9), tolerance=1e-5
    )
    unable.z.sum().backward()
    assert not unable.report.met_tolerance


def test_what_changes_between_forward_and_backward_is_noticed():
    W = 0.3 * torch.eye(4, dtype=DOUBLE)
    x = torch.ones(4, dtype=DOUBLE)
    for estimator in (None, Implicit(), OneStep()):
        w, data = W.clone().requires_grad_(), x.clone()
        found = fixed_point(lambda z, w, data=data: w @ z + data, torch.zeros_like(x), w, estimator)
        data.add_(1.0)
        with pytest.raises(onestep.MisuseError, match="what it closes over has changed"):
            found.z.sum().backward()
        passed, moved = x.clone(), 1.0 * W.clone().requires_grad_()
        found = fixed_point(lambda z, w, x: w @ z + x, torch.zeros_like(x), (moved, passed), estimator)
        passed.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.z.sum().backward()
    inside = W.clone().requires_grad_()
    leaf = 1.0 * inside
    found = fixed_point(lambda z: leaf @ z + x, torch.zeros_like(x))
    with torch.no_grad():
        leaf.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.z.sum().backward()


def test_the_start_may_change_and_is_not_changed():
    w, start = torch.tensor(0.5, dtype=DOUBLE, requires_grad=True), torch.zeros(3, dtype=DOUBLE)
    found = fixed_point(lambda z, w: w * z + 1, start, w, OneStep())
    start.add_(100.0)
    (g,) = torch.autograd.grad(found.z.sum(), w)
    assert g.item() == pytest.approx(6.0)
    with pytest.raises(onestep.MisuseError, match="in place"):
        fixed_point(lambda z: z.mul_(0.5).add_(1.0), start)
    assert torch.equal(start, torch.full((3,), 100.0, dtype=DOUBLE))
    same = fixed_point(lambda z: z, start)
    same.z.add_(1.0)
    assert start[0].item() == 100.0


def test_a_cotangent_that_is_not_finite_or_huge_or_zero_passes_through():
    w = torch.tensor(0.5, dtype=DOUBLE, requires_grad=True)
    found = fixed_point(lambda z, w: w * z + 1, torch.zeros(2, 1, dtype=DOUBLE), w, Implicit())
    assert torch.autograd.grad(float("nan") * found.z.sum(), w, retain_graph=True)[0].isnan()
    assert torch.autograd.grad(1e250 * found.z.sum(), w, retain_graph=True)[0].item() == pytest.approx(8e250)
    assert torch.autograd.grad(0.0 * found.z.sum(), w)[0].item() == 0.0


def test_misuse_is_refused_by_name():
    W = 0.3 * torch.eye(4, dtype=DOUBLE)
    z0 = torch.zeros(2, 4, dtype=DOUBLE)

    def f(z, W=W):
        return z @ W + 1

    for arguments, options, message in (
        ((f, z0.to(torch.complex128)), {}, "complex128"),
        ((f, torch.zeros(3, dtype=torch.int64)), {}, "int64"),
        ((f, [1.0]), {}, "list"),
        ((f, ()), {}, "empty tuple"),
        ((f, z0.to_sparse()), {}, "to_dense"),
        ((f, z0, W.to_sparse()), {}, "to_dense"),
        ((f, (z0, z0.float())), {}, "different dtypes"),
        ((f, (z0, z0[:1])), {}, "the batch and differ"),
        ((f, z0, torch.nn.Linear(2, 2)), {}, "leave them out"),
        ((f, z0, {"W": W}), {}, "dict"),
        ((f, z0, (), onestep.Unrolled()), {}, "Unrolled"),
        ((f, z0, (), Implicit), {}, "estimator must be"),
        ((f, z0, (), Implicit(Implicit.How.dense)), {}, "no matrix"),
        ((f, z0, (), Auto(2.0)), {}, "below 1"),
        ((f, z0, (), KStep(0)), {}, "K = 0"),
        ((f, z0), {"damping": 0.0}, "damping"),
        ((f, z0), {"tolerance": float("nan")}, "tolerance"),
        ((f, z0), {"typical_z": -1.0}, "typical_z"),
        ((f, z0), {"anderson": 1.5}, "anderson"),
        ((f, z0), {"max_iterations": 0}, "max_iterations"),
        ((f, z0), {"batch_axes": 3}, "batch_axes = 3"),
        ((f, z0), {"on_error": "ignore"}, "on_error"),
        ((lambda z: z[:1], z0), {}, r"returned shape \(1, 4\)"),
        ((lambda z: z.float(), z0), {}, "float32"),
        ((lambda z: (z,), z0), {}, "returned a tuple"),
        ((lambda z: z[0], (z0, z0)), {}, "2 parts"),
    ):
        with pytest.raises(onestep.MisuseError, match=message):
            fixed_point(*arguments, **options)


def test_batches_of_directions_that_torch_makes_itself_are_refused_with_the_way_out():
    W = (0.3 * torch.eye(4, dtype=DOUBLE)).requires_grad_()
    found = fixed_point(lambda z, W: W @ z + 1, torch.zeros(4, dtype=DOUBLE), W)
    with pytest.raises(onestep.MisuseError, match="torch.func.jacrev"):
        torch.autograd.grad(found.z, W, torch.eye(4, dtype=DOUBLE), is_grads_batched=True)


def test_statuses_are_those_of_the_library():
    a = torch.tensor([[0.5], [2.0], [float("nan")], [1.0]], dtype=DOUBLE)
    found = fixed_point(lambda z, a: a * z + 1, torch.zeros(4, 1, dtype=DOUBLE), (a,), on_error="nan")
    names = [Status(int(s)) for s in found.status]
    assert names == [Status.converged, Status.diverged, Status.not_finite, Status.iteration_limit]
    assert found.converged.tolist() == [True, False, False, False]
    assert repr(found).startswith("FixedPoint(z=tensor(") and "Call" not in repr(found)


@ALL
def test_a_map_without_a_derivative_that_depends_on_the_state_is_refused(estimator):
    b = torch.ones(2, 1, dtype=DOUBLE, requires_grad=True)
    z0 = torch.zeros(2, 1, dtype=DOUBLE)
    through_numpy = lambda z, b: torch.from_numpy(0.5 * z.detach().numpy() + b.detach().numpy())  # noqa: E731
    for f in (torch.no_grad()(lambda z, b: 0.5 * z + b), lambda z, b: (0.5 * z + b).detach(), through_numpy):
        with pytest.raises((onestep.MisuseError, RuntimeError), match="carries no derivative|does not require grad"):
            fixed_point(f, z0, b, estimator).z.sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(fixed_point(f, z0, b, estimator).z, torch.full((2, 1), 2.0, dtype=DOUBLE))


def test_a_constant_map_has_a_derivative_of_zero():
    b = torch.ones(2, 1, dtype=DOUBLE, requires_grad=True)
    fixed_point(lambda z, b: torch.ones(2, 1, dtype=DOUBLE), torch.zeros(2, 1, dtype=DOUBLE), b).z.sum().backward()
    torch.testing.assert_close(b.grad, torch.zeros(2, 1, dtype=DOUBLE))
