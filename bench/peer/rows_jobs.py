"""The rows of the suite jobs, in JAX, jaxopt and scikit-learn. A function returns the work to be timed, and the norm of the
gradient where its solve ends where that is compared. What results have to be is said by NumPy, at the end."""
import warnings

import numpy as np
from peer import samples
from peer.data import check

# ---- penalties of features, by Newton's method ----


def jax_penalties(way):
    """Newton's method as ours: full steps, which is all that is needed from the solution before, until one is below 1e-10 of
    x. The Hessian is written out. custom_vjp keeps the last factor for the derivative, which is as fast as it gets; jaxopt
    forms the Hessian again, by differentiation."""
    import jax
    import jax.numpy as jnp
    import jaxopt
    from jax.scipy.linalg import cho_factor, cho_solve

    jax.config.update("jax_enable_x64", True)
    data = samples.a9a()
    A, y, A_valid, y_valid = (jax.device_put(part) for part in data)
    n = A.shape[1]

    def objective(x, l2, A, y):
        return jnp.sum(jax.nn.softplus(-y * (A @ x))) + 0.5 * jnp.sum(l2 * jnp.square(x[:-1]))

    def newton(l2, x0, A, y):
        penalty = jnp.append(l2, 0.0)

        def step(state):
            x, _, _, scale = state
            s = jax.nn.sigmoid(-y * (A @ x))
            factor, _ = cho_factor((A.T * (s * (1 - s))) @ A + jnp.diag(penalty))
            d = cho_solve((factor, False), A.T @ (-y * s) + penalty * x)
            length = jnp.linalg.norm(d)
            return x - d, factor, length, jnp.maximum(jnp.maximum(scale, length), jnp.linalg.norm(x - d))

        start = (x0, jnp.zeros((n, n)), jnp.array(jnp.inf), jnp.array(0.0))
        x, factor, _, _ = jax.lax.while_loop(lambda state: state[2] > 1e-10 * state[3], step, start)
        return x, factor

    @jax.custom_vjp
    def by_hand(l2, x0, A, y):
        return newton(l2, x0, A, y)[0]

    def forward(l2, x0, A, y):
        x, factor = newton(l2, x0, A, y)
        return x, (x, factor)

    by_hand.defvjp(forward, lambda kept, c: (-(cho_solve((kept[1], False), c) * kept[0])[:-1], None, None, None))

    @jaxopt.implicit_diff.custom_root(jax.grad(objective), solve=jaxopt.linear_solve.solve_cholesky)
    def by_jaxopt(x0, l2, A, y):
        return newton(l2, x0, A, y)[0]

    def step(l2, x0, A, y, A_valid, y_valid):
        def loss(l2):
            x = by_hand(l2, x0, A, y) if way == "custom_vjp" else by_jaxopt(x0, l2, A, y)
            return jnp.mean(jax.nn.softplus(-y_valid * (A_valid @ x)))

        return jax.value_and_grad(loss)(l2)

    x0 = jax.jit(newton)(jnp.ones(n - 1), jnp.zeros(n), A, y)[0]
    run, l2 = jax.jit(step), jax.device_put(samples.penalties())
    arguments = (l2, x0, A, y, A_valid, y_valid)
    value, hypergradient = run(*arguments)
    expected_value, expected = penalties_reference(*data, samples.penalties())
    check("the validation loss", value, expected_value)
    check("the hypergradient", hypergradient, expected, 1e-6)
    return lambda: jax.block_until_ready(run(*arguments)), None


# ---- weights of samples, by products with the Hessian ----


def jax_weights(way):
    """Newton-CG as ours: full steps, linear systems as exact as Eisenstat and Walker's second choice says; the derivative's
    system to 1e-6. Products with the Hessian are written out. LBFGS is jaxopt's, with its implicit differentiation by
    conjugate gradients. All stop when the gradient is below 1e-6 of x: the least curvature is 1, so that x is then right to
    1e-6, which is what ours is asked for by its own rule; where the gradients end is shown."""
    import jax
    import jax.numpy as jnp
    import jaxopt
    from jax.scipy.sparse.linalg import cg

    jax.config.update("jax_enable_x64", True)
    A, Y, A_valid, Y_valid = (jax.device_put(part) for part in samples.images())

    def losses(x, A, Y):
        s = A @ x
        return jax.scipy.special.logsumexp(s, axis=1) - jnp.sum(Y * s, axis=1)

    def objective(x, w, A, Y):
        return w @ losses(x, A, Y) + 0.5 * (jnp.sum(jnp.square(x[:-1])) + jnp.square(jnp.sum(x[-1])))

    def penalised(v):
        return v.at[-1].set(jnp.sum(v[-1]))

    def gradient(x, w, A, Y):
        P = jax.nn.softmax(A @ x, axis=1)
        return A.T @ (w[:, None] * (P - Y)) + penalised(x), P

    def product(v, P, w, A):
        q = P * (A @ v)
        return A.T @ (w[:, None] * (q - P * jnp.sum(q, axis=1, keepdims=True))) + penalised(v)

    def diagonal(P, w, A):
        return jnp.square(A).T @ (w[:, None] * P * (1 - P)) + 1.0

    def linear(b, P, w, A, tol):
        M = diagonal(P, w, A) if way == "newton-cg, Jacobi" else None
        scale = None if M is None else lambda v: v / M
        return cg(lambda v: product(v, P, w, A), b, tol=tol, maxiter=5000, M=scale)[0]

    def newton_cg(w, x0, A, Y):
        def step(state):
            x, g, P, forcing, steps = state
            x = x - linear(g, P, w, A, forcing)
            norm = jnp.linalg.norm(g)
            g, P = gradient(x, w, A, Y)
            fall = 0.9 * (jnp.linalg.norm(g) / norm) ** 1.618033988749895
            return x, g, P, jnp.clip(fall, 1e-6, 0.5), steps + 1

        def goes_on(state):
            return (jnp.linalg.norm(state[1]) > 1e-6 * jnp.linalg.norm(state[0])) & (state[4] < 100)

        g, P = gradient(x0, w, A, Y)
        return jax.lax.while_loop(goes_on, step, (x0, g, P, jnp.array(0.5), 0))

    w, ones = jax.device_put(samples.weights()), jnp.ones(len(A))
    x0 = jax.jit(newton_cg)(ones, jnp.zeros((A.shape[1], Y.shape[1])), A, Y)[0]
    by_cg = lambda matvec, b: jaxopt.linear_solve.solve_cg(matvec, b, tol=1e-6, maxiter=5000)
    tolerance = float(1e-6 * jnp.linalg.norm(x0))
    solver = jaxopt.LBFGS(objective, tol=tolerance, maxiter=10000, implicit_diff_solve=by_cg)

    def step(w, x0, A, Y, A_valid, Y_valid):
        judge = lambda x: jnp.mean(losses(x, A_valid, Y_valid))
        if way == "LBFGS":
            def loss(w):
                x = solver.run(x0, w, A, Y).params
                return judge(x), x

            (_, x), hypergradient = jax.value_and_grad(loss, has_aux=True)(w)
            return x, hypergradient
        x, _, P, _, _ = newton_cg(w, x0, A, Y)
        u = linear(jax.grad(judge)(x), P, w, A, 1e-6)
        return x, -jnp.sum((P - Y) * (A @ u), axis=1)

    run, arguments = jax.jit(step), (w, x0, A, Y, A_valid, Y_valid)
    x, hypergradient = run(*arguments)
    reached = float(jnp.linalg.norm(gradient(x, w, A, Y)[0]))
    expected = weights_reference(*(np.asarray(part) for part in (x, w, A, Y, A_valid, Y_valid)))
    check("the hypergradient", hypergradient, expected, 1e-3)
    return lambda: jax.block_until_ready(run(*arguments)), reached


# ---- whole fits ----


def sklearn_fit(way, loss, which, target):
    """With the loosest tolerance at which the gradient is as small as ours, or within ten times as small as theirs gets
    before it stops short of its own tolerance; or with the default."""
    from sklearn.linear_model import LogisticRegression, Ridge

    warnings.filterwarnings("ignore")
    A, y = samples.called(which)
    X = np.ascontiguousarray(A[:, :-1])

    solver, _, by_default = way.partition(", ")

    def model(tol):
        if loss == "ridge":
            return Ridge(alpha=1.0)
        return LogisticRegression(C=1.0, solver=solver, tol=tol, max_iter=100 if by_default else 100000)

    def reached(tol):
        fitted = model(tol).fit(X, y)
        return fit_gradient(loss, A, y, np.append(np.ravel(fitted.coef_), fitted.intercept_))

    tried = {}
    for tol in [1e-4] if loss == "ridge" or by_default else 10.0 ** -np.arange(4, 17):
        gradient = reached(tol)
        tried[tol] = np.linalg.norm(gradient)
        stalled = np.max(np.abs(gradient)) / len(y) > tol  # its own test, on the mean of the losses
        if target is None or tried[tol] <= target or stalled:
            break
    best = min(tried.values())
    tol = max(tol for tol, norm in tried.items() if norm <= max(10 * best, target or 0))
    return lambda: model(tol).fit(X, y), float(tried[tol])


# ---- what the results have to be ----


def fit_gradient(loss, A, y, x):
    z = A @ x
    return A.T @ (z - y if loss == "ridge" else -y / (1 + np.exp(y * z))) + np.append(x[:-1], 0.0)


def penalties_reference(A, y, A_valid, y_valid, l2):
    """The validation loss at the minimiser, and its gradient by the penalties."""
    x, penalty = np.zeros(A.shape[1]), np.append(l2, 0.0)
    for _ in range(50):
        s = 1 / (1 + np.exp(y * (A @ x)))
        H = (A.T * (s * (1 - s))) @ A + np.diag(penalty)
        step = np.linalg.solve(H, A.T @ (-y * s) + penalty * x)
        x = x - step
        if np.linalg.norm(step) <= 1e-12 * np.linalg.norm(x):
            break
    z = -y_valid * (A_valid @ x)
    c = A_valid.T @ (-y_valid / (1 + np.exp(-z))) / len(z)
    return np.mean(np.logaddexp(0, z)), -(np.linalg.solve(H, c) * x)[:-1]


def softmax(s):
    e = np.exp(s - np.max(s, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def softmax_gradient(x, w, A, Y):
    g = A.T @ (w[:, None] * (softmax(A @ x) - Y)) + x
    g[-1] += np.sum(x[-1]) - x[-1]
    return g


def weights_reference(x, w, A, Y, A_valid, Y_valid):
    """The gradient of the mean validation loss by the weights, for x the minimiser; by conjugate gradients."""
    P = softmax(A @ x)

    def product(v):
        q = P * (A @ v)
        out = A.T @ (w[:, None] * (q - P * np.sum(q, axis=1, keepdims=True))) + v
        out[-1] += np.sum(v[-1]) - v[-1]
        return out

    r = A_valid.T @ (softmax(A_valid @ x) - Y_valid) / len(A_valid)
    u, p, rr = np.zeros_like(r), r, np.sum(r * r)
    enough = 1e-16 * rr
    while rr > enough:
        Hp = product(p)
        length = rr / np.sum(p * Hp)
        u, r, before = u + length * p, r - length * Hp, rr
        rr = np.sum(r * r)
        p = r + rr / before * p
    return -np.sum((P - Y) * (A @ u), axis=1)


def selftest():
    """The gradients that peers' are compared with, against differences of the losses."""
    random = np.random.default_rng(2)
    draw = lambda N: (samples.with_ones(random.normal(size=(N, 3))), np.where(random.random(N) < 0.5, -1.0, 1.0))
    (A, y), (A_valid, y_valid), l2, d = draw(40), draw(30), 0.5 + random.random(3), random.normal(size=3)
    value = lambda t: penalties_reference(A, y, A_valid, y_valid, l2 + t * d)[0]
    along = (value(1e-4) - value(-1e-4)) / 2e-4
    assert abs(along / (penalties_reference(A, y, A_valid, y_valid, l2)[1] @ d) - 1) < 1e-6, "penalties"

    Y, Y_valid = np.eye(3)[random.integers(3, size=40)], np.eye(3)[random.integers(3, size=30)]
    w, d = 0.5 + random.random(40), random.normal(size=40)

    def solution(w):
        x = np.zeros((4, 3))
        for _ in range(30):
            g = softmax_gradient(x, w, A, Y).ravel()
            H = np.stack([(softmax_gradient(x + h, w, A, Y) - softmax_gradient(x - h, w, A, Y)).ravel() / 2e-5
                          for h in 1e-5 * np.eye(12).reshape(12, 4, 3)])
            x = x - np.linalg.solve(H, g).reshape(4, 3)
        return x

    loss = lambda x: np.mean(-np.sum(Y_valid * np.log(softmax(A_valid @ x)), axis=1))
    along = (loss(solution(w + 1e-4 * d)) - loss(solution(w - 1e-4 * d))) / 2e-4
    assert abs(along / (weights_reference(solution(w), w, A, Y, A_valid, Y_valid) @ d) - 1) < 1e-5, "weights"

    for loss, value in (("ridge", lambda x: 0.5 * np.sum((A @ x - y) ** 2)),
                        ("logistic", lambda x: np.sum(np.logaddexp(0, -y * (A @ x))))):
        objective = lambda x: value(x) + 0.5 * np.sum(x[:-1] ** 2)
        x, d = random.normal(size=4), random.normal(size=4)
        along = (objective(x + 1e-5 * d) - objective(x - 1e-5 * d)) / 2e-5
        assert abs(along / (fit_gradient(loss, A, y, x) @ d) - 1) < 1e-6, loss
