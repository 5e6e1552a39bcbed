"""onestep.cvxpylayers: layers of CVXPYlayers whose problems are quadratic programs, for JAX."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
cp = pytest.importorskip("cvxpy", reason="CVXPY is not installed: pip install cvxpy")
pytest.importorskip("cvxpylayers", reason="CVXPYlayers is not installed: pip install cvxpylayers")
import jax.numpy as jnp  # noqa: E402
from cvxpylayers.jax import CvxpyLayer  # noqa: E402

import onestep  # noqa: E402
from onestep.cvxpylayers import QPSolver, SolverError  # noqa: E402


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def layer(m=8, n=4, **options):
    A, b, x = cp.Parameter((m, n)), cp.Parameter(m), cp.Variable(n)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b) + cp.sum_squares(x)), [x >= -0.1])
    return CvxpyLayer(problem, parameters=[A, b], variables=[x], solver=QPSolver(**options))


def data(rng, m=8, n=4):
    return jnp.array(rng.normal(size=(m, n))), jnp.array(rng.normal(size=m))


def closed_form(A, b):
    """Where the last two variables are at their bound, as they are with the data above."""
    free, fixed = A[:, :2], jnp.full(2, -0.1)
    x = jnp.linalg.solve(free.T @ free + jnp.eye(2), free.T @ (b - A[:, 2:] @ fixed))
    return jnp.concatenate([x, fixed])


def test_solutions_and_gradients_are_those_of_the_active_set():
    A, b = data(np.random.default_rng(0))
    solve = layer(estimator=onestep.Implicit())
    x = solve(A, b)[0]
    np.testing.assert_allclose(x, closed_form(A, b), rtol=1e-9, atol=1e-10)
    assert x.dtype == jnp.float64
    found = jax.grad(lambda A, b: jnp.sum(solve(A, b)[0] ** 2), argnums=(0, 1))(A, b)
    expected = jax.grad(lambda A, b: jnp.sum(closed_form(A, b) ** 2), argnums=(0, 1))(A, b)
    for g, e in zip(found, expected):
        np.testing.assert_allclose(g, e, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("batched", [False, True])
def test_jit_vmap_and_jacrev_give_the_same_numbers(rng, batched):
    A, b = data(rng)
    bs = jnp.stack([b, 2 * b, -b]) if batched else b
    solve = layer()

    def loss(A, b):
        return jnp.sum(solve(A, b)[0] ** 2)

    plain = jax.grad(loss, argnums=(0, 1))(A, bs)
    for g, e in zip(jax.jit(jax.grad(loss, argnums=(0, 1)))(A, bs), plain):
        np.testing.assert_array_equal(g, e)
    np.testing.assert_array_equal(jax.jit(lambda A, b: solve(A, b)[0])(A, bs), solve(A, bs)[0])
    if batched:
        np.testing.assert_array_equal(jax.vmap(lambda b: solve(A, b)[0])(bs), solve(A, bs)[0])
        each = jax.vmap(jax.grad(loss, argnums=1), (None, 0))(A, bs)
        np.testing.assert_allclose(each, plain[1], rtol=1e-12)
    else:
        J = jax.jacrev(lambda b: solve(A, b)[0])(b)
        np.testing.assert_allclose(J.T @ (2 * solve(A, b)[0]), plain[1], rtol=1e-9, atol=1e-12)


def test_two_calls_before_a_gradient_keep_their_own_solutions(rng):
    A, b = data(rng)
    solve = layer()
    both = jax.grad(lambda b: jnp.sum(solve(A, b)[0]) + jnp.sum(solve(A, -2 * b)[0] ** 2))(b)
    apart = jax.grad(lambda b: jnp.sum(solve(A, b)[0]))(b) + jax.grad(lambda b: jnp.sum(solve(A, -2 * b)[0] ** 2))(b)
    np.testing.assert_allclose(both, apart, rtol=1e-12)


def test_float32_goes_in_and_comes_out(rng):
    jax.config.update("jax_enable_x64", False)
    A, b = data(rng)
    x = layer()(A, b)[0]
    assert x.dtype == jnp.float32
    assert jax.grad(lambda b: jnp.sum(layer()(A, b)[0]))(b).dtype == jnp.float32
    assert jax.jit(lambda b: layer()(A, b)[0])(b).dtype == jnp.float32


def test_a_problem_without_a_solution_is_an_error(rng):
    lower, x = cp.Parameter(), cp.Variable()
    solve = CvxpyLayer(
        cp.Problem(cp.Minimize(cp.square(x)), [x >= lower, x <= 0]),
        parameters=[lower],
        variables=[x],
        solver=QPSolver(),
    )
    with pytest.raises(SolverError, match="No point satisfies"):
        solve(jnp.array(1.0))
    with pytest.raises(Exception, match="No point satisfies"):  # JAX's own, which quotes it
        jax.block_until_ready(jax.jit(lambda p: solve(p)[0])(jnp.array(1.0)))
    with pytest.raises(onestep.MisuseError, match="no option 'eps'"):
        solve(jnp.array(-1.0), solver_args={"eps": 1e-3})
    marked = jax.jit(lambda p: solve(p, solver_args={"on_error": "nan"})[0])(jnp.array([1.0, -1.0]))
    assert jnp.isnan(marked).tolist() == [True, False]


def test_an_unconstrained_problem_and_gradients_by_a_linear_term_alone():
    q, x = cp.Parameter(3), cp.Variable(3)
    solve = CvxpyLayer(
        cp.Problem(cp.Minimize(cp.sum_squares(x) + q @ x)), parameters=[q], variables=[x], solver=QPSolver()
    )
    at = jnp.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(solve(at)[0], -at / 2, rtol=1e-12)
    for jacobian in (jax.jacrev, lambda f: jax.jit(jax.jacrev(f))):
        np.testing.assert_allclose(jacobian(lambda q: solve(q)[0])(at), -np.eye(3) / 2, rtol=1e-12, atol=1e-14)
    linear = CvxpyLayer(
        cp.Problem(cp.Minimize(q @ x), [x >= -1, x <= 1]), parameters=[q], variables=[x], solver=QPSolver()
    )
    np.testing.assert_allclose(linear(at)[0], [-1.0, 1.0, -1.0], atol=1e-9)
    np.testing.assert_allclose(jax.jacrev(lambda q: linear(q)[0])(at), np.zeros((3, 3)), atol=1e-9)
