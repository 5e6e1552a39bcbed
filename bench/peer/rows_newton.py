"""The rows of Newton's method and of the elementwise chain, in JAX and CasADi. A function returns the work to be timed."""
import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from peer.data import (CHAIN_A, CHAIN_B, chain_data, check, expected_chain, expected_newton, expected_solution,
                       logistic_data, logistic_with_intercept)


def jax_work(kind, N, n):
    jax.config.update("jax_enable_x64", True)
    if kind == "chain":
        x = chain_data(N)
        run = jax.jit(lambda t: jnp.sqrt(1 + jnp.square(jnp.tanh(CHAIN_A * t + CHAIN_B))) * jnp.exp(t))
        on_device = jax.device_put(x)
        check("the chain", run(on_device), expected_chain(x))
        return lambda: run(on_device).block_until_ready()

    data = logistic_data(N, n)
    A, y, w, x, v = (jax.device_put(part) for part in data)

    def f(x, w, A, y):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x))

    def newton(x, w, A, y):
        value, g = jax.value_and_grad(f)(x, w, A, y)
        factor = jax.scipy.linalg.cho_factor(jax.hessian(f)(x, w, A, y))
        return x - jax.scipy.linalg.cho_solve(factor, g), value

    def newton_vjp(x, w, A, y, v):
        x_next, pullback, value = jax.vjp(lambda w: newton(x, w, A, y), w, has_aux=True)
        return x_next, value, pullback(v)[0]

    value, x_next, w_bar = expected_newton(*data)
    if kind == "step":
        run, arguments = jax.jit(newton), (x, w, A, y)
    else:
        run, arguments = jax.jit(newton_vjp), (x, w, A, y, v)
    results = run(*arguments)
    check("the step", results[0], x_next)
    check("the value", results[1], value)
    if kind == "vjp":
        check("the vjp", results[2], w_bar)
    return lambda: jax.block_until_ready(run(*arguments))


def jax_solve(way, kind, N, n):
    """Newton's method from 0 with full steps, which is all these problems need, until a step is short: ours has a line
    search on top. The whole solve is one compiled program, so is solve + one-step."""
    jax.config.update("jax_enable_x64", True)
    data = logistic_with_intercept(N, n)
    A, y, w = (jax.device_put(part) for part in data)

    def f(x, w, A, y):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x[1:]))

    def hessian(x, w, A, y):
        if way == "jax.hessian":
            return jax.hessian(f)(x, w, A, y)
        s = jax.nn.sigmoid(-y * (A @ x))
        return (A.T * (w * s * (1 - s))) @ A + jnp.diag(jnp.full(n, 0.2).at[0].set(0.0))

    def newton(x, w, A, y):
        factor, _ = cho_factor(hessian(x, w, A, y))
        return x - cho_solve((factor, False), jax.grad(f)(x, w, A, y)), factor

    def solve(w, A, y):
        def goes_on(state):
            return state[3] > 1e-10 * state[4]

        def step(state):
            _, x, _, _, scale = state
            x_next, factor = newton(x, w, A, y)
            length = jnp.linalg.norm(x_next - x)
            return x, x_next, factor, length, jnp.maximum(jnp.maximum(scale, length), jnp.linalg.norm(x_next))

        zero = jnp.zeros(n)
        start = (zero, zero, jnp.zeros((n, n)), jnp.array(jnp.inf), jnp.array(0.0))
        x_before, x, factor, _, _ = jax.lax.while_loop(goes_on, step, start)
        return x_before, x, factor

    def one_step(w, A, y):
        x_before, x, factor = solve(w, A, y)
        if way == "by hand":  # with the factor of the last step, where differentiating the step would make it again
            u, s = cho_solve((factor, False), x), x_before - x
            return x, jax.grad(lambda w: -jnp.vdot(u, jax.grad(f)(x_before, w, A, y))
                               + jnp.vdot(u, jax.jvp(lambda x: jax.grad(f)(x, w, A, y), (x_before,), (s,))[1]))(w)
        _, pullback = jax.vjp(lambda w: newton(jax.lax.stop_gradient(x_before), w, A, y)[0], w)
        return x, pullback(x)[0]

    if kind == "first answer":  # what was compiled before is forgotten

        def first_answer():
            jax.clear_caches()
            return jax.block_until_ready(jax.jit(lambda w, A, y: one_step(w, A, y))(w, A, y))

        check("the derivative", first_answer()[1], expected_solution(*data)[1], 1e-6)
        return first_answer
    run = jax.jit(one_step if kind == "solve + one-step" else lambda w, A, y: solve(w, A, y)[1:2])
    results = run(w, A, y)
    x, w_bar = expected_solution(*data)
    check("the solution", results[0], x)
    if kind == "solve + one-step":
        check("the derivative", results[1], w_bar, 1e-6)
    return lambda: jax.block_until_ready(run(w, A, y))


def casadi_work(kind, N, n):
    """On its graph of matrices (MX): the one of scalars (SX) takes three times as long at N=200 n=5, and more above."""
    import casadi as ca

    def ready(function, inputs):
        buffer, run = function.buffer()
        outputs = [np.zeros(function.nnz_out(i)) for i in range(function.n_out())]
        keep = [np.array(value, np.float64, order="F") for value in inputs]
        for i, value in enumerate(keep):
            buffer.set_arg(i, memoryview(value))
        for i, value in enumerate(outputs):
            buffer.set_res(i, memoryview(value))
        run()
        return (buffer, keep, outputs), run  # the first has to live as long as the second is used

    if kind == "chain":
        data = chain_data(N)
        t = ca.MX.sym("x", N)
        function = ca.Function("chain", [t], [ca.sqrt(1 + ca.tanh(CHAIN_A * t + CHAIN_B) ** 2) * ca.exp(t)])
        keep, run = ready(function, [data])
        check("the chain", keep[2][0], expected_chain(data))
        return lambda: (keep, run())

    data = logistic_data(N, n)
    A, y, w, x, v = data

    xs, ws, vs = ca.MX.sym("x", n), ca.MX.sym("w", N), ca.MX.sym("v", n)
    f = ca.dot(ws, ca.log1p(ca.exp(-ca.DM(y) * ca.mtimes(ca.DM(A), xs)))) + 0.1 * ca.sumsqr(xs)
    H, g = ca.hessian(f, xs)
    next_x = xs - ca.solve(H, g, "ldl")
    results = [next_x, f] + ([ca.jtimes(next_x, ws, vs, True)] if kind == "vjp" else [])
    function = ca.Function("newton", [xs, ws, vs], results)
    keep, run = ready(function, [x, w, v])
    value, x_next, w_bar = expected_newton(*data)
    check("the step", keep[2][0], x_next)
    check("the value", keep[2][1], value)
    if kind == "vjp":
        check("the vjp", keep[2][2], w_bar)
    return lambda: (keep, run())
