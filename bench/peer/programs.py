"""Quadratic programs, min x'Qx/2 + q'x with Ax = b and Gx <= h: the gradient of |x|^2/2 by all of Q, q, A, b, G, h. A
contender takes the data and returns two functions without arguments: the solve, which returns x, and the solve with the
gradient, which returns its six parts, or None where the peer has no derivatives. What its user writes is between
`user: begin` and `user: end`. Solvers that can be given new data are set up once and given all of it anew each time."""


def jax_method(name):
    def make(*data):
        from peer import programs_jax

        return getattr(programs_jax, name)(*data)

    return make


def jaxopt_osqp(*data):
    import functools

    import jax
    import jax.numpy as jnp
    import jaxopt

    jax.config.update("jax_enable_x64", True)
    # user: begin jaxopt
    linear = functools.partial(jaxopt.linear_solve.solve_normal_cg, tol=1e-12, maxiter=20000)
    solver = jaxopt.OSQP(tol=1e-9, maxiter=20000, eq_qp_solve="lu", implicit_diff_solve=linear)

    def solve(theta):
        Q, q, A, b, G, h = theta
        return solver.run(params_obj=(Q, q), params_eq=(A, b), params_ineq=(G, h)).params.primal

    gradient = jax.grad(lambda theta: 0.5 * jnp.sum(jnp.square(solve(theta))))
    # user: end
    theta = tuple(jax.device_put(part) for part in data)
    solve, gradient = jax.jit(solve), jax.jit(gradient)
    return lambda: solve(theta).block_until_ready(), lambda: jax.block_until_ready(gradient(theta))


def casadi_conic(Q, q, A, b, G, h):
    import casadi as ca
    import numpy as np

    n, m, p = len(q), len(b), len(h)
    # user: begin casadi
    sizes = [n * n, n, m * n, m, p * n, p]
    theta = ca.MX.sym("theta", sum(sizes))
    parts = ca.vertsplit(theta, np.cumsum([0] + sizes).tolist())
    H, C = ca.reshape(parts[0], n, n), ca.vertcat(ca.reshape(parts[2], m, n), ca.reshape(parts[4], p, n))
    qp = ca.conic("qp", "daqp", {"h": H.sparsity(), "a": C.sparsity()})
    x = qp(h=H, g=parts[1], a=C, lba=ca.vertcat(parts[3], -np.inf * np.ones(p)), uba=ca.vertcat(parts[3], parts[5]))["x"]
    solve = ca.Function("solve", [theta], [x])
    gradient = ca.Function("gradient", [theta], [ca.gradient(0.5 * ca.sumsqr(x), theta)])
    # user: end
    values = ca.DM(np.concatenate([np.ravel(part, order="F") for part in (Q, q, A, b, G, h)]))

    def in_parts():
        flat, shapes = gradient(values).full().ravel(), [(n, n), (n,), (m, n), (m,), (p, n), (p,)]
        return [part.reshape(shape, order="F") for part, shape in zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes)]

    return lambda: solve(values).full(), in_parts


def piqp_dense(Q, q, A, b, G, h):
    import numpy as np
    import piqp

    Q, A, G = (np.asfortranarray(part) for part in (Q, A, G))
    # user: begin piqp
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-9
    solver.settings.check_duality_gap = True
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-9
    solver.setup(Q, q, A, b, G, None, h)

    def solve():
        solver.update(Q, q, A, b, G, None, h)
        if solver.solve() != piqp.PIQP_SOLVED:
            raise RuntimeError("PIQP did not solve it")
        return solver.result.x
    # user: end

    return solve, None


def proxqp_dense(Q, q, A, b, G, h):
    import numpy as np
    from proxsuite import proxqp

    n, m, p = len(q), len(b), len(h)
    # user: begin proxqp
    below = np.full(p, -1e20)
    qp = proxqp.dense.QP(n, m, p)
    qp.settings.eps_abs, qp.settings.eps_rel = 1e-9, 1e-9
    qp.settings.initial_guess = proxqp.InitialGuess.NO_INITIAL_GUESS
    qp.init(Q, q, A, b, G, below, h)

    def solve():
        qp.update(Q, q, A, b, G, below, h)
        qp.solve()
        if qp.results.info.status != proxqp.QPSolverOutput.PROXQP_SOLVED:
            raise RuntimeError("ProxQP did not solve it")
        return qp.results.x

    def gradient():
        x = solve()
        proxqp.dense.compute_backward(qp, np.concatenate([x, np.zeros(m + p)]), 1e-9, 1e-9, 1e-9)
        d = qp.model.backward_data
        return d.dL_dH, d.dL_dg, d.dL_dA, d.dL_db, d.dL_dC, d.dL_du
    # user: end

    return solve, gradient


def cvxpylayers_jax(*data):
    """DPP, CVXPY's rules for parameters, has no place for x'Qx with a parameter Q: its factor is the parameter, as in the
    documentation's examples, and JAX differentiates the factorisation."""
    import cvxpy as cp
    import jax
    import jax.numpy as jnp
    from cvxpylayers.jax import CvxpyLayer

    jax.config.update("jax_enable_x64", True)
    n, m, p = len(data[1]), len(data[3]), len(data[5])
    # user: begin cvxpylayers
    x, L, q = cp.Variable(n), cp.Parameter((n, n)), cp.Parameter(n)
    A, b, G, h = cp.Parameter((m, n)), cp.Parameter(m), cp.Parameter((p, n)), cp.Parameter(p)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(L @ x) + q @ x), [A @ x == b, G @ x <= h])
    layer = CvxpyLayer(problem, parameters=[L, q, A, b, G, h], variables=[x])

    how = {"solve_method": "Clarabel", "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}

    def solve(theta, **mode):
        return layer(jnp.linalg.cholesky(theta[0]).T, *theta[1:], solver_args=how | mode)[0]

    gradient = jax.grad(lambda theta: 0.5 * jnp.sum(jnp.square(solve(theta, mode="dense"))))
    # user: end
    theta = tuple(jax.device_put(part) for part in data)
    return lambda: solve(theta).block_until_ready(), lambda: jax.block_until_ready(gradient(theta))


def qpth_function(*data):
    import torch
    from qpth.qp import QPFunction

    # By lists: a PyTorch older than NumPy knows no arrays of it.
    parts = [torch.tensor(part.tolist(), dtype=torch.float64, requires_grad=True) for part in data]
    # user: begin qpth
    Q, q, A, b, G, h = parts
    solve = lambda: QPFunction(eps=1e-9, verbose=-1, check_Q_spd=False, maxIter=50)(Q, q, G, h, A, b)[0]
    gradient = lambda: torch.autograd.grad(0.5 * solve().square().sum(), parts)
    # user: end
    return lambda: solve().detach(), gradient


METHOD = "an interior point method written in JAX, to residuals of 1e-12 and a complementarity of 1e-15"

# A contender and what it is.
CONTENDERS = {
    ("jax", "one-step"): (jax_method("one_step"), METHOD),
    ("jax", "implicit"): (jax_method("implicit"), METHOD),
    ("jax", "unrolled"): (jax_method("unrolled"), METHOD),
    ("jaxopt", "implicit"): (jaxopt_osqp, "OSQP with LU and tol 1e-9, derivatives by solve_normal_cg with tol 1e-12"),
    ("casadi", "implicit"): (casadi_conic, "conic by DAQP, an active set method, with default tolerances"),
    ("piqp", "solve only"): (piqp_dense, "DenseSolver, residuals and gap of 1e-9, given new data by update"),
    ("proxqp", "implicit"): (proxqp_dense, "dense, to 1e-9, given new data by update; compute_backward to 1e-9"),
    ("cvxpylayers", "implicit"): (cvxpylayers_jax, "on JAX, by Clarabel to 1e-11, derivatives in diffcp's dense mode"),
    ("qpth", "implicit"): (qpth_function, "QPFunction with eps 1e-9"),
}
