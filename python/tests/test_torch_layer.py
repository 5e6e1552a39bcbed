"""onestep.torch.layer: solvers of NumPy functions as modules of PyTorch."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import onestep

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402

DOUBLE = torch.float64


def simplex(c):
    return {"Q": onestep.eye(3), "q": -c, "A": np.ones((1, 3)), "b": np.ones(1), "lo": 0.0}


def projection():
    return onestep.quadratic_program(simplex)


# The projection is c - its mean excess on the coordinates that stay positive: here the first two.
C = torch.tensor([0.9, 0.4, -0.5], dtype=DOUBLE)
PROJECTED = torch.tensor([0.75, 0.25, 0.0], dtype=DOUBLE)
JACOBIAN = torch.tensor([[0.5, -0.5, 0], [-0.5, 0.5, 0], [0, 0, 0]], dtype=DOUBLE)


@pytest.fixture
def project():
    return onestep.torch.layer(projection(), axes=(1,))


@pytest.fixture
def fit(logistic):
    def objective(x, w, penalty):
        return logistic.objective(x, w) + penalty * np.sum(x**2)

    return onestep.torch.layer(onestep.newton(objective), axes=(1, 0), start=np.zeros(4))


def weights(*shape):
    return torch.rand(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(3)) + 0.5


def close(a, b, tolerance=1e-7):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_a_program_has_the_solution_and_the_gradient_of_its_closed_form(project):
    c = C.clone().requires_grad_()
    x = project(c)
    close(x, PROJECTED)
    (gradient,) = torch.autograd.grad(x[0], c)
    close(gradient, JACOBIAN[0])


def test_a_logistic_regression_has_the_derivative_of_the_implicit_function_theorem(logistic):
    layer = onestep.torch.layer(onestep.newton(logistic.objective), start=np.zeros(4))
    w = torch.from_numpy(logistic.w)
    jacobian = torch.func.jacrev(layer)(w)
    expected = logistic.jacobian(layer(w).numpy(), logistic.w)
    np.testing.assert_allclose(jacobian.numpy(), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "estimator", [onestep.OneStep(), onestep.KStep(2), onestep.Implicit(), onestep.Auto(1e-8)], ids=repr
)
def test_every_estimator_passes_gradcheck_in_both_modes(logistic, estimator):
    layer = onestep.torch.layer(onestep.newton(logistic.objective), start=np.zeros(4), estimator=estimator)
    assert torch.autograd.gradcheck(layer, (weights(40).requires_grad_(),), check_forward_ad=True)


def test_a_slow_method_passes_gradcheck():
    solver = onestep.gradient_descent(
        lambda x, w: np.sum(np.logaddexp(0, x - w)) + np.sum((x - w**2) ** 2), tolerance=1e-12
    )
    layer = onestep.torch.layer(solver, start=np.zeros(3), estimator=onestep.Implicit())
    assert torch.autograd.gradcheck(layer, (weights(3).requires_grad_(),), check_forward_ad=True)


def test_a_batch_has_the_bits_of_its_problems_one_by_one(project):
    c = torch.randn(2, 5, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1)).requires_grad_()
    x = project(c)
    assert x.shape == (2, 5, 3)
    for i in range(2):
        for j in range(5):
            assert torch.equal(x[i, j], project(c[i, j]))
    (gradient,) = torch.autograd.grad((x**2).sum(), c)
    (one,) = torch.autograd.grad((project(c[1, 2]) ** 2).sum(), c)
    assert torch.equal(gradient[1, 2], one[1, 2])


def test_a_shared_parameter_gets_the_sum_of_the_gradients(fit):
    w, penalty = weights(5, 40), torch.tensor(0.3, dtype=DOUBLE, requires_grad=True)
    (shared,) = torch.autograd.grad(fit(w, penalty).square().sum(), penalty)
    each = [torch.autograd.grad(fit(one, penalty).square().sum(), penalty)[0] for one in w]
    close(shared, torch.stack(each).sum(), 1e-12)
    assert torch.autograd.gradcheck(fit, (weights(3, 40).requires_grad_(), penalty), check_forward_ad=True)


def test_batches_are_broadcast_against_each_other(fit):
    w, penalty = weights(5, 1, 40), torch.tensor([0.1, 0.3], dtype=DOUBLE)
    x = fit(w, penalty)
    assert x.shape == (5, 2, 4)
    assert torch.equal(x[3, 1], fit(w[3, 0], penalty[1]))


def test_an_empty_batch_has_an_empty_answer(project):
    c = torch.zeros(0, 3, dtype=DOUBLE, requires_grad=True)
    x = project(c)
    assert x.shape == (0, 3)
    x.sum().backward()
    assert c.grad.shape == (0, 3)


def test_vmap_solves_a_batch_and_agrees_with_a_loop(fit):
    w, penalty = weights(3, 40), torch.tensor([0.1, 0.3], dtype=DOUBLE)
    once = torch.func.vmap(fit, in_dims=(0, None))(w, penalty[0])
    assert torch.equal(once, torch.stack([fit(one, penalty[0]) for one in w]))
    columns = torch.func.vmap(fit, in_dims=(1, None), out_dims=1)(w.T, penalty[0])
    assert torch.equal(columns.T, once)
    grid = torch.func.vmap(torch.func.vmap(fit, in_dims=(0, None)), in_dims=(None, 0))(w, penalty)
    assert torch.equal(grid, torch.stack([torch.stack([fit(one, p) for one in w]) for p in penalty]))


def test_gradients_for_each_sample_are_those_of_a_loop(fit):
    def loss(w, penalty):
        return fit(w, penalty).square().sum()

    w, penalty = weights(3, 40), torch.tensor(0.3, dtype=DOUBLE)
    gradient = torch.func.grad(loss, argnums=(0, 1))
    by_w, by_penalty = torch.func.vmap(gradient, in_dims=(0, None))(w, penalty)
    each = [gradient(one, penalty) for one in w]
    close(by_w, torch.stack([e[0] for e in each]), 1e-13)
    close(by_penalty, torch.stack([e[1] for e in each]), 1e-13)


@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
def test_jacobians_of_batches_and_of_batches_of_batches(fit, transform):
    w, penalty = weights(3, 40), torch.tensor([0.1, 0.3], dtype=DOUBLE)
    jacobian = transform(fit, argnums=(0, 1))
    grid = torch.func.vmap(torch.func.vmap(jacobian, in_dims=(0, None)), in_dims=(None, 0))(w, penalty)
    assert [tuple(j.shape) for j in grid] == [(2, 3, 4, 40), (2, 3, 4)]
    for i in range(2):
        for j in range(3):
            for k, alone in enumerate(torch.func.jacrev(fit, argnums=(0, 1))(w[j], penalty[i])):
                close(grid[k][i, j], alone, 1e-10)
    whole = transform(lambda p: fit(w, p))(penalty[0])
    close(whole, torch.stack([torch.func.jacrev(fit, argnums=1)(one, penalty[0]) for one in w]), 1e-10)


def test_a_tangent_of_forward_mode_is_carried_through(fit):
    w, penalty = weights(40), torch.tensor(0.3, dtype=DOUBLE)
    x, dx = torch.func.jvp(fit, (w, penalty), (w, penalty))
    by_w, by_penalty = torch.func.jacrev(fit, argnums=(0, 1))(w, penalty)
    close(dx, by_w @ w + by_penalty * penalty, 1e-9)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w, w)
        close(torch.autograd.forward_ad.unpack_dual(fit(dual, penalty)).tangent, by_w @ w, 1e-9)


def test_multipliers_are_parts_of_the_state_with_derivatives(project):
    def multiplier(c):
        return project.solve(c).state[1]

    assert [part.shape for part in project.solve(C).state] == [(3,), (1,), (0,), (3,)]
    x, state, status = project.solve(C)  # as of onestep.jax
    assert torch.equal(x, state[0]) and onestep.Status(int(status)) is onestep.Status.converged
    # Stationarity x - c + y = 0 on the support, whose x sum to 1: the multiplier is c's mean excess.
    close(multiplier(C), torch.tensor([0.15], dtype=DOUBLE))
    close(torch.func.jacrev(multiplier)(C), torch.tensor([[0.5, 0.5, 0.0]], dtype=DOUBLE))


def test_two_forwards_before_a_backward_keep_apart_what_they_solved(project):
    a, b = C.clone().requires_grad_(), torch.tensor([-2.0, 3.0, 2.5], dtype=DOUBLE, requires_grad=True)
    first, second = project(a), project(b)
    second[1].backward()
    first[0].backward()
    close(a.grad, JACOBIAN[0])
    close(b.grad, torch.tensor([0.0, 0.5, -0.5], dtype=DOUBLE))


def test_a_graph_can_be_differentiated_twice_if_it_is_retained(project):
    c = C.clone().requires_grad_()
    x = project(c)
    (once,) = torch.autograd.grad(x[0], c, retain_graph=True)
    (again,) = torch.autograd.grad(x[0], c)
    assert torch.equal(once, again)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(x[0], c)


def test_a_parameter_changed_in_place_after_the_solve_is_noticed(project):
    c = C.clone().requires_grad_()
    moved = c * 1.0
    x = project(moved)
    moved.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x[0].backward()


def test_layers_are_used_by_several_threads_at_once(fit):
    w, penalty = weights(8, 40), torch.tensor(0.3, dtype=DOUBLE)
    expected = torch.func.vmap(torch.func.grad(lambda w, p: fit(w, p).square().sum()), in_dims=(0, None))(w, penalty)
    found, errors = [None] * 8, []

    def work(i):
        try:
            for _ in range(5):
                mine = w[i].clone().requires_grad_()
                fit(mine, penalty).square().sum().backward()
                found[i] = mine.grad
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
    close(torch.stack(found), expected, 1e-12)


def test_a_graph_may_be_differentiated_in_another_thread(project):
    c = C.clone().requires_grad_()
    x = project(c)
    thread = threading.Thread(target=x[0].backward)
    thread.start()
    thread.join()
    close(c.grad, JACOBIAN[0])


def test_checkpointing_computes_the_same_gradient(project):
    c = C.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(project, c, use_reentrant=False)[0].backward()
    close(c.grad, JACOBIAN[0])


def test_a_layer_can_be_copied_and_one_of_a_function_pickled(project):
    close(copy.deepcopy(project)(C), PROJECTED)
    with pytest.raises(TypeError, match="a function of a module"):
        pickle.dumps(project)
    of_function = torch.nn.Sequential(
        onestep.torch.layer(projection, axes=(1,), on_error="nan", estimator=onestep.Implicit())
    )
    again = pickle.loads(pickle.dumps(of_function))
    close(again(C), PROJECTED)
    assert repr(again) == repr(of_function)
    assert again[0].on_error == "nan"


def test_a_model_with_a_layer_learns():
    torch.manual_seed(0)
    layer = onestep.torch.layer(projection(), axes=(1,), dtype="input")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), layer)
    inputs = torch.randn(32, 2)
    target = torch.nn.functional.softmax(inputs @ torch.randn(2, 3), dim=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = (model(inputs) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_float32_goes_in_float64_comes_out_and_float32_where_asked(project):
    c = C.float().requires_grad_()
    x = project(c)
    assert x.dtype is DOUBLE
    x[0].backward()
    assert c.grad.dtype is torch.float32
    same = onestep.torch.layer(projection(), axes=(1,), dtype="input")
    assert same(c).dtype is torch.float32
    assert same(c.to(torch.bfloat16)).dtype is torch.bfloat16
    assert onestep.torch.layer(projection(), axes=(1,), dtype=torch.float16)(c).dtype is torch.float16
    assert project(torch.tensor([1, 0, 0])).dtype is DOUBLE


def test_inputs_need_not_be_contiguous_nor_tensors(project):
    rows = torch.randn(3, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    assert torch.equal(project(rows.T), project(rows.T.contiguous()))
    assert torch.equal(project(C.flip(0)), project(C.flip(0).clone()))
    close(project(C.numpy()), PROJECTED)
    close(project(C.numpy()[::-1]), PROJECTED.flip(0))
    close(project([0.9, 0.4, -0.5]), project(C), 0)
    gradient = torch.autograd.functional.vjp(lambda c: project(c.T), rows, rows.T.contiguous().T.T)[1]
    assert gradient.shape == rows.shape


def test_what_cannot_be_solved_is_refused_by_name(project, fit):
    with pytest.raises(onestep.MisuseError, match="to_dense"):
        project(C.to_sparse())
    with pytest.raises(onestep.MisuseError, match="complex128"):
        project(C.to(torch.complex128))
    with pytest.raises(onestep.MisuseError, match="bool"):
        project(C > 0)
    with pytest.raises(onestep.MisuseError, match="axes"):
        onestep.torch.layer(projection())(torch.zeros(2, 2, 3))
    with pytest.raises(onestep.MisuseError, match="2 parameters given"):
        project(C, C)
    with pytest.raises(onestep.MisuseError, match="has 1 axes"):
        project(C[0])
    with pytest.raises(onestep.MisuseError, match="do not fit each other"):
        fit(weights(3, 40), weights(2))
    with pytest.raises(onestep.MisuseError, match="with the parameters"):
        project()
    with pytest.raises(onestep.MisuseError, match="on_error"):
        onestep.torch.layer(projection(), on_error="ignore")
    with pytest.raises(onestep.MisuseError, match="estimator"):
        onestep.torch.layer(projection(), estimator=onestep.Implicit)
    with pytest.raises(onestep.MisuseError, match="A Solver, or a function|a Solver, or a function"):
        onestep.torch.layer(simplex(np.zeros(3)))
    with pytest.raises(onestep.MisuseError, match="floating dtype"):
        onestep.torch.layer(projection(), dtype=torch.int32)
    with pytest.raises(onestep.MisuseError):
        project(torch.zeros(2, 4))


def test_certificates_bound_the_error_of_what_the_backward_pass_returns(logistic):
    solver = onestep.gradient_descent(logistic.objective, tolerance=1e-4)
    layer = onestep.torch.layer(solver, axes=(1,), start=np.zeros(4))
    exact = onestep.torch.layer(onestep.newton(logistic.objective), axes=(1,), start=np.zeros(4))
    w, c = weights(3, 40), weights(4)
    certificates = layer.certificate(w, cotangent=c)
    assert len(certificates) == 3
    for certificate, one in zip(certificates, w):
        error = (torch.func.vjp(layer, one)[1](c)[0] - torch.func.vjp(exact, one)[1](c)[0]).norm()
        assert 1e-9 < error <= certificate.bound < 1e-2
    along = layer.certificate(w[0], tangent=w[0])
    error = torch.func.jvp(layer, (w[0],), (w[0],))[1] - torch.func.jvp(exact, (w[0],), (w[0],))[1]
    assert error.norm() <= along.bound < 1e-2
    with pytest.raises(onestep.MisuseError, match="one of them"):
        layer.certificate(w)
    with pytest.raises(onestep.MisuseError, match="a direction has shape"):
        layer.certificate(w, cotangent=torch.ones(5))
