"""JAX functions as foreign steps: not traced, differentiated by JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from onestep._core import ForeignStep
from onestep._errors import MisuseError
from onestep.jax._arrays import check_x64, is_traced

Array = np.ndarray[Any, Any]


def _now(function: Callable[..., Any], *arguments: Any) -> Any:
    """Computed even where a function is being traced on this thread, as when its compilation asks for shapes."""
    result = function(*arguments)
    if not is_traced(jax.tree.leaves(result)):
        return result
    with jax.ensure_compile_time_eval():
        return function(*arguments)


def foreign_step(step: Callable[..., Any]) -> ForeignStep:
    """A step x <- F(x, *theta) that is any JAX function, with loops, branches and derivative rules of its own: JAX runs and
    differentiates it, onestep solves and gives the estimators. The state is one vector.

    >>> def F(x, a):
    ...     return jax.lax.fori_loop(0, 3, lambda _, x: 0.5 * (x + a / x), x)
    >>> root = onestep.fixed_point(onestep.jax.foreign_step(F))
    >>> root.solve(np.ones(2), np.array([2.0, 3.0]))

    A step that can be traced is faster, and onestep.jax.fixed_point takes it. What the solver of a foreign step converges to is
    differentiated by JAX, and batched by vmap, where it is a layer (`onestep.jax.layer`), but not compiled: the computation
    that runs a compiled function would wait for the one that runs the step, and both need the same threads of XLA.
    """
    if not callable(step):
        raise MisuseError(f"[foreign_step] a JAX function is needed here, not an object of type {type(step).__name__}")
    run = jax.jit(step)
    forward = jax.jit(lambda x, theta, dx, dtheta: jax.jvp(step, (x, *theta), (dx, *dtheta))[1])
    backward = jax.jit(lambda x, theta, c: jax.vjp(step, x, *theta)[1](c))

    def apply(x: Array, *theta: Array) -> Array:
        check_x64("foreign_step")
        y = _now(run, x, *theta)
        if getattr(y, "shape", None) != x.shape or y.dtype != np.float64:
            found = f"{y.dtype} of shape {y.shape}" if hasattr(y, "dtype") else type(y).__name__
            raise MisuseError(
                f"[foreign_step] the step returns {found}: it takes x, of shape {x.shape}, and returns the next x"
            )
        return np.asarray(y)

    apply.runs_jax = True  # type: ignore[attr-defined]

    def jvp(x: Array, theta: tuple[Array, ...], dx: Array | None, dtheta: tuple[Array, ...] | None) -> Array:
        along = np.zeros_like(x) if dx is None else dx
        moved = tuple(np.zeros_like(t) for t in theta) if dtheta is None else dtheta
        return np.asarray(_now(forward, x, theta, along, moved))

    def vjp(x: Array, theta: tuple[Array, ...], c: Array) -> tuple[Array, tuple[Array, ...]]:
        of_x, *of_theta = _now(backward, x, theta, c)
        return np.asarray(of_x), tuple(np.asarray(t) for t in of_theta)

    return ForeignStep(apply, jvp, vjp)
