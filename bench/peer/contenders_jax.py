"""The contenders of the suite jax, all called from JAX's compiled functions: ours and the libraries of JAX that differentiate
solvers, on the problems of the suite peers. A contender takes the data and returns two functions without arguments: the
solve, and the solve with the gradient of |x|^2/2."""
import functools

import jax
import jax.numpy as jnp
from peer import logistic, programs

jax.config.update("jax_enable_x64", True)


def compiled(solve, theta):
    """Both compiled, run on the same parameters: an array, or a tuple of them."""
    forward = jax.jit(solve)
    both = jax.jit(jax.grad(lambda theta: 0.5 * jnp.sum(jnp.square(solve(theta)))))
    theta = jax.tree.map(jax.device_put, theta)
    return lambda: forward(theta).block_until_ready(), lambda: jax.tree.leaves(jax.block_until_ready(both(theta)))


# ---- logistic regression ----


def ours_logistic(A, y, w, estimator=None):
    import onestep.jax

    A, y = jax.device_put(A), jax.device_put(y)

    def objective(x, w):
        return jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(jnp.square(x[1:]))

    fit = onestep.jax.newton(objective, estimator=estimator)
    return compiled(lambda w: fit(jnp.zeros(A.shape[1]), w), w)


def implicitly(contender):
    def make(*data):
        import onestep

        return contender(*data, estimator=onestep.Implicit())

    return make


# ---- quadratic programs ----


def ours_program(*data, estimator=None):
    import onestep.jax

    qp = onestep.jax.QP(estimator=estimator)

    def solve(theta):
        Q, q, A, b, G, h = theta
        return qp(Q=Q, q=q, A=A, b=b, G=G, u=h)

    return compiled(solve, tuple(data))


def qpax_program(*data, backend):
    import qpax

    # Its gradient is that of a relaxed program: kappa is as small as it takes for the accuracy of the others.
    settings = {"backend": backend, "solver_tol": 1e-9, "target_kappa": 1e-9}
    return compiled(lambda theta: qpax.solve_qp_primal(*theta, **settings), tuple(data))


# ---- batches of quadratic programs, which share all but q ----


def many(contender_solve):
    def make(Q, q, A, b, G, h):
        shared = tuple(jax.device_put(part) for part in (Q, A, b, G, h))
        return compiled(lambda q: contender_solve(*shared, q), q)

    return make


def ours_many(Q, A, b, G, h, q):
    import onestep.jax

    return onestep.jax.QP()(Q=Q, q=q, A=A, b=b, G=G, u=h)


def ours_many_vmap(Q, A, b, G, h, q):
    import onestep.jax

    qp = onestep.jax.QP()
    return jax.vmap(lambda q: qp(Q=Q, q=q, A=A, b=b, G=G, u=h))(q)


def jaxopt_many(Q, A, b, G, h, q):
    import jaxopt

    linear = functools.partial(jaxopt.linear_solve.solve_normal_cg, tol=1e-12, maxiter=20000)
    solver = jaxopt.OSQP(tol=1e-9, maxiter=20000, eq_qp_solve="lu", implicit_diff_solve=linear)
    solve = lambda q: solver.run(params_obj=(Q, q), params_eq=(A, b), params_ineq=(G, h)).params.primal
    return jax.vmap(solve)(q)


def qpax_many(Q, A, b, G, h, q):
    import qpax

    return jax.vmap(lambda q: qpax.solve_qp_primal(Q, q, A, b, G, h, solver_tol=1e-9, target_kappa=1e-9))(q)


# A contender and what it is.
CONTENDERS = {
    "logistic": {
        ("onestep", "one-step"): (ours_logistic, "onestep.jax.newton with its default options"),
        ("onestep", "implicit"): (implicitly(ours_logistic), "the same with onestep.Implicit()"),
        ("jaxopt", "custom_root"): logistic.CONTENDERS["jaxopt", "custom_root"],
        ("jaxopt", "LBFGS"): logistic.CONTENDERS["jaxopt", "LBFGS"],
        ("optimistix", "implicit"): logistic.CONTENDERS["optimistix", "implicit"],
    },
    "qp": {
        ("onestep", "one-step"): (ours_program, "onestep.jax.QP with its default options"),
        ("onestep", "implicit"): (implicitly(ours_program), "the same with onestep.Implicit()"),
        ("jaxopt", "implicit"): programs.CONTENDERS["jaxopt", "implicit"],
        ("qpax", "explicit"): (functools.partial(qpax_program, backend="e"), "solver_tol 1e-9, target_kappa 1e-9"),
        ("qpax", "implicit"): (functools.partial(qpax_program, backend="i"), "solver_tol 1e-9, target_kappa 1e-9"),
    },
    "many": {
        ("onestep", "one-step"): (many(ours_many), "onestep.jax.QP of a batch"),
        ("onestep", "vmap"): (many(ours_many_vmap), "onestep.jax.QP under jax.vmap"),
        ("jaxopt", "implicit"): (many(jaxopt_many), "OSQP under jax.vmap, as above"),
        ("qpax", "explicit"): (many(qpax_many), "under jax.vmap, as above"),
    },
}
