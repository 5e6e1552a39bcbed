"""Batches of dense quadratic programs whose data are JAX's arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onestep
from onestep._core import Certificate
from onestep._program_data import AXES, completed
from onestep.jax._arrays import Dtype, as_double, check_x64
from onestep.jax._layer import Layer
from onestep.jax._problem import Problem, Shape
from onestep.jax._solver import Solved


class _Programs(Layer):
    """All parts of the data are parameters: one problem serves all programs of the same shapes."""

    def __init__(self, options: dict[str, Any], estimator: Any, on_error: str, dtype: Dtype) -> None:
        solver = onestep.quadratic_program(**options)
        axes = tuple(AXES.values())
        super().__init__(solver, axes, estimator=estimator, on_error=on_error, dtype=dtype, name="QP")
        self._known: dict[tuple[Shape, ...], Problem] = {}

    def _problem(self, theta: list[Shape]) -> Problem:
        key = tuple(theta)
        if key not in self._known:
            if len(self._known) >= 8:
                self._known.pop(next(iter(self._known)), None)
            self._known[key] = super()._problem(theta)
        return self._known[key]

    def _state(self, theta: list[Shape]) -> list[Shape]:
        return [theta[1], theta[3], theta[5], theta[1]]


class QP:
    """min x'Qx/2 + q'x subject to Ax = b, l <= Gx <= u, lo <= x <= hi, whose data are arrays: dense, and in batches.

    >>> qp = onestep.jax.QP()
    >>> x = qp(Q=Q, q=q, G=G, u=u)    # Q (n, n), q (64, n), G (m, n), u (64, m)  ->  x (64, n)

    Whatever the data have in front of the axes of one program is a batch, which is solved on all threads; so is what jax.vmap
    adds. Batches are broadcast against each other; data without one are shared and get the sum of the gradients. What a program
    does not have is left out; a number stands for a vector of it. Q is read as (Q + Q')/2, and its gradient is symmetric.

    `estimator` is one of onestep's. `on_error` and `dtype` are those of `newton`; `options` are those of
    `onestep.quadratic_program`, as tolerance and max_iterations.
    """

    def __init__(
        self, *, estimator: Any = None, on_error: str = "raise", dtype: Dtype = np.float64, **options: Any
    ) -> None:
        self.programs = _Programs(options, estimator, on_error, dtype)

    def __call__(
        self,
        Q: Any = None,
        q: Any = None,
        A: Any = None,
        b: Any = None,
        G: Any = None,
        l: Any = None,  # noqa: E741
        u: Any = None,
        lo: Any = None,
        hi: Any = None,
    ) -> jax.Array:
        """The minimisers x."""
        return self.solve(Q, q, A, b, G, l, u, lo, hi).x  # type: ignore[no-any-return]

    def solve(
        self,
        Q: Any = None,
        q: Any = None,
        A: Any = None,
        b: Any = None,
        G: Any = None,
        l: Any = None,  # noqa: E741
        u: Any = None,
        lo: Any = None,
        hi: Any = None,
    ) -> Solved:
        """x and the multipliers of equalities, rows and bounds, as parts of the state; and a status for each program."""
        data = (Q, q, A, b, G, l, u, lo, hi)
        return self.programs.solve_like(_completed(data, self.programs.dtype), data)

    def certificate(
        self,
        Q: Any = None,
        q: Any = None,
        A: Any = None,
        b: Any = None,
        G: Any = None,
        l: Any = None,  # noqa: E741
        u: Any = None,
        lo: Any = None,
        hi: Any = None,
        *,
        cotangent: Any,
    ) -> Certificate:
        """How wrong the gradients of one program can be that reverse mode returns for this cotangent of x."""
        data = _completed((Q, q, A, b, G, l, u, lo, hi), self.programs.dtype)
        return self.programs.certificate(*data, cotangent=cotangent)


def _completed(data: tuple[Any, ...], dtype: Dtype) -> list[Any]:
    check_x64("QP")
    given = {name: as_double("QP", name, value, dtype) for name, value in zip(AXES, data) if value is not None}
    return completed(given, lambda shape, value: jnp.full(shape, value, np.float64), jnp.broadcast_to)
