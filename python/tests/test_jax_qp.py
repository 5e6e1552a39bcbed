"""onestep.jax.QP, layers of solvers whose functions are NumPy, and JAX functions as foreign steps."""

from __future__ import annotations

import numpy as np
import pytest

import onestep

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import onestep.jax  # noqa: E402


@pytest.fixture
def data(rng):
    n, m, p = 6, 2, 4
    M = rng.normal(size=(n, n))
    A, G = rng.normal(size=(m, n)), rng.normal(size=(p, n))
    parts = {"Q": M @ M.T + np.eye(n), "q": rng.normal(size=n), "A": A, "b": A @ rng.normal(size=n), "G": G}
    parts["u"] = np.abs(rng.normal(size=p)) + 0.3
    return {name: jnp.asarray(part) for name, part in parts.items()}


def test_a_program_is_that_of_solve_qp(data):
    qp = onestep.jax.QP()
    s = onestep.solve_qp(**{name: np.asarray(part) for name, part in data.items()})
    solved = jax.jit(lambda d: qp.solve(**d))(data)
    np.testing.assert_allclose(solved.x, s.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(solved.state[1], s.y, rtol=1e-9, atol=1e-9)
    gradients = jax.jit(jax.grad(lambda d: jnp.sum(qp(**d) ** 2)))(data)
    expected = s.vjp(2 * s.x)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-7, atol=1e-8)


def test_gradients_of_a_program_pass_jaxs_own_check(data):
    qp = onestep.jax.QP(tolerance=1e-12)
    f = lambda d: qp(**d | {"Q": 0.5 * (d["Q"] + d["Q"].T)})  # noqa: E731
    check_grads(f, (data,), order=1, modes=["fwd", "rev"], rtol=1e-4, atol=1e-4)


def test_batches_have_the_bits_of_one_by_one_and_shared_data_the_sum(data, rng):
    qp = onestep.jax.QP()
    q = jnp.asarray(rng.normal(size=(5, 6)))
    loss = lambda d: jnp.sum(qp(**d) ** 2)  # noqa: E731
    each = [jax.grad(loss)(data | {"q": one}) for one in q]
    x = jax.jit(lambda q: qp(**data | {"q": q}))(q)
    assert np.array_equal(x, jnp.stack([qp(**data | {"q": one}) for one in q]))
    found = jax.jit(jax.grad(loss))(data | {"q": q})
    assert np.array_equal(found["q"], jnp.stack([g["q"] for g in each]))
    for name in ("Q", "A", "b", "G", "u"):
        np.testing.assert_allclose(found[name], sum(g[name] for g in each), rtol=1e-11, atol=1e-12)
    by_vmap = jax.vmap(lambda q: jax.grad(loss)(data | {"q": q}))(q)
    for name in data:
        assert np.array_equal(by_vmap[name], jnp.stack([g[name] for g in each]))


def test_batches_are_broadcast_against_each_other(data, rng):
    qp = onestep.jax.QP()
    q, u = jnp.asarray(rng.normal(size=(3, 1, 6))), data["u"] + jnp.asarray(rng.uniform(0, 1, (2, 4)))
    solved = qp.solve(**data | {"q": q, "u": u})
    assert solved.x.shape == (3, 2, 6) and solved.status.shape == (3, 2)
    assert np.array_equal(solved.x[2, 1], qp(**data | {"q": q[2, 0], "u": u[1]}))
    with pytest.raises(onestep.MisuseError, match="batches do not fit"):
        qp(**data | {"q": jnp.zeros((3, 6)), "u": jnp.ones((2, 4))})


def test_parts_that_are_left_out_and_numbers_for_vectors():
    qp = onestep.jax.QP()
    c = jnp.array([2.0, 0.5, -1.0])
    np.testing.assert_allclose(qp(Q=jnp.eye(3), q=-c, lo=0.0, hi=1.0), [1.0, 0.5, 0.0], atol=1e-9)
    np.testing.assert_allclose(jax.grad(lambda hi: qp(Q=jnp.eye(3), q=-c, lo=0.0, hi=hi)[0])(1.0), 1.0, atol=1e-9)
    np.testing.assert_allclose(qp(Q=jnp.eye(3), q=-c), c, atol=1e-9)


def test_misuse_is_said_by_name(data):
    qp = onestep.jax.QP()
    cases = [
        ("A and b belong together", lambda: qp(Q=data["Q"], q=data["q"], A=data["A"])),
        ("G and l or u belong together", lambda: qp(Q=data["Q"], q=data["q"], u=data["u"])),
        ("at least Q or q", lambda: qp()),
        (r"Q has shape \(6, 6\)", lambda: qp(Q=data["Q"], q=jnp.ones(5), lo=jnp.zeros(6))),
        ("a matrix is needed", lambda: qp(q=data["q"], A=jnp.ones(6), b=1.0)),
        ("q is an array of float32", lambda: qp(q=data["q"].astype(jnp.float32))),
    ]
    for message, call in cases:
        with pytest.raises(onestep.MisuseError, match=message):
            call()


def test_programs_without_a_solution_are_what_on_error_says(data):
    impossible = data | {"A": jnp.zeros((2, 6)), "b": jnp.ones(2)}
    with pytest.raises(onestep.NotConvergedError, match=r"\[QP\]"):
        onestep.jax.QP()(**impossible)
    solved = jax.jit(lambda d: onestep.jax.QP(on_error="nan").solve(**d))(impossible)
    assert np.isnan(solved.x).all() and onestep.Status(int(solved.status)) is onestep.Status.infeasible


def test_a_certificate_is_of_one_program(data):
    qp = onestep.jax.QP()
    assert qp.certificate(**data, cotangent=jnp.ones(6)).bound < 1e-6
    with pytest.raises(onestep.MisuseError, match="a batch of shape"):
        qp.certificate(**data | {"q": jnp.zeros((2, 6))}, cotangent=jnp.ones(6))


def test_second_derivatives_of_programs_without_inequalities(data):
    parts = {name: data[name] for name in ("Q", "q", "A", "b")}

    def exact(d):
        K = jnp.block([[d["Q"], d["A"].T], [d["A"], jnp.zeros((2, 2))]])
        return jnp.sum(jnp.linalg.solve(K, jnp.concatenate([-d["q"], d["b"]]))[:6] ** 3)

    ours = lambda q: jnp.sum(onestep.jax.QP()(**parts | {"q": q}) ** 3)  # noqa: E731
    np.testing.assert_allclose(
        jax.hessian(ours)(parts["q"]), jax.hessian(lambda q: exact(parts | {"q": q}))(parts["q"]), rtol=1e-7, atol=1e-8
    )


# ---- layers ----


def simplex(c):
    return {"Q": onestep.eye(3), "q": -c, "A": np.ones((1, 3)), "b": np.ones(1), "lo": 0.0}


def test_a_layer_takes_a_solver_whose_function_is_numpy(rng):
    project = onestep.jax.layer(onestep.quadratic_program(simplex), axes=(1,))
    c = jnp.asarray(rng.normal(size=(2, 5, 3)))
    traced = onestep.jax.quadratic_program(
        lambda c: {"Q": jnp.eye(3), "q": -c, "A": jnp.ones((1, 3)), "b": jnp.ones(1), "lo": 0.0}
    )
    expected = jax.vmap(jax.vmap(traced))(c)
    np.testing.assert_allclose(jax.jit(project)(c), expected, rtol=1e-12, atol=1e-12)
    g = jax.jit(jax.grad(lambda c: jnp.sum(project(c) ** 2)))(c)
    np.testing.assert_allclose(g, jax.grad(lambda c: jnp.sum(jax.vmap(jax.vmap(traced))(c) ** 2))(c), atol=1e-10)
    one = onestep.jax.layer(lambda: onestep.quadratic_program(simplex))
    assert np.array_equal(jax.vmap(jax.vmap(one))(c), project(c))


def test_a_layer_starts_where_it_is_told_to():
    root = onestep.newton_root(lambda x, r: x**2 - r)
    for start, sign in ((1.0, 1.0), (-1.0, -1.0)):
        layer = onestep.jax.layer(root, start=start)
        np.testing.assert_allclose(jax.jit(layer)(4.0), 2.0 * sign)
        np.testing.assert_allclose(jax.jit(jax.grad(layer))(4.0), 0.25 * sign)
        np.testing.assert_allclose(jax.jit(jax.hessian(layer))(4.0), -sign / 32)


def test_what_the_function_of_a_layer_closes_over_is_read_once_for_all_that_is_traced_with_it():
    shift = np.zeros(2)
    nearest = onestep.newton(lambda x, t: np.sum(np.cosh(x - t - shift)) + np.sum(x**2))
    layer = onestep.jax.layer(nearest, start=np.zeros(2))
    t = jnp.array([1.0, -0.5])
    many = jnp.stack([t, 2 * t])
    before = layer(t), jax.hessian(lambda t: jnp.sum(layer(t)))(t), jax.vmap(jax.jacrev(layer))(many)
    compiled = jax.jit(layer)
    compiled(t)
    x, pull = jax.vjp(layer, t)
    second = jax.jit(jax.grad(lambda t, c: jnp.vdot(c, jax.grad(lambda t: jnp.sum(layer(t)))(t))))
    second(t, jnp.ones(2))
    shift[:] = 3.0
    assert np.array_equal(compiled(t), before[0])
    # Directions under vmap, and the layout of a batch, are made after the change.
    assert np.array_equal(jax.vmap(lambda c: pull(c)[0])(jnp.eye(2)), jax.vmap(jax.jacrev(lambda t: x))(many)[0] + before[2][0])
    np.testing.assert_allclose(second(t, jnp.ones(2)), jnp.sum(before[1], 0), rtol=1e-9)
    assert not np.allclose(layer(t), before[0])


def test_two_threads_of_a_compiled_layer_find_the_data_of_its_trace():
    import threading

    shift = np.zeros(50)
    nearest = onestep.newton(lambda x, t: np.sum(np.cosh(x - t - shift)) + np.sum(x**2))
    compiled = jax.jit(onestep.jax.layer(nearest, start=np.zeros(50)))
    t = jnp.linspace(-1, 1, 50)
    expected = np.asarray(compiled(t))
    shift[:] = 3.0
    found = []
    threads = [threading.Thread(target=lambda: found.extend(np.asarray(compiled(t)) for _ in range(20))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120 and all(np.array_equal(x, expected) for x in found)


def test_a_layer_says_what_is_wrong():
    project = onestep.jax.layer(onestep.quadratic_program(simplex), axes=(1,))
    for message, call in [
        ("called with the parameters", lambda: project()),
        ("2 parameters given", lambda: project(jnp.ones(3), jnp.ones(3))),
        ("one problem's has 1 axes", lambda: project(1.0)),
        ("axes says", lambda: onestep.jax.layer(onestep.quadratic_program(simplex), axes=(3,))),
        ("a Solver, or a function that returns one", lambda: onestep.jax.layer(simplex(0.0))),
    ]:
        with pytest.raises(onestep.MisuseError, match=message):
            call()


# ---- foreign steps ----


def heron(x, a):
    return jax.lax.fori_loop(0, 2, lambda _, x: 0.5 * (x + a / x), x)


@pytest.mark.parametrize("estimator", [onestep.Implicit(), onestep.KStep(4), onestep.Unrolled(), onestep.Auto()])
def test_a_jax_function_is_a_foreign_step_with_the_derivatives_of_jax(estimator):
    root = onestep.fixed_point(onestep.jax.foreign_step(heron))
    s = root.solve(np.ones(2), np.array([2.0, 3.0]), estimator=estimator)
    np.testing.assert_allclose(s.x, np.sqrt([2, 3]), rtol=1e-12)
    np.testing.assert_allclose(s.vjp(np.ones(2)), 0.5 / np.sqrt([2, 3]), rtol=1e-6)
    np.testing.assert_allclose(s.jvp(np.ones(2)), 0.5 / np.sqrt([2, 3]), rtol=1e-6)


def test_a_foreign_step_is_differentiated_by_jax_through_a_layer():
    layer = onestep.jax.layer(onestep.fixed_point(onestep.jax.foreign_step(heron)), start=np.ones(2))
    a = jnp.array([2.0, 3.0])
    np.testing.assert_allclose(jax.grad(lambda a: jnp.sum(layer(a)))(a), 0.5 / np.sqrt(a), rtol=1e-9)
    many = jnp.stack([a, 2 * a, 3 * a])
    found = jax.vmap(jax.grad(lambda a: jnp.sum(layer(a))))(many)
    np.testing.assert_allclose(found, 0.5 / np.sqrt(many), rtol=1e-9)


def test_a_foreign_step_of_jax_is_not_compiled_since_jax_would_wait_for_itself():
    layer = onestep.jax.layer(onestep.fixed_point(onestep.jax.foreign_step(heron)), start=np.ones(2))
    for function in (layer, jax.grad(lambda a: jnp.sum(layer(a)))):
        with pytest.raises(onestep.MisuseError, match="cannot be compiled.*outside of jit"):
            jax.jit(function)(jnp.array([2.0, 3.0]))
    # One of NumPy's is.
    half = onestep.ForeignStep(lambda x, a: 0.5 * (x + a / x), vjp=lambda x, a, c: (0.5 * (1 - a / x**2) * c, (0.5 / x * c,)))
    layer = onestep.jax.layer(onestep.fixed_point(half), start=np.ones(2), estimator=onestep.Implicit())
    found = jax.jit(jax.vmap(jax.grad(lambda a: jnp.sum(layer(a)))))(jnp.array([[2.0, 3.0], [4.0, 5.0]]))
    np.testing.assert_allclose(found, 0.5 / np.sqrt([[2.0, 3.0], [4.0, 5.0]]), rtol=1e-9)


def test_a_foreign_step_of_another_shape_is_refused():
    with pytest.raises(onestep.MisuseError, match="returns the next x"):
        onestep.fixed_point(onestep.jax.foreign_step(lambda x, a: jnp.sum(x))).solve(np.ones(2), 1.0)
