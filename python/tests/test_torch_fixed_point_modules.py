"""onestep.torch.fixed_point: modules, what maps close over, training, and compilers."""

from __future__ import annotations

import copy

import pytest

import onestep
from onestep import Implicit

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402
from onestep.torch import fixed_point  # noqa: E402

DOUBLE = torch.float64
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU, or this PyTorch has no CUDA")


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


def test_what_f_closes_over_gets_gradients_too():
    layer = torch.nn.Linear(6, 6, dtype=DOUBLE)
    with torch.no_grad():
        layer.weight.mul_(0.3)
    raw, x = normal(6, seed=4).requires_grad_(), network()[1].detach()
    scale = torch.sigmoid(raw)  # no leaf

    def f(z):
        return scale * torch.tanh(layer(z)) + x

    fixed_point(f, torch.zeros_like(x), (), Implicit()).z.square().sum().backward(retain_graph=True)
    ours = [p.grad for p in (layer.weight, layer.bias, raw)]
    for p in (layer.weight, layer.bias, raw):
        p.grad = None
    unrolled(f, torch.zeros_like(x)).square().sum().backward()
    for a, p in zip(ours, (layer.weight, layer.bias, raw)):
        assert relative(a, p.grad) < 1e-8
    hessian = torch.func.hessian(lambda s: fixed_point(lambda z: s * torch.tanh(layer(z)) + x, x, (), Implicit()).z.sum())
    assert hessian(scale.detach()).isfinite().all()


class Equilibrium(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inside, self.inject = torch.nn.Linear(4, 4, dtype=DOUBLE), torch.nn.Linear(3, 4, dtype=DOUBLE)

    def forward(self, x):
        def f(z, weights, u):
            return torch.tanh(0.5 * torch.func.functional_call(self.inside, weights, (z,)) + u)

        u = self.inject(x)
        return fixed_point(f, torch.zeros_like(u), (dict(self.inside.named_parameters()), u), Implicit()).z.square().sum()


def test_parameters_that_functional_call_has_taken_back_are_refused():
    class Inside(Equilibrium):
        def forward(self, x):
            u = self.inject(x)
            return fixed_point(lambda z: torch.tanh(0.5 * self.inside(z) + u), torch.zeros_like(u)).z.square().sum()

    for requires in (True, False):
        model, x = Inside().requires_grad_(requires), normal(5, 3, seed=8)
        weights = {name: 1.5 * p.detach() for name, p in model.named_parameters()}
        gradient = torch.func.grad(lambda weights, x, model=model: torch.func.functional_call(model, weights, (x,)))
        for ask in (lambda g=gradient, w=weights: g(w, x), lambda g=gradient, w=weights: torch.func.vmap(g, (None, 0))(w, x)):
            with pytest.raises(onestep.MisuseError, match="functional_call.*pass it in"):
                ask()


def test_a_module_has_gradients_for_each_sample_through_functional_call():
    model, x = Equilibrium(), normal(5, 3, seed=8)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    gradient = torch.func.grad(lambda weights, x: torch.func.functional_call(model, weights, (x,)))
    each = torch.func.vmap(gradient, in_dims=(None, 0))(weights, x)
    for i, one in enumerate(x):
        expected = torch.autograd.grad(model(one), list(model.parameters()))
        for name, g in zip(weights, expected):
            torch.testing.assert_close(each[name][i], g, rtol=1e-9, atol=1e-11)


def test_batch_normalisation_makes_items_act_on_each_other_and_is_differentiated_so():
    normalise, x = torch.nn.BatchNorm1d(6, dtype=DOUBLE), network(items=8)[1].detach()
    W = network()[0]

    def f(z):
        return 0.5 * torch.tanh(normalise(z @ W)) + x

    found = fixed_point(f, torch.zeros_like(x), (), Implicit())
    ours = torch.autograd.grad(found.z[0].square().sum(), (W, normalise.weight))
    theirs = torch.autograd.grad(unrolled(f, torch.zeros_like(x))[0].square().sum(), (W, normalise.weight))
    for a, b in zip(ours, theirs):
        assert relative(a, b) < 1e-7


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.T, a.T @ g


def test_what_f_closes_over_and_cannot_be_found_is_refused():
    W, x = network()
    hidden, x = W, x.detach()
    with pytest.raises(onestep.MisuseError, match="pass it in params"):
        fixed_point(lambda z: torch.tanh(Product.apply(z, hidden) + x), torch.zeros_like(x)).z.sum().backward()
    bias = torch.zeros(6, dtype=DOUBLE, requires_grad=True)
    found = fixed_point(lambda z, b: torch.tanh(Product.apply(z, hidden) + x + b), torch.zeros_like(x), (bias,))
    with pytest.raises(onestep.MisuseError, match="pass it in params"):
        found.z.sum().backward()
    passed = fixed_point(lambda z, W: torch.tanh(Product.apply(z, W) + x), torch.zeros_like(x), (W,), Implicit())
    direct = fixed_point(cell, torch.zeros_like(x), (W, x), Implicit())
    assert relative(*(torch.autograd.grad(s.z.sum(), W)[0] for s in (passed, direct))) < 1e-9


@needs_cuda
def test_an_equilibrium_model_learns_on_the_gpu():
    learn("cuda")


def test_an_equilibrium_model_learns():
    learn("cpu")


def learn(device):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.inject, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)

        def cell(self, z, u):
            return torch.tanh(0.5 * self.inside(z) + u)

        def forward(self, x):
            u = self.inject(x)
            return self.out(fixed_point(self.cell, torch.zeros_like(u), u).z)

    torch.manual_seed(0)
    model, x = Model().to(device), torch.randn(64, 3).to(device)
    y = (x[:, :1] * x[:, 1:2]).tanh()
    optimiser = torch.optim.Adam(model.parameters(), 2e-2)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        losses.append((model(x) - y).square().mean())
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.5 * losses[0]
    assert torch.equal(copy.deepcopy(model)(x), model(x))


def test_a_compiled_function_around_a_fixed_point_and_a_compiled_map_have_the_same_gradients():
    torch._dynamo.reset()
    W, x = network()
    compiled = torch.compile(cell, backend="aot_eager")
    closed = torch.compile(lambda z: torch.tanh(z @ W + x.detach()), backend="aot_eager")
    around = torch.compile(
        lambda W: fixed_point(cell, torch.zeros_like(x), (1.0 * W, x.detach())).z.sum(), backend="aot_eager"
    )
    expected = torch.autograd.grad(fixed_point(cell, torch.zeros_like(x), (W, x.detach())).z.sum(), W)[0]
    inside = fixed_point(compiled, torch.zeros_like(x), (W, x.detach())).z.sum()
    for loss in (inside, around(W), fixed_point(closed, torch.zeros_like(x)).z.sum()):
        assert relative(torch.autograd.grad(loss, W)[0], expected) < 1e-12
    torch._dynamo.reset()
