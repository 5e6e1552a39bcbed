"""The penalty of a ridge regression by gradient descent on a held-out loss, all of it one compiled function of JAX."""

import jax
import jax.numpy as jnp
import numpy as np

import onestep.jax

jax.config.update("jax_enable_x64", True)

rng = np.random.default_rng(1)
truth = np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.0])
A, B = jnp.array(rng.normal(size=(40, 6))), jnp.array(rng.normal(size=(40, 6)))
y, z = A @ truth + 2 * rng.normal(size=40), B @ truth + 2 * rng.normal(size=40)


def objective(x: jax.Array, penalty: jax.Array) -> jax.Array:
    return jnp.sum((A @ x - y) ** 2) + penalty * jnp.sum(x**2)


fit = onestep.jax.newton(objective)


@jax.jit
def held_out(logarithm: jax.Array) -> jax.Array:
    return jnp.mean((B @ fit(jnp.zeros(6), jnp.exp(logarithm)) - z) ** 2)


slope, curvature = jax.jit(jax.grad(held_out)), jax.jit(jax.grad(jax.grad(held_out)))
t = jnp.array(0.0)
for k in range(20):
    t -= jnp.clip(slope(t) / jnp.abs(curvature(t)), -1, 1)  # Newton's method for the logarithm of the penalty
print(f"penalty {jnp.exp(t):.4f}, held-out loss {held_out(t):.4f}, slope {slope(t):.1e}")
assert abs(slope(t)) < 1e-8

grid = jnp.linspace(-4, 8, 200)
assert held_out(t) <= jax.vmap(held_out)(grid).min() + 1e-12
