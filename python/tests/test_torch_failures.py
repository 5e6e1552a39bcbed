"""onestep.torch.layer: problems without a solution, second derivatives, and compilers."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import onestep
from onestep import Status

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402

DOUBLE = torch.float64


def budget():
    """The point nearest to 0 on the line x0 + x1 = b, moved by a price."""
    return onestep.quadratic_program(
        lambda b, price: {
            "Q": onestep.eye(2),
            "q": price * np.array([1.0, -1.0]),
            "A": np.ones((1, 2)),
            "b": b,
            "hi": 5.0,
        }
    )


# The second has no point: x0 + x1 = 20 where both are at most 5.
B = torch.tensor([[2.0], [20.0], [4.0]], dtype=DOUBLE)
PRICE = torch.tensor(0.5, dtype=DOUBLE)


def layer(on_error):
    return onestep.torch.layer(budget(), axes=(1, 0), on_error=on_error)


def test_raise_names_the_problem_and_has_its_status():
    with pytest.raises(onestep.NotConvergedError, match="1 of 3 problems.*number 1") as caught:
        layer("raise")(B, PRICE)
    assert caught.value.status is Status.infeasible
    assert caught.value.iterations > 0
    with pytest.raises(onestep.NotConvergedError):
        layer("raise")(B[1], PRICE)


def test_nan_stands_where_there_is_no_solution_and_nowhere_else():
    b, price = B.clone().requires_grad_(), PRICE.clone().requires_grad_()
    solved = layer("nan").solve(b, price)
    assert [Status(int(s)) for s in solved.status] == [Status.converged, Status.infeasible, Status.converged]
    assert solved.converged.tolist() == [True, False, True]
    torch.testing.assert_close(solved.x[[0, 2]], torch.tensor([[0.5, 1.5], [1.5, 2.5]], dtype=DOUBLE))
    assert solved.x[1].isnan().all()
    by_b, by_price = torch.autograd.grad(solved.x[:, 0].sum(), (b, price))
    torch.testing.assert_close(by_b[[0, 2]], torch.full((2, 1), 0.5, dtype=DOUBLE))
    assert by_b[1].isnan().all()
    assert by_price.isnan()


def test_a_problem_that_the_loss_leaves_out_adds_nothing_to_shared_gradients():
    for on_error in ("nan", "keep"):
        b, price = B.clone().requires_grad_(), PRICE.clone().requires_grad_()
        solved = layer(on_error).solve(b, price)
        by_b, by_price = torch.autograd.grad(solved.x[solved.converged][:, 0].sum(), (b, price))
        torch.testing.assert_close(by_b, torch.tensor([[0.5], [0.0], [0.5]], dtype=DOUBLE))
        torch.testing.assert_close(by_price, torch.tensor(-2.0, dtype=DOUBLE))


def test_tangents_of_problems_without_a_solution_are_nan():
    _, dx = torch.func.jvp(lambda b: layer("nan")(b, PRICE), (B,), (torch.ones_like(B),))
    torch.testing.assert_close(dx[[0, 2]], torch.full((2, 2), 0.5, dtype=DOUBLE))
    assert dx[1].isnan().all()


def test_keep_returns_what_there_is_and_its_derivative(logistic):
    solver = onestep.newton(logistic.objective, max_iterations=2)
    kept = onestep.torch.layer(solver, axes=(1,), start=np.zeros(4), on_error="keep")
    w = torch.from_numpy(np.stack([logistic.w, 2 * logistic.w])).requires_grad_()
    solved = kept.solve(w)
    assert not solved.converged.any()
    assert {Status(int(s)) for s in solved.status} == {Status.iteration_limit}
    (gradient,) = torch.autograd.grad(solved.x.sum(), w)
    expected = solver.solve(np.zeros(4), logistic.w).even_if_unconverged().vjp(np.ones(4))
    np.testing.assert_array_equal(gradient[0].numpy(), expected)


def test_numbers_that_are_none_are_found(logistic):
    fit = onestep.torch.layer(onestep.newton(logistic.objective), axes=(1,), start=np.zeros(4), on_error="nan")
    w = torch.from_numpy(np.stack([logistic.w, logistic.w])).clone()
    w[1, 3] = torch.nan
    solved = fit.solve(w)
    assert Status(int(solved.status[1])) is Status.not_finite
    assert solved.x[0].isfinite().all() and solved.x[1].isnan().all()


def flat():
    """min (x0 - w)^2: any x1 is as good, so that x has no derivative."""
    return onestep.gradient_descent(lambda x, w: (x[0] - w) ** 2 + 0.0 * x[1], step=0.3, estimator=onestep.Implicit())


def test_a_derivative_that_does_not_exist_raises_or_is_nan():
    w = torch.tensor([0.3, 0.4], dtype=DOUBLE, requires_grad=True)
    x = onestep.torch.layer(flat(), axes=(0,), start=np.zeros(2))(w)
    with pytest.raises(onestep.NoDerivativeError):
        x.sum().backward()
    x = onestep.torch.layer(flat(), axes=(0,), start=np.zeros(2), on_error="nan")(w)
    (gradient,) = torch.autograd.grad(x[0].sum(), w)
    assert gradient[0].isnan() and gradient[1] == 0


# -- second derivatives


@pytest.mark.parametrize("on_error", ["nan", "keep"])
def test_a_cotangent_that_is_not_finite_gives_nan_to_its_problem_alone(on_error):
    qp = onestep.torch.QP(on_error=on_error)
    q = torch.tensor([[-0.9, -0.4], [-0.5, -0.2]], dtype=DOUBLE, requires_grad=True)
    weights = torch.tensor([[1.0], [float("nan")]], dtype=DOUBLE)
    (gradient,) = torch.autograd.grad((qp(Q=torch.eye(2), q=q) * weights).sum(), q)
    torch.testing.assert_close(gradient[0], -torch.ones(2, dtype=DOUBLE))
    assert gradient[1].isnan().all()
    (gradient,) = torch.autograd.grad(qp(Q=torch.eye(2), q=q[0]).sum() * float("inf"), q)
    assert gradient[0].isnan().all()
    with pytest.raises(onestep.MisuseError, match="a direction has to be finite"):
        torch.autograd.grad((onestep.torch.QP()(Q=torch.eye(2), q=q) * weights).sum(), q)


def test_a_problem_that_the_loss_leaves_out_adds_nothing_to_second_derivatives():
    qp = onestep.torch.QP(on_error="nan")
    q = torch.tensor([[-0.9, -0.4], [float("nan"), 0.0]], dtype=DOUBLE)
    scale = torch.tensor(1.0, dtype=DOUBLE)

    def loss(scale, q):
        return qp(Q=scale * torch.eye(2, dtype=DOUBLE), q=q)[0].square().sum()

    curved = torch.func.grad(torch.func.grad(loss))
    torch.testing.assert_close(curved(scale, q), curved(scale, q[:1]))


def test_empty_batches_have_empty_derivatives_of_all_kinds():
    qp, q = onestep.torch.QP(), torch.zeros(0, 3, dtype=DOUBLE)

    def solve(q):
        return qp(Q=torch.eye(3), q=-q, A=torch.ones(1, 3), b=1.0, lo=0.0)

    assert torch.func.jacrev(solve)(q).shape == (0, 3, 0, 3)
    assert torch.func.jacfwd(solve)(q).shape == (0, 3, 0, 3)
    assert torch.func.vmap(torch.func.jacrev(solve))(q).shape == (0, 3, 3)
    assert torch.func.hessian(lambda q: solve(q).sum())(q).shape == (0, 3, 0, 3)
    assert qp.certificate(Q=torch.eye(3), q=-q, lo=0.0, cotangent=torch.ones(3)) == []


def quartic(x, w):
    return np.sum(w * np.logaddexp(0, x)) + 0.5 * np.sum((x - w) ** 2)


@pytest.fixture
def newton():
    return onestep.torch.layer(onestep.newton(quartic), axes=(1,), start=np.zeros(3))


W = torch.tensor([0.7, 1.1, 0.4], dtype=DOUBLE)


def test_newton_passes_gradgradcheck(newton):
    w = W.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(newton, (w,), check_fwd_over_rev=True, check_rev_over_rev=True)
    batch = torch.stack([W, 2 * W]).requires_grad_()
    assert torch.autograd.gradgradcheck(newton, (batch,), check_fwd_over_rev=True)


def test_a_program_passes_gradgradcheck_in_its_matrices():
    program = onestep.quadratic_program(lambda Q, q: {"Q": Q @ Q.T + onestep.eye(2), "q": q, "lo": -0.2})
    layer = onestep.torch.layer(program, axes=(2, 1))
    Q = torch.tensor([[1.0, 0.2], [0.3, 0.8]], dtype=DOUBLE, requires_grad=True)
    q = torch.tensor([-1.0, 2.0], dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (Q, q), check_fwd_over_rev=True)
    assert torch.autograd.gradgradcheck(lambda Q, q: layer.solve(Q, q).state, (Q, q))


def test_hessians_agree_in_all_four_orders(newton):
    from torch.func import jacfwd, jacrev

    hessians = [outer(inner(newton))(W) for outer in (jacfwd, jacrev) for inner in (jacfwd, jacrev)]
    for hessian in hessians:
        torch.testing.assert_close(hessian, hessians[0], rtol=1e-10, atol=1e-12)
    batch = torch.func.vmap(jacfwd(jacrev(newton)))(torch.stack([W, 2 * W]))
    torch.testing.assert_close(batch[0], hessians[0], rtol=1e-10, atol=1e-12)


def test_one_step_for_first_derivatives_leaves_second_ones_alone(newton):
    one_step = onestep.torch.layer(onestep.newton(quartic), start=np.zeros(3), estimator=onestep.OneStep())
    hessian = torch.func.hessian(lambda w: one_step(w).sum())(W)
    torch.testing.assert_close(hessian, torch.func.hessian(lambda w: newton(w).sum())(W), rtol=1e-7, atol=1e-9)


def test_second_derivatives_that_a_solver_does_not_have_are_refused():
    layer = onestep.torch.layer(onestep.gradient_descent(quartic), start=np.zeros(3))
    w = W.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(w).sum(), w, create_graph=True)
    with pytest.raises(onestep.MisuseError, match="no second derivative.*newton, newton_root and quadratic_program"):
        gradient.sum().backward()


def test_third_derivatives_are_refused(newton):
    with pytest.raises(onestep.MisuseError, match="a third one"):
        torch.func.jacrev(torch.func.hessian(lambda w: newton(w).sum()))(W)
    with pytest.raises(onestep.MisuseError, match="a third one"):
        torch.func.jacfwd(torch.func.hessian(lambda w: newton(w).sum()))(W)


# -- compilers


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    yield lambda f: torch.compile(f, fullgraph=True, backend="aot_eager")
    torch._dynamo.reset()


def test_a_compiled_layer_has_the_same_values_and_gradients_in_one_graph(newton, compiled):
    def loss(w):
        return newton(2 * w).square().sum()

    quick = compiled(loss)
    for batch in (torch.stack([W, 2 * W]), torch.stack([W, W, 3 * W]), W):
        w = batch.clone().requires_grad_()
        value, expected = quick(w), loss(w)
        assert torch.equal(value, expected)
        torch.testing.assert_close(*(torch.autograd.grad(v, w)[0] for v in (value, expected)), rtol=1e-12, atol=0)


def test_a_compiled_layer_does_not_remember_other_calls(newton, compiled):
    quick = compiled(newton)
    a, b = W.clone().requires_grad_(), (2 * W).requires_grad_()
    first, second = quick(a), quick(b)
    first.sum().backward()
    second.sum().backward()
    for w in (a, b):
        other = w.detach().clone().requires_grad_()
        newton(other).sum().backward()
        torch.testing.assert_close(w.grad, other.grad, rtol=1e-12, atol=0)


def test_the_operator_keeps_the_rules_of_torch(newton):
    arguments = ([torch.stack([W, 2 * W]).requires_grad_()], newton._problems.number, [True], 2)
    torch.library.opcheck(torch.ops.onestep.solve.default, arguments)


def test_an_exported_program_solves_while_its_layer_is_there():
    model = torch.nn.Sequential(onestep.torch.layer(onestep.newton(quartic), axes=(1,), start=np.zeros(3)))
    expected = model(W)
    module = torch.export.export(model, (W,)).module()
    assert torch.equal(module(W), expected)
    del model
    gc.collect()
    with pytest.raises(onestep.MisuseError, match="a layer that is gone"):
        module(W)


def test_data_that_changes_before_a_compiled_backward_is_noticed(compiled):
    data = np.ones(3)
    layer = onestep.torch.layer(onestep.newton(lambda x, w: np.sum((x - w * data) ** 2)), start=np.zeros(3))
    w = W.clone().requires_grad_()
    for f, is_noticed in ((layer, False), (compiled(layer), True)):
        x = f(w)
        data[0] += 1.0
        if is_noticed:
            with pytest.raises(onestep.MisuseError, match="has changed since the forward pass"):
                x.sum().backward()
        else:
            (gradient,) = torch.autograd.grad(x.sum(), w)
            torch.testing.assert_close(gradient, torch.ones(3, dtype=DOUBLE))


def test_batches_of_autograd_are_refused_by_name():
    fit = onestep.torch.layer(onestep.newton(lambda x, a: np.sum((x - a) ** 2) + np.sum(x**4)), start=np.zeros(2))
    a = torch.ones(2, dtype=DOUBLE, requires_grad=True)
    x = fit(a)
    (slope,) = torch.autograd.grad(x.sum(), a, create_graph=True)
    loss = lambda a: fit(a).sum()  # noqa: E731
    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    for derive in (
        lambda: torch.autograd.grad(x, a, torch.eye(2, dtype=DOUBLE), is_grads_batched=True),
        lambda: torch.autograd.grad(slope, a, torch.eye(2, dtype=DOUBLE), is_grads_batched=True),
        lambda: jacobian(fit, a.detach(), vectorize=True),
        lambda: jacobian(fit, a.detach(), vectorize=True, strategy="forward-mode"),
        lambda: hessian(loss, a.detach(), vectorize=True, outer_jacobian_strategy="forward-mode"),
    ):
        with pytest.raises(onestep.MisuseError, match="is_grads_batched, vectorize=True.*torch.func.jacrev"):
            derive()


def test_a_parameter_that_is_no_array_is_refused_by_name():
    with pytest.raises(onestep.MisuseError, match="no array of real numbers but str"):
        onestep.torch.layer(flat(), start=np.zeros(2))("abc")


def test_messages_of_a_layer_do_not_name_a_proof_that_nobody_has():
    qp = onestep.torch.QP()
    with pytest.raises(onestep.NotConvergedError, match="No point satisfies all constraints") as error:
        qp(Q=torch.eye(2), q=torch.ones(2, 2, dtype=DOUBLE), lo=1.0, hi=0.0)
    assert "proof" not in str(error.value)
    with pytest.raises(onestep.NotConvergedError, match="along a ray: ") as error:
        qp(q=torch.ones(2, 2, dtype=DOUBLE))
    assert "proof" not in str(error.value)
