"""onestep.torch.fixed_point: maps in torch, their fixed points and derivatives."""

from __future__ import annotations

import gc
import threading

import pytest

import onestep
from onestep import Auto, Implicit, KStep, OneStep, Status

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402
from onestep.torch import fixed_point  # noqa: E402

DOUBLE = torch.float64
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU, or this PyTorch has no CUDA")


def on_devices():
    return pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])


def normal(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)).to(dtype)


def network(n=6, items=3, rho=0.7, dtype=DOUBLE, device="cpu"):
    """z <- tanh(z W + x), with a contraction factor of at most rho."""
    W = normal(n, n, seed=1)
    W = (rho * W / torch.linalg.matrix_norm(W, 2)).to(dtype=dtype, device=device)
    return W.requires_grad_(), normal(items, n, seed=2).to(dtype=dtype, device=device).requires_grad_()


def cell(z, W, x):
    return torch.tanh(z @ W + x)


def unrolled(f, z, *params, steps=300):
    for _ in range(steps):
        z = f(z, *params)
    return z


def relative(a, b):
    return float(torch.linalg.vector_norm((a - b).double()) / torch.linalg.vector_norm(b.double()))


@on_devices()
@pytest.mark.parametrize("loop", [{}, {"anderson": 4}, {"damping": 0.7}, {"anderson": 3, "damping": 0.8}], ids=str)
@pytest.mark.parametrize("estimator", [None, Implicit(), Auto(1e-9), KStep(90)], ids=repr)
def test_estimators_and_loops_agree_with_automatic_differentiation_of_many_steps(estimator, loop, device):
    W, x = network(device=device)
    found = fixed_point(cell, torch.zeros_like(x), (W, x), estimator, tolerance=1e-12, **loop)
    z = unrolled(cell, torch.zeros_like(x), W, x)
    assert found.converged.all()
    assert found.z.device == x.device
    assert relative(found.z.detach(), z.detach()) < 1e-11
    expected = torch.autograd.grad(z.square().sum(), (W, x))
    for ours, theirs in zip(torch.autograd.grad(found.z.square().sum(), (W, x)), expected):
        assert relative(ours, theirs) < 1e-6 if estimator is None else 1e-9


def test_one_step_is_the_derivative_of_the_last_step_alone():
    W, x = network()
    found = fixed_point(cell, torch.zeros_like(x), (W, x), OneStep())
    expected = torch.autograd.grad(cell(found.z.detach(), W, x).sum(), (W, x))
    for ours, theirs in zip(torch.autograd.grad(found.z.sum(), (W, x)), expected):
        assert relative(ours, theirs) < 1e-8
    assert found.report.method == "one step"


@pytest.mark.parametrize("estimator", [Implicit(), Auto(1e-10), KStep(120)], ids=repr)
def test_first_derivatives_pass_gradcheck_in_both_modes(estimator):
    W, x = network(n=3, items=2)
    assert torch.autograd.gradcheck(
        lambda W, x: fixed_point(cell, torch.zeros_like(x), (W, x), estimator, tolerance=1e-13).z,
        (W, x),
        check_forward_ad=True,
    )


@pytest.mark.parametrize("estimator", [Implicit(), Auto(1e-10)], ids=repr)
def test_second_derivatives_pass_gradgradcheck_and_forward_over_reverse(estimator):
    W, x = network(n=3, items=2)
    assert torch.autograd.gradgradcheck(
        lambda W, x: fixed_point(cell, torch.zeros_like(x), (W, x), estimator, tolerance=1e-13).z,
        (W, x),
        check_fwd_over_rev=True,
    )


def test_k_steps_have_second_derivatives_where_they_leave_out_little():
    W, x = network(n=3, items=1, rho=0.3)

    def loss(W, estimator):
        return fixed_point(cell, torch.zeros_like(x), (W, x), estimator, tolerance=1e-12).z.square().sum()

    by_steps = torch.func.hessian(lambda W: loss(W, KStep(40)))(W.detach())
    torch.testing.assert_close(by_steps, torch.func.hessian(lambda W: loss(W, Implicit()))(W.detach()), rtol=1e-8, atol=1e-9)


def test_third_derivatives_of_implicit_are_those_of_the_closed_form():
    w = torch.tensor([1.3], dtype=DOUBLE, requires_grad=True)
    z = fixed_point(lambda z, w: z - (z * w - 1) / 4, torch.ones(1, dtype=DOUBLE), (w,), Implicit()).z  # z = 1/w
    derivative = z.sum()
    for order, expected in ((1, -1 / 1.3**2), (2, 2 / 1.3**3), (3, -6 / 1.3**4)):
        (derivative,) = torch.autograd.grad(derivative, w, create_graph=True)
        assert derivative.item() == pytest.approx(expected, rel=1e-7), order


def test_a_second_derivative_of_one_step_is_refused():
    W, x = network()

    def loss(W):
        return fixed_point(cell, torch.zeros_like(x), (W, x.detach()), OneStep()).z.square().sum()

    (g,) = torch.autograd.grad(loss(W), W, create_graph=True)
    with pytest.raises(onestep.MisuseError, match="first derivative alone"):
        g.sum().backward()
    with pytest.raises(onestep.MisuseError, match="first derivative alone"):
        torch.func.jacfwd(torch.func.grad(loss))(W.detach())


@pytest.mark.parametrize("estimator", [Implicit(), None, OneStep(), KStep(5)], ids=repr)
def test_vmap_and_gradients_for_each_item_are_those_of_a_loop(estimator):
    W, x = (t.detach() for t in network())

    def alone(W, x):
        return fixed_point(cell, torch.zeros_like(x), (W, x), estimator).z

    together = torch.func.vmap(alone, in_dims=(None, 0))(W, x)
    torch.testing.assert_close(together, torch.stack([alone(W, one) for one in x]), rtol=1e-9, atol=1e-10)
    gradient = torch.func.grad(lambda W, x: alone(W, x).square().sum())
    each = torch.func.vmap(gradient, in_dims=(None, 0))(W, x)
    torch.testing.assert_close(each, torch.stack([gradient(W, one) for one in x]), rtol=1e-5, atol=1e-8)
    weights = torch.stack([W, 0.5 * W])
    grid = torch.func.vmap(torch.func.vmap(alone, in_dims=(None, 0)), in_dims=(0, None))(weights, x)
    torch.testing.assert_close(grid[1, 2], alone(0.5 * W, x[2]), rtol=1e-9, atol=1e-10)


def test_jacobians_by_either_mode_and_tangents_of_forward_mode_agree():
    W, x = (t.detach() for t in network())

    def solve(W, x):
        return fixed_point(cell, torch.zeros_like(x), (W, x), Implicit()).z

    reverse, forward = (t(solve, argnums=(0, 1))(W, x) for t in (torch.func.jacrev, torch.func.jacfwd))
    for a, b in zip(reverse, forward):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(W, W)
        tangent = torch.autograd.forward_ad.unpack_dual(solve(dual, x)).tangent
    torch.testing.assert_close(tangent, torch.einsum("bijk,jk->bi", reverse[0], W), rtol=1e-9, atol=1e-11)


def test_items_converge_by_themselves_whatever_their_scale():
    W, x = (t.detach() for t in network(items=4))
    scaled = x * torch.tensor([[1e12], [1.0], [1e-12], [1e-150]], dtype=DOUBLE)
    found = fixed_point(lambda z, W, b: z @ W + b, torch.zeros_like(x), (W, scaled))
    exact = scaled @ torch.linalg.inv(torch.eye(6, dtype=DOUBLE) - W)
    for ours, theirs in zip(found.z, exact):
        unit = theirs.abs().max()
        assert relative(ours / unit, theirs / unit) < 1e-9


@pytest.mark.parametrize("estimator", [Implicit(), Auto(1e-9)], ids=repr)
def test_items_that_act_on_each_other_are_differentiated_together(estimator):
    W, x = network(n=5, items=7)
    mixing = normal(7, 7, seed=6)
    mixing = mixing / torch.linalg.matrix_norm(mixing, 2)

    def f(z, W, x):
        return torch.tanh(mixing @ z @ W + x)

    of_items, whole = (
        fixed_point(f, torch.zeros_like(x), (W, x), estimator, batch_axes=axes, tolerance=1e-12) for axes in (None, 0)
    )
    assert of_items.status.shape == (7,)
    assert whole.status.shape == ()
    expected = torch.autograd.grad(unrolled(f, torch.zeros_like(x), W, x)[0].square().sum(), (W, x))
    for found in (of_items, whole):
        for a, b in zip(torch.autograd.grad(found.z[0].square().sum(), (W, x)), expected):
            assert relative(a, b) < 1e-8


def test_a_state_of_several_parts_and_batches_of_several_axes():
    a = torch.tensor(0.4, dtype=DOUBLE, requires_grad=True)

    def f(state, a):
        y, z = state
        return torch.tanh(a * y + z.sum(-1, keepdim=True) / 9 + 1), torch.cos(a * z) * y.mean(-1, keepdim=True) / 2

    start = torch.zeros(2, 3, 4, dtype=DOUBLE), torch.zeros(2, 3, 2, dtype=DOUBLE)
    found = fixed_point(f, start, a, Implicit(), batch_axes=2)
    assert found.status.shape == (2, 3)
    assert [tuple(part.shape) for part in found.z] == [(2, 3, 4), (2, 3, 2)]
    y, z = unrolled(f, start, a)
    ours, theirs = (torch.autograd.grad(y.sum() + z.square().sum(), a)[0] for y, z in (found.z, (y, z)))
    assert relative(ours, theirs) < 1e-9


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0,), (1,), ()], ids=str)
def test_empty_batches_empty_states_and_single_numbers(shape):
    w = torch.tensor(0.3, dtype=DOUBLE, requires_grad=True)
    found = fixed_point(lambda z, w: torch.cos(z * w), torch.zeros(shape, dtype=DOUBLE), w)
    found.z.sum().backward()
    assert found.z.shape == shape
    assert found.converged.all()
    assert w.grad.shape == ()
    assert found.certificate(torch.ones(shape, dtype=DOUBLE)).bound < 1e-8


def test_two_forwards_before_a_backward_threads_and_checkpoints_keep_apart():
    W, x = network()
    alone = [torch.autograd.grad(fixed_point(cell, torch.zeros_like(x), (W, k * x)).z.sum(), W)[0] for k in (1, 2)]
    first, second = (fixed_point(cell, torch.zeros_like(x), (W, k * x)) for k in (1, 2))
    assert torch.equal(torch.autograd.grad(second.z.sum(), W)[0], alone[1])
    assert torch.equal(torch.autograd.grad(first.z.sum(), W, retain_graph=True)[0], alone[0])
    assert torch.equal(torch.autograd.grad(first.z.sum(), W)[0], alone[0])
    again = torch.utils.checkpoint.checkpoint(
        lambda W: fixed_point(cell, torch.zeros_like(x), (W, x)).z, W, use_reentrant=False
    )
    assert torch.equal(torch.autograd.grad(again.sum(), W)[0], alone[0])
    results = [None] * 6

    def work(i):
        found = fixed_point(lambda z: cell(z, W, (1 + i % 2) * x), torch.zeros_like(x))
        results[i] = torch.autograd.grad(found.z.sum(), W)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i, result in enumerate(results):
        assert relative(result, alone[i % 2]) < 1e-12


@pytest.mark.parametrize("estimator", [None, OneStep(), KStep(3)], ids=repr)
def test_memory_does_not_grow_with_the_number_of_iterations(estimator):
    W, x = network(rho=0.95)
    made, kept = [], []

    def f(z, W):
        made.append(1)
        return torch.tanh(z @ W + x.detach())

    for steps in (50, 500):
        gc.collect()
        before = sum(torch.is_tensor(o) for o in gc.get_objects())
        found = fixed_point(f, torch.zeros_like(x), W, estimator, max_iterations=steps, tolerance=0.0, on_error="keep")
        gc.collect()
        kept.append(sum(torch.is_tensor(o) for o in gc.get_objects()) - before)
        assert found.iterations > 0
    assert kept[1] <= kept[0] + 2


def test_nothing_is_left_behind_by_many_solves():
    W, x = network()

    def once():
        fixed_point(cell, torch.zeros_like(x), (W, x)).z.sum().backward()

    [once() for _ in range(20)]
    gc.collect()
    before = len(gc.get_objects())
    [once() for _ in range(20)]
    gc.collect()
    assert len(gc.get_objects()) <= before + 5


@on_devices()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_other_dtypes_stay_what_they_are(dtype, device):
    W, x = network(dtype=dtype, device=device)
    found = fixed_point(cell, torch.zeros_like(x), (W, x))
    ours = torch.autograd.grad(found.z.square().sum(), (W, x))
    exact = [t.detach().double().requires_grad_() for t in (W, x)]
    z = fixed_point(cell, torch.zeros_like(exact[1]), exact, Implicit()).z
    assert found.z.dtype is dtype
    for a, b in zip(ours, torch.autograd.grad(z.square().sum(), exact)):
        assert a.dtype is dtype
        assert relative(a, b) < (2e-4 if dtype is torch.float32 else 0.2)


@on_devices()
def test_the_map_is_evaluated_under_the_autocast_of_the_forward_pass(device):
    W, x = network(dtype=torch.float32, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        found = fixed_point(lambda z, W: torch.tanh((z @ W).float() + x.detach()), torch.zeros_like(x), W)
        with pytest.raises(onestep.MisuseError, match="bfloat16"):
            fixed_point(lambda z, W: z @ W, torch.zeros_like(x), W)
    (ours,) = torch.autograd.grad(found.z.sum(), W)
    (exact,) = torch.autograd.grad(fixed_point(cell, torch.zeros_like(x), (W, x.detach())).z.sum(), W)
    assert relative(ours, exact) < 0.1


def test_the_linear_systems_of_many_items_end_where_rounding_stops_them():
    torch.manual_seed(0)
    W = torch.randn(40, 40)
    W *= 1.6 / torch.linalg.matrix_norm(W, 2)
    W.requires_grad_()
    x = torch.randn(100, 40)
    found = fixed_point(lambda z, x: torch.tanh(z @ W + 0.3 * x), torch.zeros(100, 40), x, Auto(1e-6))
    found.z.square().sum().backward()
    assert not found.report.met_tolerance  # it is below what single precision allows
    assert found.report.status is Status.rounding_reached
    assert found.report.products < 300
