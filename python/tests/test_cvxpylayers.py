"""onestep.cvxpylayers: layers of CVXPYlayers whose problems are quadratic programs, for PyTorch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import onestep

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
cp = pytest.importorskip("cvxpy", reason="CVXPY is not installed: pip install cvxpy")
pytest.importorskip("cvxpylayers", reason="CVXPYlayers is not installed: pip install cvxpylayers")
from cvxpylayers.torch import CvxpyLayer  # noqa: E402

from onestep.cvxpylayers import QPSolver, SolverError  # noqa: E402

DOUBLE = torch.float64


def layer_of(problem, parameters, variables, **options):
    return CvxpyLayer(problem, parameters=parameters, variables=variables, solver=QPSolver(**options))


def draw(*shape, seed=5):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def least_squares(m=30, n=6, **options):
    A, b, x = cp.Parameter((m, n)), cp.Parameter(m), cp.Variable(n)
    return layer_of(cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b) + cp.sum_squares(x))), [A, b], [x], **options)


def solved_least_squares(A, b):
    return torch.linalg.solve(A.T @ A + torch.eye(A.shape[1], dtype=DOUBLE), A.T @ b)


def program(n=4, equalities=1, rows=3, **options):
    """All data of a quadratic program are parameters; its multipliers are among what is returned."""
    P, q = cp.Parameter((n, n), PSD=True), cp.Parameter(n)
    A, b, G, h = cp.Parameter((equalities, n)), cp.Parameter(equalities), cp.Parameter((rows, n)), cp.Parameter(rows)
    x = cp.Variable(n)
    equal, less = A @ x == b, G @ x <= h
    problem = cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, P) + q @ x), [equal, less])
    variables = [x, equal.dual_variables[0], less.dual_variables[0]]
    return layer_of(problem, [P, q, A, b, G, h], variables, **options)


def program_data(n=4, equalities=1, rows=3, seed=1):
    L, q, A, G, x = (draw(*s, seed=seed + i) for i, s in enumerate([(n, n), (n,), (equalities, n), (rows, n), (n,)]))
    L, A, G, x = (t.detach() for t in (L, A, G, x))
    data = [L @ L.T + torch.eye(n, dtype=DOUBLE), 3 * q.detach(), A, A @ x, G, G @ x + 0.1]
    return [t.clone().requires_grad_() for t in data]


def test_least_squares_and_its_gradients_are_those_of_the_normal_equations():
    A, b = draw(30, 6), draw(30, seed=6)
    (x,) = least_squares()(A, b)
    expected = solved_least_squares(A, b)
    torch.testing.assert_close(x, expected, rtol=1e-11, atol=1e-12)
    found = torch.autograd.grad(x.square().sum(), [A, b])
    for g, e in zip(found, torch.autograd.grad(expected.square().sum(), [A, b])):
        torch.testing.assert_close(g, e, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("estimator", [None, onestep.Implicit(), onestep.Auto(1e-9)], ids=repr)
def test_gradients_by_all_data_of_a_program_are_right_for_x_and_the_multipliers(estimator):
    layer = program(estimator=estimator, tolerance=1e-12)
    data = program_data()
    _, y, z = layer(*data)
    assert (z > 1e-3).any() and (z < 1e-6).any()

    def symmetric(P, *rest):
        return layer((P + P.T) / 2, *rest)

    # Auto knows more of a solution when it is asked again.
    assert torch.autograd.gradcheck(symmetric, tuple(data), atol=1e-6, rtol=1e-4, nondet_tol=1e-8)


def test_x_and_multipliers_are_those_that_the_library_finds_for_the_program():
    data = program_data()
    x, y, z = (t.detach().numpy() for t in program()(*data))
    P, q, A, b, G, h = (t.detach().numpy() for t in data)
    s = onestep.solve_qp(Q=P, q=q, A=A, b=b, G=G, u=h)
    for found, expected in ((x, s.x), (y, s.y), (z, s.z)):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert np.abs(P @ x + q + A.T @ y + G.T @ z).max() < 1e-9 and z.min() >= 0


def test_a_batch_is_its_problems_one_by_one_and_shared_parameters_get_the_sum():
    layer = program()
    P, q, A, b, G, h = program_data()
    qs = torch.stack([q, 0.5 * q, -q]).detach().requires_grad_()
    x, y, z = layer(P, qs, A, b, G, h)
    assert (x.shape, y.shape, z.shape) == ((3, 4), (3, 1), (3, 3))
    together = torch.autograd.grad(x.square().sum() + y.sum() + z.sum(), [P, qs, A, b, G, h])
    sums = [torch.zeros_like(t) for t in (P, A, b, G, h)]
    for i in range(3):
        one = qs[i].detach().requires_grad_()
        x1, y1, z1 = layer(P, one, A, b, G, h)
        torch.testing.assert_close(x[i], x1, rtol=0, atol=0)
        gP, gq, *rest = torch.autograd.grad(x1.square().sum() + y1.sum() + z1.sum(), [P, one, A, b, G, h])
        torch.testing.assert_close(together[1][i], gq, rtol=1e-12, atol=1e-13)
        sums = [s + g for s, g in zip(sums, [gP, *rest])]
    for found, expected in zip([together[0], *together[2:]], sums):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11)


def test_a_batch_of_one_stays_a_batch():
    b, x = cp.Parameter(3), cp.Variable(3)
    layer = layer_of(cp.Problem(cp.Minimize(cp.sum_squares(x - b))), [b], [x])
    many = draw(1, 3)
    (found,) = layer(many)
    assert found.shape == (1, 3)
    (gradient,) = torch.autograd.grad(found.sum(), many)
    torch.testing.assert_close(gradient, torch.ones(1, 3, dtype=DOUBLE))


def test_a_linear_program_has_the_derivatives_of_its_vertex():
    c, b, x = cp.Parameter(2), cp.Parameter(), cp.Variable(2)
    budget = cp.sum(x) == b
    layer = layer_of(cp.Problem(cp.Minimize(c @ x), [budget, x >= 0]), [c, b], [x, budget.dual_variables[0]])
    of_c, of_b = (
        torch.tensor([1.0, 2.0], dtype=DOUBLE).requires_grad_(),
        torch.tensor(1.0, dtype=DOUBLE).requires_grad_(),
    )
    vertex, price = layer(of_c, of_b)
    torch.testing.assert_close(vertex, torch.tensor([1.0, 0.0], dtype=DOUBLE), rtol=0, atol=1e-9)
    torch.testing.assert_close(price, torch.tensor(-1.0, dtype=DOUBLE), rtol=0, atol=1e-9)  # as CVXPY's, of sum(x) - b
    torch.testing.assert_close(
        torch.autograd.grad(vertex[0], of_b, retain_graph=True)[0], torch.tensor(1.0, dtype=DOUBLE)
    )
    moved = torch.autograd.grad(price, of_c)[0]
    torch.testing.assert_close(moved, torch.tensor([-1.0, 0.0], dtype=DOUBLE), rtol=0, atol=1e-7)


def test_multipliers_are_those_of_cvxpy():
    data = program_data()
    P, q, A, b, G, h = (cp.Parameter(s, PSD=True) if s == (4, 4) else cp.Parameter(s) for s in (t.shape for t in data))
    x = cp.Variable(4)
    equal, less, below = A @ x == b, G @ x <= h, x >= -0.55
    problem = cp.Problem(cp.Maximize(-0.5 * cp.quad_form(x, P) - q @ x), [below, equal, less])
    duals = [c.dual_variables[0] for c in (equal, less, below)]
    found = layer_of(problem, [P, q, A, b, G, h], [x, *duals])(*data)
    for parameter, value in zip((P, q, A, b, G, h), data):
        parameter.value = value.detach().numpy()
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    for ours, theirs in zip(found, (x.value, equal.dual_value, less.dual_value, below.dual_value)):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-6, atol=1e-7)


def quad_form(make, kind, count=1, maximise=False):
    n = 3
    parameters = [cp.Parameter((n, n), **{kind: True}) for _ in range(count)]
    q, x = cp.Parameter(n), cp.Variable(n)
    objective = 0.5 * make(x, *parameters) + q @ x
    return layer_of(
        cp.Problem(cp.Maximize(objective) if maximise else cp.Minimize(objective), [x >= -1, x <= 1]),
        [*parameters, q],
        [x],
    )


@pytest.mark.parametrize(
    ("make", "kind", "scales", "maximise"),
    [
        (cp.quad_form, "PSD", [2.0], False),
        (lambda x, P, Q: cp.quad_form(x, P + Q), "PSD", [2.0, 3.0], False),
        (lambda x, P, Q: cp.quad_form(x, P) + cp.quad_form(x, Q), "PSD", [2.0, 3.0], False),
        (lambda x, P: cp.quad_form(x, -P), "NSD", [-2.0], False),
        (cp.quad_form, "NSD", [-2.0], True),
    ],
    ids=["P", "P + Q", "two forms", "-P", "maximised"],
)
def test_parameters_in_a_quadratic_form_have_gradients(make, kind, scales, maximise):
    layer = quad_form(make, kind, len(scales), maximise)
    q = torch.tensor([3.0, -0.5, 0.25], dtype=DOUBLE).requires_grad_()
    forms = [(s * torch.eye(3, dtype=DOUBLE)).requires_grad_() for s in scales]
    (x,) = layer(*forms, q)
    sign = 1.0 if maximise else -1.0
    torch.testing.assert_close(x, (sign * q / abs(sum(scales))).clamp(-1, 1), rtol=0, atol=1e-9)

    def symmetric(*data):
        return layer(*((P + P.T) / 2 for P in data[:-1]), data[-1])[0]

    assert torch.autograd.gradcheck(symmetric, (*forms, q), atol=1e-6)


def test_what_a_layer_closes_over_is_no_parameter_and_is_right():
    n = 3
    rng = np.random.default_rng(0)
    L = rng.normal(size=(n, n))
    q, x = cp.Parameter(n), cp.Variable(n, bounds=[-0.2, None])
    layer = layer_of(cp.Problem(cp.Minimize(cp.quad_form(x, L @ L.T + np.eye(n)) + q @ x), [cp.sum(x) <= 1]), [q], [x])
    assert layer.ctx.solver_ctx.canonical.parameters == ("q",)
    assert torch.autograd.gradcheck(layer, (draw(2, n),), atol=1e-6)


def test_an_unconstrained_problem_and_one_of_a_single_variable_are_solved():
    b, x = cp.Parameter(), cp.Variable()
    layer = layer_of(cp.Problem(cp.Minimize(cp.square(x - b) + 3 * x)), [b], [x])
    at = torch.tensor(2.0, dtype=DOUBLE).requires_grad_()
    (found,) = layer(at)
    assert found.item() == pytest.approx(0.5, rel=1e-12)
    assert torch.autograd.grad(found, at)[0].item() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_the_units_of_the_objective_change_nothing(scale):
    layer = program()
    P, q, *rest = program_data()
    reference = torch.autograd.grad(layer(P, q, *rest)[0].square().sum(), [q, *rest])
    scaled = q.detach() * scale
    scaled.requires_grad_()
    x, *_ = layer(P.detach() * scale, scaled, *rest)
    found = torch.autograd.grad(x.square().sum(), [scaled, *rest])
    torch.testing.assert_close(found[0] * scale, reference[0], rtol=1e-6, atol=1e-8)
    for g, e in zip(found[1:], reference[1:]):
        torch.testing.assert_close(g, e, rtol=1e-6, atol=1e-8)


def test_two_forwards_before_a_backward_and_layers_that_share_a_solver_are_right():
    solver = QPSolver()
    layers = []
    for n in (2, 3):
        b, x = cp.Parameter(n), cp.Variable(n)
        layers.append(CvxpyLayer(cp.Problem(cp.Minimize(cp.sum_squares(x - n * b)), [x >= 0]), [b], [x], solver=solver))
    two, three = torch.ones(2, dtype=DOUBLE).requires_grad_(), torch.ones(3, dtype=DOUBLE).requires_grad_()
    (x2,), (x3,), (again,) = layers[0](two), layers[1](three), layers[0](-two)
    torch.testing.assert_close(torch.autograd.grad(x2.sum(), two)[0], torch.full((2,), 2.0, dtype=DOUBLE))
    torch.testing.assert_close(torch.autograd.grad(x3.sum(), three)[0], torch.full((3,), 3.0, dtype=DOUBLE))
    torch.testing.assert_close(again, torch.zeros(2, dtype=DOUBLE), rtol=0, atol=1e-8)


def test_without_gradients_nothing_is_kept_for_them():
    layer = least_squares()
    with torch.no_grad():
        (x,) = layer(draw(30, 6), draw(30))
    assert not x.requires_grad
    assert not layer(draw(30, 6).detach(), draw(30).detach())[0].requires_grad


def test_float32_parameters_are_solved_in_double_precision():
    A, b = draw(30, 6).detach().float().requires_grad_(), draw(30, seed=6).detach().float()
    (x,) = least_squares()(A, b)
    expected = solved_least_squares(A.double(), b.double())
    torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=1e-7)
    assert torch.autograd.grad(x.sum(), A)[0].dtype is torch.float32


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("second-order cones", lambda x, p: ([cp.norm(x) <= 1], p @ x)),
        ("exponential cones", lambda x, p: ([], p @ x - cp.sum(cp.entr(x)))),
        ("power cones", lambda x, p: ([cp.PowCone3D(x[0], x[1], x[2], 0.5), x <= 2], p @ x)),
        ("positive semidefinite", lambda x, p: ([cp.diag(x) >> np.eye(3)], p @ x + cp.sum(x))),
    ],
)
def test_cones_that_are_not_linear_are_refused_by_name_when_the_layer_is_made(name, make):
    x, p = cp.Variable(3), cp.Parameter(3)
    constraints, objective = make(x, p)
    with pytest.raises(onestep.MisuseError, match=name):
        layer_of(cp.Problem(cp.Minimize(objective), constraints), [p], [x])


def test_a_geometric_program_is_refused():
    x, a = cp.Variable(pos=True), cp.Parameter(pos=True)
    problem = cp.Problem(cp.Minimize(x + a / x))
    with pytest.raises(onestep.MisuseError, match="exponential cones"):
        CvxpyLayer(problem, parameters=[a], variables=[x], gp=True, solver=QPSolver())


def bounded_by(**options):
    lower, upper, x = cp.Parameter(), cp.Parameter(), cp.Variable()
    return layer_of(cp.Problem(cp.Minimize(cp.square(x)), [x >= lower, x <= upper]), [lower, upper], [x], **options)


def test_a_problem_without_a_solution_raises_and_says_which_of_a_batch_it_is():
    lower = torch.tensor([1.0, 1.0, 1.0], dtype=DOUBLE)
    upper = torch.tensor([2.0, 0.0, 3.0], dtype=DOUBLE)
    with pytest.raises(SolverError, match="1 of 3 problems .* number 1: No point satisfies") as caught:
        bounded_by()(lower, upper)
    assert caught.value.status is onestep.Status.infeasible
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, onestep.NotConvergedError)
    b, x = cp.Parameter(), cp.Variable()
    unbounded = layer_of(cp.Problem(cp.Minimize(x), [x <= b]), [b], [x])
    with pytest.raises(SolverError, match="decreases without limit"):
        unbounded(torch.tensor(1.0, dtype=DOUBLE))


def test_on_error_nan_marks_the_problem_that_failed_and_leaves_the_others_their_gradients():
    lower = torch.tensor([1.0, 1.0, 1.0], dtype=DOUBLE).requires_grad_()
    upper = torch.tensor([2.0, 0.0, 3.0], dtype=DOUBLE)
    (x,) = bounded_by(on_error="nan")(lower, upper)
    assert x.isnan().tolist() == [False, True, False]
    (gradient,) = torch.autograd.grad(torch.nan_to_num(x).sum(), lower, retain_graph=True)
    torch.testing.assert_close(gradient, torch.tensor([1.0, 0.0, 1.0], dtype=DOUBLE), rtol=0, atol=1e-8)
    (gradient,) = torch.autograd.grad(x.sum(), lower)
    assert gradient.isnan().tolist() == [False, True, False]
    (kept,) = bounded_by(on_error="keep", max_iterations=3)(lower, torch.tensor([2.0, 2.0, 2.0], dtype=DOUBLE))
    assert kept.isfinite().all() and torch.autograd.grad(kept.sum(), lower)[0].isfinite().all()


def test_where_there_is_no_derivative_the_solution_is_returned_and_the_backward_pass_refuses():
    c, x = cp.Parameter(2), cp.Variable(2)
    problem = cp.Problem(cp.Minimize(c @ x), [x >= 0, x <= 1])
    flat = torch.tensor([0.0, 1.0], dtype=DOUBLE).requires_grad_()  # the first variable may have any value
    (found,) = layer_of(problem, [c], [x])(flat)
    assert 0 <= found[0] <= 1 and abs(found[1]) < 1e-8
    with pytest.raises(onestep.NoDerivativeError):
        found.sum().backward()
    (found,) = layer_of(problem, [c], [x], on_error="nan")(torch.stack([flat, torch.ones_like(flat)]))
    (gradient,) = torch.autograd.grad(found.sum(), flat)
    assert gradient.isnan().all()


def test_a_solution_whose_steps_stay_long_is_returned_and_has_no_derivative(monkeypatch):
    """As that of QADLITTL to 1e-6: the solver that can be differentiated stops short, though there is a solution."""
    lower, upper = torch.tensor([1.0, 2.0], dtype=DOUBLE).requires_grad_(), torch.tensor([2.0, 3.0], dtype=DOUBLE)
    layer, many = bounded_by(), bounded_by(on_error="nan")

    def stopped_short(solved):
        return [onestep.Status.line_search_failed, *([onestep.Status.converged] * (solved.count - 1))]

    monkeypatch.setattr("onestep.cvxpylayers._programs.Solved.statuses", stopped_short)
    for one, at in ((layer, slice(0, 1)), (layer, slice(0, 2)), (many, slice(0, 2))):
        (x,) = one(lower[at], upper[at])
        torch.testing.assert_close(x.detach(), lower[at].detach(), rtol=0, atol=1e-6)
        if one is layer:
            with pytest.raises(onestep.NoDerivativeError, match="problem 0"):
                x.sum().backward()


def test_not_a_number_is_no_solution():
    with pytest.raises(SolverError, match="NaN or an infinity"):
        least_squares()(draw(30, 6), torch.full((30,), torch.nan, dtype=DOUBLE))


def test_options_reach_the_solver_and_wrong_ones_are_refused():
    layer, A, b = bounded_by(), torch.tensor(1.0, dtype=DOUBLE), torch.tensor(2.0, dtype=DOUBLE)
    with pytest.raises(SolverError, match="iterations allowed"):
        layer(A, b, solver_args={"max_iterations": 1})
    (x,) = layer(A, b, solver_args={"max_iterations": 1, "on_error": "keep"})
    assert x.isfinite()
    with pytest.raises(onestep.MisuseError, match="no option 'eps'"):
        layer(A, b, solver_args={"eps": 1e-3})
    with pytest.raises(onestep.MisuseError, match="no option 'tol'"):
        QPSolver(tol=1e-3)
    with pytest.raises(onestep.MisuseError, match="on_error"):
        QPSolver(on_error="ignore")
    with pytest.raises(onestep.MisuseError, match="estimator"):
        QPSolver(estimator="implicit")
    with pytest.raises(onestep.MisuseError, match="dense_limit"):
        least_squares(dense_limit=100)
    assert repr(QPSolver()) == "QPSolver()"
    assert repr(QPSolver(on_error="nan", tolerance=1e-6)) == "QPSolver(tolerance=1e-06, on_error='nan')"
    with pytest.raises(onestep.MisuseError, match="CvxpyLayer"):
        QPSolver().solve_numpy_batch(None, np.zeros((1, 2)), np.zeros((1, 1)), {}, {}, False)


def test_values_of_numpy_are_solved_one_by_one_and_in_batches():
    layer = least_squares(8, 2)
    solver, context = layer.ctx.solver, layer.ctx
    A, b = draw(8, 2), draw(8, seed=6)
    stacked = np.append(np.concatenate([A.detach().numpy().ravel(order="F"), b.detach().numpy()]), 1.0)
    q, M = context.q @ stacked, context.reduced_A.reduced_mat @ stacked
    P = context.reduced_P.reduced_mat @ stacked
    primal, dual, state = solver.solve_numpy(P, q, M, context.cone_dims, {}, True)
    dP, dq, dA = solver.derivative_numpy(np.ones_like(primal), np.zeros_like(dual), state)
    assert (dP.shape, dq.shape, dA.shape) == (P.shape, q.shape, M.shape)
    two = [np.stack([v, v]) for v in (P, q, M)]
    primals, duals, states = solver.solve_numpy_batch(*two, context.cone_dims, {}, True)
    np.testing.assert_array_equal(primals, [primal, primal])
    _, _, dAs = solver.derivative_numpy_batch(np.ones_like(primals), np.zeros_like(duals), states)
    np.testing.assert_allclose(dAs, [dA, dA], rtol=1e-12)
    with pytest.raises(onestep.MisuseError, match="needs_grad"):
        solver.derivative_numpy(primal, dual, solver.solve_numpy(P, q, M, context.cone_dims, {}, False)[2])


def test_without_cvxpylayers_the_import_says_what_to_install():
    for missing, said in (
        ("cvxpylayers", "needs CVXPYlayers: pip install"),
        ("cvxpylayers.interfaces.base", "1.2 or later"),
    ):
        code = f"import sys; sys.modules['{missing}'] = None; import onestep.cvxpylayers"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ended.returncode == 1 and "ImportError: onestep.cvxpylayers" in ended.stderr and said in ended.stderr
