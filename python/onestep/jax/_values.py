"""What a jaxpr is evaluated on: expressions, and NumPy's arrays where the value is known while tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onestep import _core
from onestep._core import Expr
from onestep._errors import TracingError

Known: TypeAlias = "npt.NDArray[Any]"
Value: TypeAlias = "Expr | Known"


def is_known(value: Value) -> bool:
    return not isinstance(value, Expr)


def number_in(value: Value) -> float | None:
    """The number that all entries of a known array are, if so: then it need not be an array at all."""
    if isinstance(value, Expr) or value.size == 0 or value.dtype.kind not in "biuf":
        return None
    first = value.flat[0]
    if value.flat[-1] != first or not np.all(value == first):
        return None
    if first == 0 and value.dtype.kind == "f" and np.any(np.signbit(value) != np.signbit(first)):
        return None
    return float(first)


def as_expr(value: Value, who: str) -> Expr:
    """A known array as a constant. An identity, and an array of equal numbers, are kept as that."""
    if isinstance(value, Expr):
        return value
    if value.dtype.kind not in "biuf":
        raise TracingError(f"[{who}] an array of dtype {value.dtype}: expressions are real numbers")
    shape = checked(value.shape, who)
    number = number_in(value)
    if number is not None:
        return _core.constant(number) if not shape else _core.broadcast(number, list(shape))
    if len(shape) == 2 and shape[0] == shape[1] and value[0, 0] == 1 and np.array_equal(value, np.eye(shape[0])):
        return _core.eye(shape[0])
    return _core.constant(value if value.dtype == np.float64 else value.astype(np.float64))


def checked(shape: Sequence[int], who: str) -> tuple[int, ...]:
    """The shape, if an expression can have it."""
    if len(shape) > 2:
        raise TracingError(
            f"[{who}] an array of shape {tuple(shape)}: an expression has at most two axes. Write it with matrix products and "
            "sums along an axis, or use the function as a foreign step, see onestep.jax.foreign_step"
        )
    return tuple(int(n) for n in shape)


def picked(a: Value, index: Known, who: str) -> Expr:
    """The entries of `a` with these numbers, which count row by row; the result has the shape of `index`."""
    expr = as_expr(a, who)
    shape = checked(index.shape, who)
    columns = expr.shape[1] if expr.ndim == 2 else 1
    flat = index.ravel()
    if index.size == 0:
        return _core.reshape(_core.slice(_core.reshape(expr, [expr.size]), 0, 0), list(shape))
    if expr.ndim == 2 and expr.size > 0 and index.ndim in (1, 2):
        table = index.reshape(-1, index.shape[-1])
        numbers = table[:, 0] // columns
        if np.array_equal(table, numbers[:, None] * columns + np.arange(columns)):
            rows = _along(expr, numbers, 0)
            return rows if index.ndim == 2 else _core.reshape(rows, list(shape))
        if index.ndim == 2 and table.shape[0] == expr.shape[0]:
            if np.all(table // columns == np.arange(expr.shape[0])[:, None]) and np.all(table % columns == table[0]):
                return _along(expr, table[0], 1)
        if index.ndim == 1 and np.array_equal(index, np.arange(min(expr.shape)) * (columns + 1)):
            if index.size == min(expr.shape):
                return _core.diagonal(expr)
    vector = expr if expr.ndim == 1 else _core.reshape(expr, [expr.size])
    taken = _along(vector, flat, 0)
    return taken if len(shape) == 1 else _core.reshape(taken, list(shape))


def _along(expr: Expr, numbers: Known, axis: int) -> Expr:
    first, n = int(numbers[0]), len(numbers)
    if np.array_equal(numbers, np.arange(first, first + n)):
        return expr if n == expr.shape[axis] else _core.slice(expr, first, first + n, axis)
    if n == expr.shape[axis] and np.array_equal(numbers, np.arange(n)[::-1]):
        return _core.reverse(expr, axis)
    return _core.gather(expr, numbers.tolist(), axis)


def placed(entries: Value, index: Known, size: int, who: str) -> Expr:
    """The opposite of `picked` from a vector of `size` zeros: the entries are added up at these numbers."""
    flat = _core.reshape(as_expr(entries, who), [index.size])
    numbers = index.ravel()
    if index.size > 0 and np.array_equal(numbers, np.arange(int(numbers[0]), int(numbers[0]) + index.size)):
        return flat if index.size == size else _core.pad(flat, int(numbers[0]), size)
    zeros = _core.constant(np.zeros(size))
    return _core.vjp(_core.gather(zeros, numbers.tolist()), zeros, flat)
