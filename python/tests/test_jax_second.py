"""onestep.jax: second derivatives of solvers, by every composition of JAX's modes; and solvers inside of solvers."""

from __future__ import annotations

import numpy as np
import pytest

import onestep

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import onestep.jax  # noqa: E402

MODES = ["fwd", "rev"]


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.max(np.abs(b), initial=0))


def test_second_derivatives_pass_jaxs_own_check():
    weight = jnp.array([1.0, 2.0])
    fit = onestep.jax.newton(lambda x, t, s: jnp.sum(weight * jnp.log(jnp.cosh(x - t))) + 0.5 * s * jnp.sum(x**2))
    f = lambda t, s: fit(jnp.zeros(2), t, s)  # noqa: E731
    check_grads(f, (jnp.array([1.0, -0.4]), jnp.array(0.8)), order=2, modes=MODES, rtol=1e-5, atol=1e-5)


def test_hessians_are_those_of_the_closed_form(rng):
    A, b = jnp.asarray(rng.normal(size=(20, 3))), jnp.asarray(rng.normal(size=20))
    fit = onestep.jax.newton(lambda x, l2: jnp.sum((A @ x - b) ** 2) + jnp.sum(l2 * x**2))
    ours = lambda l2: jnp.sum(fit(jnp.zeros(3), l2) ** 2)  # noqa: E731
    exact = lambda l2: jnp.sum(jnp.linalg.solve(A.T @ A + jnp.diag(l2), A.T @ b) ** 2)  # noqa: E731
    l2 = jnp.array([0.3, 0.7, 1.1])
    expected = jax.hessian(exact)(l2)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            close(outer(inner(ours))(l2), expected, 1e-9)
    close(jax.jit(jax.hessian(ours))(l2), expected, 1e-9)
    many = jnp.stack([l2, 2 * l2])
    close(jax.jit(jax.vmap(jax.hessian(ours)))(many), jnp.stack([jax.hessian(exact)(l) for l in many]), 1e-9)
    # Of a sum over a batch by what its problems share.
    total = lambda f: lambda l2: jnp.sum(jax.vmap(f)(jnp.array([1.0, 2.0])[:, None] * l2))  # noqa: E731
    close(jax.hessian(total(ours))(l2), jax.hessian(total(exact))(l2), 1e-9)


def test_second_derivatives_of_a_program_with_several_parts():
    c = jnp.array([0.9, 0.4, -0.5])
    program = onestep.jax.quadratic_program(
        lambda c: {"Q": jnp.diag(1.0 + c**2), "q": -c, "A": jnp.ones((1, 3)), "b": jnp.ones(1)}
    )

    def exact(c):
        d = 1.0 + c**2
        y = (jnp.sum(c / d) - 1.0) / jnp.sum(1 / d)
        return jnp.sum(((c - y) / d) ** 3) + y**2

    ours = lambda c: jnp.sum(program.solve(c).state[0] ** 3) + jnp.sum(program.solve(c).state[1] ** 2)  # noqa: E731
    close(jax.grad(ours)(c), jax.grad(exact)(c), 1e-8)
    close(jax.hessian(ours)(c), jax.hessian(exact)(c), 1e-7)


def test_a_solver_inside_of_another_one_is_differentiated_through(rng):
    """The outer one needs second derivatives of the inner one, which by default are right."""
    A, b, c = jnp.asarray(rng.normal(size=(20, 3))), jnp.asarray(rng.normal(size=20)), jnp.asarray(rng.normal(size=3))
    inner = onestep.jax.newton(lambda x, l2: jnp.sum((A @ x - b) ** 2) + jnp.sum(jnp.exp(l2) * x**2))
    outer = onestep.jax.newton(lambda l2, c: jnp.sum((inner(jnp.zeros(3), l2) - c) ** 2) + 0.3 * jnp.sum(l2**2))
    exact = lambda l2: jnp.linalg.solve(A.T @ A + jnp.diag(jnp.exp(l2)), A.T @ b)  # noqa: E731
    loss = lambda l2, c: jnp.sum((exact(l2) - c) ** 2) + 0.3 * jnp.sum(l2**2)  # noqa: E731
    l2 = jax.jit(outer)(jnp.zeros(3), c)
    assert np.max(np.abs(jax.grad(loss)(l2, c))) < 1e-9
    H, B = jax.hessian(loss)(l2, c), jax.jacfwd(jax.grad(loss), 1)(l2, c)
    close(jax.jit(jax.jacrev(lambda c: outer(jnp.zeros(3), c)))(c), -jnp.linalg.solve(H, B), 1e-7)


def test_the_status_of_a_solver_inside_of_another_one_is_not_a_number():
    inner = onestep.jax.newton(lambda x, t: jnp.sum((x - t) ** 2))
    with pytest.raises(onestep.TracingError, match="whole numbers"):
        onestep.jax.newton(lambda x: jnp.where(inner.solve(jnp.zeros(2), x).status == 0, 1.0, 2.0) * jnp.sum(x**2))(
            jnp.ones(2)
        )


def test_third_derivatives_are_refused():
    fit = onestep.jax.newton(lambda x, t: jnp.sum(jnp.cosh(x - t)) + jnp.sum(x**2))
    with pytest.raises(onestep.MisuseError, match="a third one was asked for"):
        jax.grad(jax.grad(jax.grad(lambda t: fit(jnp.zeros(1), t)[0])))(1.0)


def test_second_derivatives_that_a_method_has_not_are_refused():
    slow = onestep.jax.fixed_point(lambda x, t: 0.5 * (x + t * jnp.cos(x)), estimator=onestep.Implicit())
    with pytest.raises(onestep.MisuseError, match="no second derivative"):
        jax.hessian(lambda t: slow(jnp.array(0.5), t))(jnp.array(0.7))


def test_a_dozen_parameters_and_more_have_second_derivatives_and_may_be_nested():
    fit = onestep.jax.newton(lambda x, t: sum(jnp.sum((x - v) ** 2) for v in t) + jnp.sum(x**4))
    t = [jnp.full(1, i / 10) for i in range(13)]
    # As a function of their sum s: 26 x + 4 x^3 = 2 s.
    x = fit(jnp.zeros(1), t)[0]
    slope = 2 / (26 + 12 * x**2)
    curve = -24 * x * slope**2 / (26 + 12 * x**2)
    of_first = lambda v: fit(jnp.zeros(1), [v, *t[1:]])[0]  # noqa: E731
    close(jax.grad(of_first)(t[0])[0], slope)
    close(jax.hessian(of_first)(t[0])[0, 0], curve)
    outer = onestep.jax.newton(lambda z, t: jnp.sum((z - fit(jnp.zeros(1), t)) ** 2))
    close(outer(jnp.zeros(1), t)[0], x)


def test_a_batch_of_no_problems_has_derivatives():
    fit = onestep.jax.newton(lambda x, a, p: jnp.sum((x - a) ** 2) + p * jnp.sum(x**4))
    x = lambda a, p: fit(jnp.zeros(3), a, p)  # noqa: E731
    loss = lambda a, p: jnp.sum(x(a, p) ** 2)  # noqa: E731
    a, p, c = jnp.zeros((0, 3)), jnp.array(0.1), jnp.zeros((0, 3))
    of_a, of_p = jax.vmap(jax.grad(loss, (0, 1)), (0, None))(a, p)
    assert of_a.shape == (0, 3) and of_p.shape == (0,)
    assert jax.vmap(jax.jacfwd(x), (0, None))(a, p).shape == (0, 3, 3)
    assert jax.vmap(jax.hessian(loss), (0, None))(a, p).shape == (0, 3, 3)
    two_levels = jax.jit(jax.vmap(jax.vmap(jax.hessian(loss), (0, None)), (None, 0)))
    assert two_levels(jnp.zeros((2, 3)), jnp.zeros(0)).shape == (0, 2, 3, 3)
    pull = jax.vjp(lambda a: x(a, p), jnp.ones(3))[1]
    assert jax.vmap(pull)(c)[0].shape == (0, 3)
    assert jax.vmap(lambda v: jax.jvp(lambda a: x(a, p), (jnp.ones(3),), (v,))[1])(c).shape == (0, 3)
