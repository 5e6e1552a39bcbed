"""JAX on quadratic programs by the paper's three methods, after a primal-dual interior point method with Mehrotra's
corrector as a user of JAX writes it: compiled, in double precision, to residuals of 1e-12 relative to their terms and a mean
of s z of 1e-15, which programs near to one without a derivative need. The system of a step is not reduced to one for
Cholesky's factorisation, which loses the digits that derivatives need. One step is the derivative of a Newton step from the
last iterate, which costs what that of the step before would, and is more accurate."""
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


# user: begin jax
def residuals(state, theta):
    (x, y, z, s), (Q, q, A, b, G, h) = state, theta
    return Q @ x + q + A.T @ y + G.T @ z, A @ x - b, G @ x + s - h


def newton_step(state, theta):
    # For a target of s * z, the step towards it.
    (x, y, z, s), (Q, q, A, b, G, h) = state, theta
    n, m = len(q), len(b)
    dual, equal, below = residuals(state, theta)
    K = jnp.block([[Q, A.T, G.T], [A, jnp.zeros((m, m + len(h)))], [G, jnp.zeros((len(h), m)), -jnp.diag(s / z)]])

    def step(target):
        d = jnp.linalg.solve(K, jnp.concatenate([-dual, -equal, -below - target / z + s]))
        dz = d[n + m :]
        return d[:n], d[n : n + m], dz, target / z - s - s / z * dz

    return step


def longest(v, dv):
    return jnp.minimum(1.0, jnp.min(jnp.where(dv < 0, -v / dv, jnp.inf)))


def iterate(state, theta):
    _, _, z, s = state
    step, mu = newton_step(state, theta), jnp.mean(s * z)
    _, _, dz, ds = step(jnp.zeros_like(s))
    ahead = jnp.mean((s + longest(s, ds) * ds) * (z + longest(z, dz) * dz))
    full = step((ahead / mu) ** 3 * mu - ds * dz)
    length = 0.995 * jnp.minimum(longest(z, full[2]), longest(s, full[3]))
    return tuple(v + length * dv for v, dv in zip(state, full))


def solve(theta):
    # The last iterate and how many iterations there were.
    Q, q, A, b, G, h = theta

    def unsolved(state):
        x, y, z, s = state
        worst = jnp.array(0.0)
        terms = [(Q @ x, q, A.T @ y, G.T @ z), (b,), (G @ x, h)]
        for residual, of in zip(residuals(state, theta), terms):
            scale = 1 + jnp.max(jnp.stack([jnp.max(jnp.abs(term)) for term in of]))
            worst = jnp.maximum(worst, jnp.max(jnp.abs(residual)) / scale)
        return (worst > 1e-12) | (jnp.mean(s * z) > 1e-15)

    start = (jnp.zeros_like(q), jnp.zeros_like(b), jnp.ones_like(h), jnp.ones_like(h))
    goes_on = lambda run: unsolved(run[0]) & (run[1] < 100)
    return jax.lax.while_loop(goes_on, lambda run: (iterate(run[0], theta), run[1] + 1), (start, 0))
# user: end


def one_step(*data):
    # user: begin jax one-step
    def gradient(theta):
        last = solve(theta)[0]
        x, _, z, s = last
        _, pullback = jax.vjp(lambda theta: x + newton_step(last, theta)(s * z)[0], theta)
        return pullback(x)[0]
    # user: end

    return jitted(gradient, data)


def implicit(*data):
    # user: begin jax implicit
    def conditions(solution, theta):
        (x, y, z), (Q, q, A, b, G, h) = solution, theta
        return jnp.concatenate([Q @ x + q + A.T @ y + G.T @ z, A @ x - b, z * (G @ x - h)])

    def gradient(theta):
        solution = solve(theta)[0][:3]
        jacobian = jnp.concatenate(jax.jacfwd(conditions)(solution, theta), axis=1)
        seed = jnp.concatenate([solution[0], jnp.zeros(len(jacobian) - len(solution[0]))])
        _, pullback = jax.vjp(lambda theta: conditions(solution, theta), theta)
        return pullback(-jnp.linalg.solve(jacobian.T, seed))[0]
    # user: end

    return jitted(gradient, data)


def unrolled(*data):
    # user: begin jax unrolled
    iterations = int(jax.jit(solve)(data)[1])

    def solution(theta):
        (_, q, _, b, _, h) = theta
        start = (jnp.zeros_like(q), jnp.zeros_like(b), jnp.ones_like(h), jnp.ones_like(h))
        return jax.lax.scan(lambda state, _: (iterate(state, theta), None), start, length=iterations)[0][0]

    gradient = jax.grad(lambda theta: 0.5 * jnp.sum(jnp.square(solution(theta))))
    # user: end
    return jitted(gradient, data)


def jitted(gradient, data):
    """Compiled, on this data, as a contender returns it."""
    theta = tuple(jax.device_put(part) for part in data)
    forward, both = jax.jit(lambda theta: solve(theta)[0][0]), jax.jit(gradient)
    return lambda: forward(theta).block_until_ready(), lambda: jax.block_until_ready(both(theta))
