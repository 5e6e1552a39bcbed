"""What the functions of NumPy mean for an expression, where that is more than a function of the library.

Each takes the arguments that NumPy has for it, as far as they are traced; any other is a TypeError.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from onestep import _core
from onestep._core import Expr
from onestep._errors import MisuseError, TracingError
from onestep._indexing import getitem


def expr(a: Any) -> Expr:
    return a if isinstance(a, Expr) else _core.constant(a)


def _axis_of(axis: Any, ndim: int) -> int | None:
    """The axis as the library has it: None for all entries."""
    if isinstance(axis, tuple):
        axes = {a + ndim if a < 0 else a for a in axis}
        if len(axes) != len(axis):
            raise ValueError("duplicate value in 'axis'")
        if len(axis) != 1:
            for a in axis:
                _axis_of(a, ndim)
            if len(axis) == ndim:
                return None
            raise TracingError("a reduction is over one axis, or over all of them")
        (axis,) = axis
    if axis is None:
        return None
    return _one_axis(axis, ndim)


def _one_axis(axis: Any, ndim: int) -> int:
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(number, ndim)
    return number % ndim


def _reduction(reduce: Callable[..., Expr]) -> Callable[..., Expr]:
    def traced(a: Any, axis: Any = None, *, keepdims: bool = False) -> Expr:
        a = expr(a)
        along = _axis_of(axis, a.ndim)
        result = reduce(a, along)
        if not keepdims:
            return result
        kept = [1 if along is None or k == along else n for k, n in enumerate(a.shape)]
        return _core.reshape(result, kept)

    return traced


def _extremum(name: str, reduce: Callable[..., Expr]) -> Callable[..., Expr]:
    def of_entries(a: Expr, along: int | None) -> Expr:
        if (a.size if along is None else a.shape[along]) == 0:
            raise TracingError(f"np.{name}: shape {a.shape} has no entries to take the {name}imum of")
        return reduce(a, along)

    return _reduction(of_entries)


total = _reduction(_core.sum)
mean = _reduction(_core.mean)
prod = _reduction(_core.prod)
largest = _extremum("max", _core.max)
smallest = _extremum("min", _core.min)


def var(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Expr:
    a = expr(a)
    along = _axis_of(axis, a.ndim)
    n = a.size if along is None else a.shape[along]
    squares = _core.square(a - mean(a, axis, keepdims=True))
    return _core.div(total(squares, axis, keepdims=keepdims), n - ddof)


def std(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Expr:
    return _core.sqrt(var(a, axis, ddof=ddof, keepdims=keepdims))


def cumsum(a: Any, axis: int | None = None) -> Expr:
    a = expr(a)
    return _core.cumsum(ravel(a), 0) if axis is None else _core.cumsum(a, _axis_of(axis, a.ndim))


def reshape(a: Any, shape: Any) -> Expr:
    a = expr(a)
    dims = [operator.index(n) for n in shape] if isinstance(shape, (tuple, list)) else [operator.index(shape)]
    if dims.count(-1) == 1:
        rest = math.prod(n for n in dims if n != -1)
        if rest == 0 or a.size % rest:
            raise MisuseError(f"[reshape] {a.size} entries do not fit in shape {tuple(dims)}")
        dims[dims.index(-1)] = a.size // rest
    return _core.reshape(a, dims)


def ravel(a: Any) -> Expr:
    a = expr(a)
    return a if a.ndim == 1 else _core.reshape(a, [a.size])


def transpose(a: Any, axes: Any = None) -> Expr:
    a = expr(a)
    order = None if axes is None else tuple(n % a.ndim for n in axes)
    if order is not None and sorted(order) != list(range(a.ndim)):
        raise ValueError(f"axes {axes} are no order of the axes of shape {a.shape}")
    return a if order == tuple(range(a.ndim)) else _core.transpose(a)


def dot(a: Any, b: Any) -> Expr:
    a, b = expr(a), expr(b)
    return _core.mul(a, b) if a.ndim == 0 or b.ndim == 0 else _core.matmul(a, b)


def inner(a: Any, b: Any) -> Expr:
    a, b = expr(a), expr(b)
    return _core.mul(a, b) if a.ndim == 0 or b.ndim == 0 else _core.matmul(a, _core.transpose(b))


def concatenate(arrays: Any, axis: int | None = 0) -> Expr:
    parts = [expr(a) for a in arrays]
    if axis is None:
        return _core.concat([ravel(a) for a in parts])
    return _core.concat(parts, _one_axis(axis, parts[0].ndim))


def stack(arrays: Any, axis: int = 0) -> Expr:
    parts = [expr(a) for a in arrays]
    return _core.stack(parts, _one_axis(axis, parts[0].ndim + 1))


def hstack(arrays: Any) -> Expr:
    parts = [_core.reshape(expr(a), [1]) if np.ndim(a) == 0 else expr(a) for a in arrays]
    return _core.concat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(arrays: Any) -> Expr:
    return _core.concat([_core.reshape(expr(a), [1, np.size(a)]) if np.ndim(a) < 2 else expr(a) for a in arrays], 0)


def column_stack(arrays: Any) -> Expr:
    return _core.concat([_core.reshape(expr(a), [np.size(a), 1]) if np.ndim(a) < 2 else expr(a) for a in arrays], 1)


def where(condition: Any, *choices: Any) -> Expr:
    if len(choices) != 2:
        raise TracingError("np.where of an expression takes both choices: np.where(condition, a, b)")
    return _core.where(condition, *choices)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Expr:
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    a = expr(a)
    if low is not None and high is not None:
        return _core.clip(a, low, high)
    if low is not None:
        return _core.maximum(a, low)
    return a if high is None else _core.minimum(a, high)


def diag(a: Any, k: int = 0) -> Expr:
    a = expr(a)
    if k != 0:
        raise TracingError("np.diag of an expression is of the main diagonal: k=0")
    return _core.diag(a) if a.ndim == 1 else _core.diagonal(a)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Expr:
    if (offset, axis1, axis2) != (0, 0, 1):
        raise TracingError("np.diagonal of an expression is the main diagonal: offset=0, axis1=0, axis2=1")
    return _core.diagonal(a)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Expr:
    if (offset, axis1, axis2) != (0, 0, 1):
        raise TracingError("np.trace of an expression is of the main diagonal: offset=0, axis1=0, axis2=1")
    return _core.trace(a)


def flip(a: Any, axis: int | None = None) -> Expr:
    result = expr(a)
    for k in range(result.ndim) if axis is None else [_one_axis(axis, result.ndim)]:
        result = _core.reverse(result, k)
    return result


def take(a: Any, indices: Any, axis: int | None = None) -> Expr:
    a = expr(a)
    if axis is None:
        return getitem(ravel(a), indices)
    return getitem(a, (slice(None),) * _one_axis(axis, a.ndim) + (indices,))


def squeeze(a: Any, axis: int | None = None) -> Expr:
    a = expr(a)
    along = _axis_of(axis, a.ndim)
    if along is not None and a.shape[along] != 1:
        raise ValueError(f"axis {axis} of shape {a.shape} has not size 1")
    return _core.reshape(a, [n for k, n in enumerate(a.shape) if n != 1 or (along is not None and k != along)])


def expand_dims(a: Any, axis: int) -> Expr:
    a = expr(a)
    at = _one_axis(axis, a.ndim + 1)
    return _core.reshape(a, [*a.shape[:at], 1, *a.shape[at:]])


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Expr:
    x = expr(x)
    # Two axes are those of matrices, one is that of vectors; without any, x is what it is.
    number_of_axes = x.ndim if axis is None else len(axis) if isinstance(axis, tuple) else 1
    of_vectors = number_of_axes == 1
    if not (ord is None or (ord == "fro" and not of_vectors) or (ord == 2 and of_vectors)):
        raise TracingError(
            "np.linalg.norm is traced for the Euclidean norm; others are np.sum(np.abs(x)) and np.max(np.abs(x))"
        )
    return _reduction(_core.norm)(x, axis, keepdims=keepdims)


def solve(a: Any, b: Any) -> Expr:
    return _core.solve_factored(_core.lu(a), b)


def logaddexp(a: Any, b: Any) -> Expr:
    """log(exp(a) + exp(b)) without overflow for finite arguments; smooth where they are equal."""
    if isinstance(a, (int, float)) and a == 0:
        return _core.softplus(b)
    if isinstance(b, (int, float)) and b == 0:
        return _core.softplus(a)
    return _core.add(b, _core.softplus(_core.sub(a, b)))


def power(a: Any, b: Any) -> Expr:
    if isinstance(b, (int, float)):
        if b == 0.5:
            return _core.sqrt(a)
        if b == 3:
            return _core.mul(a, _core.square(a))
        if b == 4:
            return _core.square(_core.square(a))
    return _core.pow(a, b)


def is_not_zero(a: Any) -> Expr:
    return _core.not_equal(a, 0.0)
