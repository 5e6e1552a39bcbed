"""What the layers of JAX call, which hand over values with the batch as their last axis, or without one.

CVXPYlayers 1.2 looks for this where its own solvers have theirs. Outside jax.jit a backward pass differentiates the
solution of its forward pass; inside, what is recorded are two functions of arrays, the second of which solves again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onestep.cvxpylayers import _programs
from onestep.cvxpylayers._canonical import Canonical
from onestep.cvxpylayers._programs import Solved

if TYPE_CHECKING:
    from onestep.cvxpylayers._solver import QPSolver


@dataclass
class JaxContext:
    """Of one layer."""

    solver: QPSolver
    canonical: Canonical

    def jax_to_data(self, P: Any, q: Any, A: Any) -> JaxData:
        return JaxData(self.solver, self.canonical, P, q, A)


@dataclass
class JaxData:
    """Of one call of it."""

    solver: QPSolver
    canonical: Canonical
    P: Any
    q: Any
    A: Any

    def jax_solve_only(self, solver_args: dict[str, Any] | None = None) -> tuple[Any, Any]:
        primal, dual, _ = self.jax_solve(solver_args)
        return primal, dual

    def jax_solve(self, solver_args: dict[str, Any] | None = None) -> tuple[Any, Any, Any]:
        """Minimisers and multipliers with the batch as their first axis, and what differentiates them."""
        import jax
        import jax.numpy as jnp

        values = self._values()
        if not self._is_traced():
            primal, dual, solved = self._solve(solver_args, *values)
            return jnp.asarray(primal, self.q.dtype), jnp.asarray(dual, self.q.dtype), solved

        def on_host(*values: Any) -> tuple[Any, Any]:
            primal, dual, _ = self._solve(solver_args, *values)
            return primal.astype(self.q.dtype), dual.astype(self.q.dtype)

        count, rows = self._count(), self.canonical.equalities + self.canonical.inequalities
        shapes = [_like(jax, (count, size), self.q.dtype) for size in (self.canonical.variables, rows)]
        primal, dual = jax.pure_callback(on_host, tuple(shapes), *values, vmap_method="sequential")
        return primal, dual, solver_args

    def jax_derivative(self, dprimal: Any, ddual: Any, saved: Any) -> tuple[Any, Any, Any]:
        """The gradients of the values, in their shapes."""
        import jax
        import jax.numpy as jnp

        of = [None if v is None else _like(jax, v.shape, v.dtype) for v in (self.P, self.q, self.A)]
        values, traced = self._values(), isinstance(dprimal, jax.core.Tracer) or not isinstance(saved, Solved)

        def on_host(dprimal: Any, ddual: Any, *values: Any) -> list[Any]:
            solved = saved if isinstance(saved, Solved) else self._solve(saved, *values)[2]
            found = _programs.vjp(solved, np.asarray(dprimal, np.float64), np.asarray(ddual, np.float64))
            pairs = [(g, like) for g, like in zip(found, of) if like is not None]
            return [np.zeros(like.shape, like.dtype) if g is None else _as(g, like) for g, like in pairs]

        if traced:
            given = () if isinstance(saved, Solved) else values
            found = jax.pure_callback(
                on_host, [like for like in of if like is not None], dprimal, ddual, *given, vmap_method="sequential"
            )
        else:
            found = [jnp.asarray(g) for g in on_host(dprimal, ddual)]
        return (None if self.P is None else found[0]), found[-2], found[-1]

    def _values(self) -> list[Any]:
        return [v for v in (self.P, self.q, self.A) if v is not None]

    def _solve(self, solver_args: dict[str, Any] | None, *values: Any) -> Any:
        """Of arrays in the memory of the host."""
        batch_first = [np.atleast_2d(np.asarray(v, np.float64).T) for v in values]
        P = batch_first[0] if self.P is not None else None
        return self.solver.solve_canonical(self.canonical, P, batch_first[-2], batch_first[-1], solver_args)

    def _count(self) -> int:
        return 1 if self.q.ndim == 1 else int(self.q.shape[1])

    def _is_traced(self) -> bool:
        import jax

        return any(isinstance(v, jax.core.Tracer) for v in self._values())


def _like(jax: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _as(gradient: Any, like: Any) -> Any:
    """With the batch as its last axis, or without one."""
    return np.asarray(gradient.T if len(like.shape) == 2 else gradient[0], like.dtype)
