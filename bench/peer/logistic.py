"""Weighted logistic regression, f(x, w) = sum(w softplus(-y A x)) + 0.1 sum(x[1:]^2), minimised from x = 0: the gradient of
|x|^2/2 by the weights w. A contender takes the data and returns two functions without arguments: the solve, which returns x,
and the solve with the gradient, which returns the gradient. What its user writes is between `user: begin` and `user: end`;
a name alone stands for all methods of a peer."""


def jax_setup(A, y, w):
    import jax

    jax.config.update("jax_enable_x64", True)
    return [jax.device_put(part) for part in (A, y, w)]


# Newton's method with full steps until a step is shorter than 1e-10 of x, which is what ours does where its line search has
# nothing to do. The Hessian is written out: by jax.hessian the same takes longer.
# user: begin jax, jaxopt custom_root
def newton_step(x, w, A, y):
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve

    s = jax.nn.sigmoid(-y * (A @ x))
    penalty = jnp.full(x.shape, 0.2).at[0].set(0.0)
    hessian = (A.T * (w * s * (1 - s))) @ A + jnp.diag(penalty)
    return x - solve(hessian, A.T @ (-y * w * s) + penalty * x, assume_a="pos")


def newton(w, A, y):
    import jax
    import jax.numpy as jnp

    # The last two iterates and how many steps there were.

    def goes_on(state):
        before, x, steps = state
        return (jnp.linalg.norm(x - before) > 1e-10 * jnp.linalg.norm(x)) & (steps < 50)

    x0 = jnp.zeros(A.shape[1])
    step = lambda state: (state[1], newton_step(state[1], w, A, y), state[2] + 1)
    return jax.lax.while_loop(goes_on, step, (x0, newton_step(x0, w, A, y), 1))
# user: end


def jax_one_step(A, y, w):
    import jax

    A, y, w = jax_setup(A, y, w)
    # user: begin jax one-step
    def gradient(w):
        before, x, _ = newton(w, A, y)
        _, pullback = jax.vjp(lambda w: newton_step(before, w, A, y), w)
        return pullback(x)[0]
    # user: end

    return jitted(lambda w: newton(w, A, y)[1], gradient, w)


def jax_implicit(A, y, w):
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve

    A, y, w = jax_setup(A, y, w)
    # user: begin jax implicit
    def objective(x, w):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x[1:]))

    def gradient(w):
        x = newton(w, A, y)[1]
        u = solve(jax.hessian(objective)(x, w), x, assume_a="pos")
        return jax.grad(lambda w: -jnp.vdot(u, jax.grad(objective)(x, w)))(w)
    # user: end

    return jitted(lambda w: newton(w, A, y)[1], gradient, w)


def jax_unrolled(A, y, w):
    import jax
    import jax.numpy as jnp

    A, y, w = jax_setup(A, y, w)
    # user: begin jax unrolled
    steps = int(newton(w, A, y)[2])

    def solution(w):
        next_x = lambda x, _: (newton_step(x, w, A, y), None)
        return jax.lax.scan(next_x, jnp.zeros(A.shape[1]), length=steps)[0]

    gradient = jax.grad(lambda w: 0.5 * jnp.sum(jnp.square(solution(w))))
    # user: end
    return jitted(lambda w: newton(w, A, y)[1], gradient, w)


def jitted(solve, gradient, w):
    """Both compiled, run on the same weights."""
    import jax

    solve, gradient = jax.jit(solve), jax.jit(gradient)
    return lambda: solve(w).block_until_ready(), lambda: [gradient(w).block_until_ready()]


def jaxopt_lbfgs(A, y, w):
    import jax
    import jax.numpy as jnp
    import jaxopt

    A, y, w = jax_setup(A, y, w)
    # user: begin jaxopt LBFGS
    def objective(x, w):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x[1:]))

    cholesky = jaxopt.linear_solve.solve_cholesky
    solver = jaxopt.LBFGS(objective, tol=1e-8, maxiter=1000, implicit_diff_solve=cholesky)
    solve = lambda w: solver.run(jnp.zeros(A.shape[1]), w).params
    gradient = jax.grad(lambda w: 0.5 * jnp.sum(jnp.square(solve(w))))
    # user: end
    return jitted(solve, gradient, w)


def jaxopt_custom_root(A, y, w):
    import jax
    import jax.numpy as jnp
    import jaxopt

    A, y, w = jax_setup(A, y, w)
    # user: begin jaxopt custom_root
    def objective(x, w):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x[1:]))

    @jaxopt.implicit_diff.custom_root(jax.grad(objective), solve=jaxopt.linear_solve.solve_cholesky)
    def solution(x0, w):
        return newton(w, A, y)[1]

    gradient = jax.grad(lambda w: 0.5 * jnp.sum(jnp.square(solution(None, w))))
    # user: end
    return jitted(lambda w: solution(None, w), gradient, w)


def optimistix_newton(A, y, w):
    import jax
    import jax.numpy as jnp
    import optimistix

    A, y, w = jax_setup(A, y, w)
    # user: begin optimistix
    def objective(x, w):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x[1:]))

    solver = optimistix.Newton(rtol=1e-10, atol=1e-10)
    solve = lambda w: optimistix.root_find(jax.grad(objective), solver, jnp.zeros(A.shape[1]), args=w).value
    gradient = jax.grad(lambda w: 0.5 * jnp.sum(jnp.square(solve(w))))
    # user: end
    return jitted(solve, gradient, w)


def casadi_rootfinder(A, y, w):
    """On CasADi's graph of matrices (MX); the one of scalars is slower here."""
    import casadi as ca
    import numpy as np

    # user: begin casadi
    x, weights = ca.MX.sym("x", A.shape[1]), ca.MX.sym("w", A.shape[0])
    f = ca.dot(weights, ca.log1p(ca.exp(-ca.DM(y) * ca.mtimes(ca.DM(A), x)))) + 0.1 * ca.sumsqr(x[1:])
    root = ca.rootfinder("root", "newton", {"x": x, "p": weights, "g": ca.gradient(f, x)}, {"abstol": 1e-10})
    solution = root(x0=np.zeros(A.shape[1]), p=weights)["x"]
    solve = ca.Function("solve", [weights], [solution])
    gradient = ca.Function("gradient", [weights], [ca.gradient(0.5 * ca.sumsqr(solution), weights)])
    # user: end
    w = ca.DM(w)
    return lambda: solve(w).full(), lambda: [gradient(w).full()]


NEWTON = "Newton's method written in JAX, until a step is below 1e-10 of x"

# A contender and what it is.
CONTENDERS = {
    ("jax", "one-step"): (jax_one_step, NEWTON),
    ("jax", "implicit"): (jax_implicit, NEWTON),
    ("jax", "unrolled"): (jax_unrolled, NEWTON),
    ("jaxopt", "custom_root"): (jaxopt_custom_root, "around the same Newton's method, with solve_cholesky"),
    ("jaxopt", "LBFGS"): (jaxopt_lbfgs, "LBFGS with tol 1e-8, implicitly with solve_cholesky"),
    ("optimistix", "implicit"): (optimistix_newton, "root_find of the gradient by Newton, rtol and atol 1e-10"),
    ("casadi", "implicit"): (casadi_rootfinder, "rootfinder newton on the gradient, abstol 1e-10"),
}
