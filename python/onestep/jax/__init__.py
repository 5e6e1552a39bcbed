"""Solvers inside of JAX: what an iterative algorithm converges to, under jit, grad, vmap, jacfwd, jacrev and hessian.

    fit = onestep.jax.newton(lambda x, w: jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(x**2))
    jax.jit(jax.grad(lambda w: jnp.sum(fit(jnp.zeros(13), w) ** 2)))(w)

Objectives are JAX functions, whose jaxpr becomes a graph of onestep; `layer` takes a solver whose function is NumPy; `QP` takes
the data of quadratic programs as arrays; `foreign_step` makes a step of a JAX function that cannot be traced.
"""

from __future__ import annotations

try:
    import jax as _jax
except ImportError as error:
    raise ImportError("onestep.jax needs JAX: pip install jax") from error

from onestep.jax._foreign import foreign_step as foreign_step
from onestep.jax._layer import Layer as Layer
from onestep.jax._layer import layer as layer
from onestep.jax._lowering import interface as interface
from onestep.jax._methods import fixed_point as fixed_point
from onestep.jax._methods import gradient_descent as gradient_descent
from onestep.jax._methods import newton as newton
from onestep.jax._methods import newton_cg as newton_cg
from onestep.jax._methods import newton_root as newton_root
from onestep.jax._methods import quadratic_program as quadratic_program
from onestep.jax._program import QP as QP
from onestep.jax._solver import Solved as Solved
from onestep.jax._solver import Solver as Solver
from onestep.jax._table import traced_primitives as traced_primitives

del _jax
