"""onestep.jax: solvers inside of jit, grad, vmap, jacfwd, jacrev and hessian."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import onestep

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import onestep.jax  # noqa: E402

MODES = ["fwd", "rev"]


@pytest.fixture
def objective(logistic):
    A, y = jnp.asarray(logistic.A), jnp.asarray(logistic.y)
    return lambda x, w: jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(x**2)


@pytest.fixture
def fit(objective):
    return onestep.jax.newton(objective)


@pytest.fixture
def weights(rng):
    return jnp.asarray(rng.uniform(0.5, 1.5, size=(7, 40)))


START = jnp.zeros(4)


def close(a, b, tolerance=1e-10):
    def check(u, v):
        np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance * np.max(np.abs(v), initial=0))

    jax.tree.map(check, a, b)


def test_a_solution_and_its_jacobian_are_those_of_numpy(logistic, fit):
    w = jnp.asarray(logistic.w)
    x = fit(START, w)
    s = onestep.newton(logistic.objective).solve(np.zeros(4), logistic.w)
    close(x, s.x, 1e-14)
    expected = logistic.jacobian(s.x, logistic.w)
    for jacobian in (jax.jacfwd, jax.jacrev, lambda f: jax.jit(jax.jacfwd(f)), lambda f: jax.jit(jax.jacrev(f))):
        close(jacobian(lambda w: fit(START, w))(w), expected)


def test_gradients_are_those_of_an_unrolled_loop(objective, fit, weights):
    def unrolled(w):
        x = START
        for _ in range(12):
            x = x - jnp.linalg.solve(jax.hessian(objective)(x, w), jax.grad(objective)(x, w))
        return x

    cubes = jax.grad(lambda w: jnp.sum(fit(START, w) ** 3))(weights[0])
    close(cubes, jax.grad(lambda w: jnp.sum(unrolled(w) ** 3))(weights[0]))


def test_compiled_and_not_compiled_have_the_same_bits(fit, weights):
    loss = lambda w: jnp.sum(fit(START, w) ** 2)  # noqa: E731
    for function in (loss, jax.grad(loss)):
        assert np.array_equal(jax.jit(function)(weights[0]), function(weights[0]))


def test_a_compiled_function_serves_other_numbers(fit, weights):
    loss = jax.jit(jax.grad(lambda w: jnp.sum(fit(START, w) ** 2)))
    assert all(np.array_equal(loss(w), jax.grad(lambda w: jnp.sum(fit(START, w) ** 2))(w)) for w in weights)


def test_vmap_has_the_bits_of_a_loop(fit, weights):
    loss = lambda w: jnp.sum(fit(START, w) ** 2)  # noqa: E731
    for function in (lambda w: fit(START, w), jax.grad(loss), jax.jacfwd(lambda w: fit(START, w))):
        loop = jnp.stack([function(w) for w in weights])
        assert np.array_equal(jax.vmap(function)(weights), loop)
        assert np.array_equal(jax.jit(jax.vmap(function))(weights), loop)


def test_vmaps_nest_and_take_any_axis(fit, weights):
    W = jnp.stack([weights[:3], weights[3:6]])
    loop = jnp.stack([jnp.stack([fit(START, w) for w in some]) for some in W])
    assert np.array_equal(jax.vmap(jax.vmap(lambda w: fit(START, w)))(W), loop)
    moved = jnp.moveaxis(W, (0, 1), (2, 0))
    found = jax.vmap(jax.vmap(lambda w: fit(START, w), in_axes=1), in_axes=0)(moved)
    assert np.array_equal(found, jnp.swapaxes(loop, 0, 1))


def test_starts_may_be_batched(fit, weights, rng):
    starts = jnp.asarray(rng.normal(size=(7, 4)))
    found = jax.jit(jax.vmap(fit))(starts, weights)
    assert np.array_equal(found, jnp.stack([fit(s, w) for s, w in zip(starts, weights)]))
    assert np.array_equal(jax.vmap(fit, in_axes=(0, None))(starts, weights[0])[2], fit(starts[2], weights[0]))


def test_a_shared_parameter_gets_the_sum_of_the_gradients(logistic, weights):
    A, y = jnp.asarray(logistic.A), jnp.asarray(logistic.y)
    fit = onestep.jax.newton(lambda x, w, l: jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + jnp.sum(l * x**2))
    l2 = jnp.array([0.1, 0.2, 0.3, 0.4])
    each = [jax.grad(lambda w, l: jnp.sum(fit(START, w, l) ** 2), (0, 1))(w, l2) for w in weights]
    loss = lambda W, l: jnp.sum(jax.vmap(lambda w: fit(START, w, l))(W) ** 2)  # noqa: E731
    of_w, of_l = jax.jit(jax.grad(loss, (0, 1)))(weights, l2)
    assert np.array_equal(of_w, jnp.stack([g for g, _ in each]))
    close(of_l, sum(g for _, g in each), 1e-13)
    # One gradient for each problem where the gradient is inside of vmap.
    found = jax.vmap(jax.grad(lambda w, l: jnp.sum(fit(START, w, l) ** 2), (0, 1)), in_axes=(0, None))(weights, l2)
    assert np.array_equal(found[1], jnp.stack([g for _, g in each]))
    # And forward: all problems move with the shared parameter.
    moved = jax.jvp(lambda l: jax.vmap(lambda w: fit(START, w, l))(weights), (l2,), (jnp.ones(4),))[1]
    close(moved, jnp.stack([jax.jvp(lambda l: fit(START, w, l), (l2,), (jnp.ones(4),))[1] for w in weights]), 1e-13)


def test_an_empty_batch_is_no_problem(fit):
    empty = jnp.zeros((0, 40))
    assert jax.vmap(lambda w: fit(START, w))(empty).shape == (0, 4)
    shared = jax.grad(lambda t: jnp.sum(jax.vmap(lambda w: fit(START, w + t))(empty)))(jnp.ones(40))
    assert np.array_equal(shared, np.zeros(40))
    assert jax.jit(jax.grad(lambda W: jnp.sum(jax.vmap(lambda w: fit(START, w))(W))))(empty).shape == (0, 40)


def test_what_is_closed_over_inside_of_a_transformation_is_differentiated(rng):
    A, b = jnp.asarray(rng.normal(size=(20, 3))), jnp.asarray(rng.normal(size=20))

    def ridge(A, b, l2):
        fit = onestep.jax.newton(lambda x: jnp.sum((A @ x - b) ** 2) + l2 * jnp.sum(x**2))
        return fit(jnp.zeros(3))

    def exact(A, b, l2):
        return jnp.linalg.solve(A.T @ A + l2 * jnp.eye(3), A.T @ b)

    arguments = (A, b, jnp.array(0.7))
    for k in range(3):
        expected = jax.jacrev(exact, k)(*arguments)
        close(jax.jacrev(ridge, k)(*arguments), expected)
        close(jax.jit(jax.jacfwd(ridge, k))(*arguments), expected)
    many = jnp.stack([A, 2 * A])
    close(jax.vmap(lambda A: ridge(A, b, 0.7))(many), jnp.stack([exact(A, b, 0.7) for A in many]))


def test_conditions_and_whole_numbers_may_be_closed_over(rng):
    a = jnp.asarray(rng.normal(size=4))

    def chosen(mask, count, a):
        return onestep.jax.newton(lambda x: jnp.sum(jnp.where(mask, (x - a) ** 2, x**2)) + count * jnp.sum(x**2))(START)

    mask = jnp.array([True, False, True, False])
    expected = np.where(mask, a / 3, 0.0)
    close(jax.jit(chosen)(mask, 2, a), expected)
    close(jax.vmap(chosen, in_axes=(0, None, None))(jnp.stack([mask, ~mask]), 2, a)[1], np.where(mask, 0.0, a / 3))
    close(jax.jit(jax.jacrev(chosen, 2))(mask, 2, a), np.diag(np.where(mask, 1 / 3, 0.0)))


def test_closed_over_data_are_asked_for_again_by_each_trace_and_kept_by_a_compiled_function():
    data = {"a": jnp.array([1.0, 2.0])}
    nearest = onestep.jax.newton(lambda x: jnp.sum((x - data["a"]) ** 2))
    mutable = np.array([1.0, 2.0])
    of_numpy = onestep.jax.newton(lambda x: jnp.sum((x - mutable) ** 2))
    compiled = jax.jit(lambda: nearest(jnp.zeros(2)))
    close(compiled(), [1.0, 2.0])
    close(of_numpy(jnp.zeros(2)), [1.0, 2.0])
    data["a"] = jnp.array([5.0, 6.0])
    mutable[0] = 7.0
    close(nearest(jnp.zeros(2)), [5.0, 6.0])
    close(of_numpy(jnp.zeros(2)), [7.0, 2.0])
    close(compiled(), [1.0, 2.0])  # as any constant of a compiled function


def test_data_that_change_between_a_solve_and_its_backward_pass_do_not_change_the_gradient():
    mutable = np.array([1.0, 2.0])
    scaled = onestep.jax.newton(lambda x, t: jnp.sum((x - mutable * t) ** 2))
    _, pull = jax.vjp(lambda t: scaled(jnp.zeros(2), t), jnp.array(3.0))
    mutable[:] = 100.0
    scaled(jnp.zeros(2), jnp.array(1.0))
    close(pull(jnp.ones(2))[0], 3.0)


def test_two_solves_before_two_backward_passes_are_told_apart(fit, weights):
    def both(w, v):
        return jnp.sum(fit(START, w) ** 2) * jnp.sum(fit(START, v) ** 3)

    found = jax.jit(jax.grad(both, (0, 1)))(weights[0], weights[1])
    f, g = lambda w: jnp.sum(fit(START, w) ** 2), lambda v: jnp.sum(fit(START, v) ** 3)
    # One of the two solutions has to be computed again, and is the same.
    close(found[0], jax.grad(f)(weights[0]) * g(weights[1]), 1e-15)
    close(found[1], jax.grad(g)(weights[1]) * f(weights[0]), 1e-15)


def test_inside_of_scan_and_while_loops(fit, weights):
    def total(W):
        return jax.lax.scan(lambda x, w: (fit(x, w), jnp.sum(x)), START, W)[0].sum()

    found = jax.jit(jax.grad(total))(weights)
    assert np.array_equal(found[:-1], np.zeros((6, 40)))  # where a solve begins has no derivative
    close(found[-1], jax.grad(lambda w: jnp.sum(fit(START, w)))(weights[-1]), 1e-9)
    summed = jax.jit(jax.grad(lambda W: jnp.sum(jax.lax.map(lambda w: fit(START, w), W) ** 2)))(weights)
    close(summed, jax.grad(lambda W: jnp.sum(jax.vmap(lambda w: fit(START, w))(W) ** 2))(weights), 1e-9)


def test_checkpointed_gradients_are_the_same(fit, weights):
    loss = lambda w: jnp.sum(fit(START, w) ** 2)  # noqa: E731
    close(jax.jit(jax.grad(jax.checkpoint(loss)))(weights[0]), jax.grad(loss)(weights[0]), 1e-12)


def test_starts_and_parameters_may_be_trees():
    root = onestep.jax.newton_root(lambda x, p: {"a": x["a"] ** 2 - p["r"] * x["b"], "b": x["b"] - p["s"][0]})
    start, p = {"a": 1.0, "b": jnp.array(0.5)}, {"r": jnp.array(3.0), "s": (jnp.array(1.0),)}
    x = root(start, p)
    close((x["a"], x["b"]), (np.sqrt(3), 1.0))
    g = jax.grad(lambda p: root(start, p)["a"])(p)
    close((g["r"], g["s"][0]), (0.5 / np.sqrt(3), 0.5 * np.sqrt(3)))


ESTIMATORS = [None, onestep.OneStep(), onestep.KStep(3), onestep.Implicit(), onestep.Unrolled(), onestep.Auto(1e-10)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=[type(e).__name__ for e in ESTIMATORS])
def test_all_estimators_give_the_derivative_of_newtons_method(estimator):
    fit = onestep.jax.newton(lambda x, t: jnp.sum(jnp.cosh(x - t)) + jnp.sum(x**2), estimator=estimator)
    t = jnp.array([1.0, -0.5])
    x = fit(jnp.zeros(2), t)
    c = np.cosh(x - t)
    for jacobian in (jax.jacfwd, jax.jacrev):
        close(jax.jit(jacobian(lambda t: fit(jnp.zeros(2), t)))(t), np.diag(c / (c + 2)), 1e-9)


SOLVERS = {
    "newton": lambda f, **o: onestep.jax.newton(f, **o),
    "newton_cg": lambda f, **o: onestep.jax.newton_cg(f, **o),
    "newton_root": lambda f, **o: onestep.jax.newton_root(jax.grad(f), **o),
    "gradient_descent": lambda f, **o: onestep.jax.gradient_descent(f, 0.2, estimator=onestep.Implicit(), **o),
    "with momentum": lambda f, **o: onestep.jax.gradient_descent(
        f, 0.2, onestep.Momentum.nesterov(0.3), estimator=onestep.Implicit(), **o
    ),
    "fixed_point": lambda f, **o: onestep.jax.fixed_point(
        lambda x, *t: x - 0.2 * jax.grad(f)(x, *t), estimator=onestep.Implicit(), **o
    ),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_all_solvers_pass_jaxs_own_check_of_gradients(name):
    weight = jnp.array([1.0, 2.0])
    solver = SOLVERS[name](lambda x, t, s: jnp.sum(weight * jnp.log(jnp.cosh(x - t))) + 0.5 * s * jnp.sum(x**2))
    f = lambda t, s: solver(jnp.zeros(2), t, s)  # noqa: E731
    check_grads(f, (jnp.array([1.0, -0.4]), jnp.array(0.8)), order=1, modes=MODES, rtol=1e-6, atol=1e-6)
    check_grads(jax.jit(f), (jnp.array([1.0, -0.4]), jnp.array(0.8)), order=1, modes=MODES, rtol=1e-6, atol=1e-6)


def test_batches_of_a_method_with_momentum_are_those_of_a_loop(weights):
    accelerated = SOLVERS["with momentum"](lambda x, t, s: jnp.sum(jnp.log(jnp.cosh(x - t))) + 0.5 * s * jnp.sum(x**2))
    f = lambda t: accelerated(jnp.zeros(2), t[:2], t[2])  # noqa: E731
    many = jax.jit(jax.vmap(jax.jacrev(f)))(weights[:3])
    assert np.array_equal(many, jnp.stack([jax.jacrev(f)(t) for t in weights[:3]]))


# ---- programs, certificates, threads, memory ----


def test_a_program_has_the_solution_and_the_jacobian_of_its_closed_form():
    project = onestep.jax.quadratic_program(
        lambda c: {"Q": jnp.eye(3), "q": -c, "A": jnp.ones((1, 3)), "b": jnp.ones(1), "lo": 0.0}
    )
    c = jnp.array([0.9, 0.4, -0.5])
    solved = jax.jit(project.solve)(c)
    close(solved.x, [0.75, 0.25, 0.0])
    assert [part.shape for part in solved.state] == [(3,), (1,), (0,), (3,)] and bool(solved.converged)
    assert onestep.Status(int(solved.status)) is onestep.Status.converged
    for jacobian in (jax.jacfwd, jax.jacrev):
        close(jacobian(project)(c), [[0.5, -0.5, 0], [-0.5, 0.5, 0], [0, 0, 0]])


def test_a_certificate_bounds_the_error_of_the_gradient(logistic, fit):
    w = jnp.asarray(logistic.w)
    c = jnp.ones(4)
    certificate = fit.certificate(START, w, cotangent=c)
    gradient = jax.grad(lambda w: jnp.sum(fit(START, w)))(w)
    exact = logistic.jacobian(np.asarray(fit(START, w)), logistic.w).T @ np.ones(4)
    assert certificate.basis is onestep.Certificate.Basis.observed
    assert np.linalg.norm(gradient - exact) <= certificate.bound + 1e-13 * np.linalg.norm(exact)
    assert fit.certificate(START, w, tangent=w).basis is onestep.Certificate.Basis.observed
    with pytest.raises(onestep.MisuseError, match="outside of jit"):
        jax.jit(lambda w: fit.certificate(START, w, cotangent=c).bound)(w)


def test_threads_that_run_compiled_functions_at_once_get_the_bits_of_one(fit, weights):
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(fit(START, w) ** 2)))
    expected = [np.asarray(gradient(w)) for w in weights]
    wrong = []

    def work(k):
        for turn in range(40):
            i = (k + turn) % len(expected)
            if not np.array_equal(gradient(weights[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("compiled", [True, False])
def test_memory_does_not_grow_over_1000_solves(objective, weights, compiled):
    fit = onestep.jax.newton(objective)
    step = jax.grad(lambda w: jnp.sum(fit(START, w) ** 2))
    step = jax.jit(step) if compiled else step
    for _ in range(100):
        step(weights[0]).block_until_ready()
    before = resident()
    for i in range(1000 if compiled else 200):
        step(weights[i % 7]).block_until_ready()
    assert resident() - before < 8e6


def test_problems_of_data_that_change_are_given_back():
    shift = {"a": jnp.zeros(2000)}
    nearest = onestep.jax.newton_cg(lambda x: jnp.sum((x - shift["a"]) ** 2))
    before = 0
    for i in range(120):
        shift["a"] = jnp.full(2000, float(i))
        close(nearest(jnp.zeros(2000)), shift["a"])
        if i == 40:
            before = resident()
    assert resident() - before < 30e6


def test_a_compiled_function_outlives_its_solver(objective, weights):
    def made():
        fit = onestep.jax.newton(objective)
        return jax.jit(jax.grad(lambda w: jnp.sum(fit(START, w) ** 2)))

    gradient = made()
    first = gradient(weights[0])
    gc.collect()
    assert np.array_equal(gradient(weights[0]), first)
    lowered = made().lower(weights[0]).compile()
    gc.collect()
    assert np.array_equal(lowered(weights[0]), first)


def test_a_solve_sees_what_changed_in_numpys_memory_since_the_last():
    for wrap in (lambda f: f, jax.jit, lambda f: lambda x: jax.lax.cond(True, f, f, x)):
        c = np.array([1.0, 2.0])
        fit = onestep.jax.newton(lambda x, a: jnp.sum((x - a * wrap(lambda x: c + 0.0 * x)(x)) ** 2))  # noqa: B023
        close(fit(jnp.zeros(2), 1.0), np.array([1.0, 2.0]))
        for expected in (np.array([2.0, 4.0]), np.array([4.0, 8.0])):
            c *= 2
            close(fit(jnp.zeros(2), 1.0), expected)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_a_second_derivative_is_that_of_the_data_of_the_solve(wrap):
    c = np.array([1.0, 2.0])
    scaled = wrap(lambda s: c * s)
    fit = onestep.jax.newton(lambda x, a: jnp.sum((x - scaled(jnp.exp(a))) ** 2))
    slope, along = jax.linearize(jax.grad(lambda a: jnp.sum(fit(jnp.zeros(2), a))), 0.0)
    c *= 5
    assert np.isclose(slope, 3.0) and np.isclose(along(1.0), 3.0)


def test_a_solver_keeps_no_tracer():
    closed_over = {}
    fit = onestep.jax.newton(lambda x: jnp.sum((x - closed_over["a"]) ** 2))

    def f(a):
        closed_over["a"] = a
        try:
            return fit(jnp.zeros(2))
        finally:
            closed_over.clear()

    with jax.checking_leaks():
        close(jax.jit(f)(jnp.ones(2)), np.array([1.0, 1.0]))
        close(jax.jit(jax.grad(lambda a: jnp.sum(f(a) ** 2)))(jnp.ones(2)), np.array([2.0, 2.0]))
    close(f(jnp.full(2, 3.0)), np.array([3.0, 3.0]))
