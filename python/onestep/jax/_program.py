"""Batches of dense quadratic programs whose data are JAX's arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onestep
from onestep._core import Certificate
from onestep._errors import MisuseError
from onestep.jax._arrays import Dtype, as_double, check_x64
from onestep.jax._layer import Layer
from onestep.jax._problem import Problem, Shape
from onestep.jax._solver import Solved

_PARTS = {"Q": 2, "q": 1, "A": 2, "b": 1, "G": 2, "l": 1, "u": 1, "lo": 1, "hi": 1}


class _Programs(Layer):
    """All parts of the data are parameters: one problem serves all programs of the same shapes."""

    def __init__(self, options: dict[str, Any], estimator: Any, on_error: str, dtype: Dtype) -> None:
        solver = onestep.quadratic_program(**options)
        axes = tuple(_PARTS.values())
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
    """All parts as arrays: those that were left out have no rows, or no effect."""
    check_x64("QP")
    given = {name: as_double("QP", name, value, dtype) for name, value in zip(_PARTS, data) if value is not None}
    for matrix, vectors in (("A", ("b",)), ("G", ("l", "u"))):
        if (matrix in given) != any(v in given for v in vectors):
            raise MisuseError(f"[QP] {matrix} and {' or '.join(vectors)} belong together: only one of them is given")
    n = _last_size(given, ("q", "Q", "lo", "hi", "A", "G"))
    equalities, rows = _rows(given, "A"), _rows(given, "G")
    shapes: dict[str, Shape] = {"Q": (n, n), "q": (n,), "A": (equalities, n), "b": (equalities,), "G": (rows, n)}
    shapes |= {"l": (rows,), "u": (rows,), "lo": (n,), "hi": (n,)}
    without = {"l": -np.inf, "u": np.inf, "lo": -np.inf, "hi": np.inf}
    return [_whole(name, given.get(name), shape, without.get(name, 0.0)) for name, shape in shapes.items()]


def _whole(name: str, value: Any, shape: Shape, without: float) -> Any:
    if value is None:
        return jnp.full(shape, without, np.float64)
    if value.ndim == 0 and len(shape) == 1:
        return jnp.broadcast_to(value, shape)
    if tuple(value.shape[-len(shape) :]) != shape:
        raise MisuseError(f"[QP] {name} has shape {tuple(value.shape)}; the last axes of it must be {shape}")
    return value


def _last_size(given: dict[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        if name in given and given[name].ndim > 0:
            return int(given[name].shape[-1])
    raise MisuseError("[QP] a program has at least Q or q, whose last axis says how many unknowns there are")


def _rows(given: dict[str, Any], name: str) -> int:
    if name not in given:
        return 0
    if given[name].ndim < 2:
        raise MisuseError(f"[QP] {name} has shape {tuple(given[name].shape)}; a matrix is needed, or a batch of them")
    return int(given[name].shape[-2])
