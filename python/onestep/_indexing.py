"""Indexing of expressions as NumPy's basic indexing and one list of numbers do it, by the library's slices and gathers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from onestep import _core
from onestep._core import Expr
from onestep._errors import TracingError


def _along(a: Expr, index: Any, axis: int) -> tuple[Expr, bool]:
    """One axis indexed, and whether it is gone."""
    n = a.shape[axis]
    if isinstance(index, slice):
        if any(isinstance(bound, Expr) for bound in (index.start, index.stop, index.step)):
            raise TracingError("the bounds of a slice must be known while tracing")
        begin, end, step = index.indices(n)
        if step == 1:
            return (a if (begin, end) == (0, n) else _core.slice(a, begin, max(begin, end), axis)), False
        if step == -1 and (begin, end) == (n - 1, -1):
            return _core.reverse(a, axis), False
        return _core.gather(a, list(range(begin, end, step)), axis), False
    if isinstance(index, (list, np.ndarray)):
        numbers = np.asarray(index)
        if numbers.dtype == object or numbers.ndim != 1:
            raise TracingError("entries of an expression are chosen by a list of numbers, or an array of them with one axis")
        if numbers.dtype == bool:
            if numbers.size != n:
                raise IndexError(f"a mask of {numbers.size} entries for an axis of {n}")
            numbers = np.flatnonzero(numbers)
        elif numbers.size == 0:
            numbers = numbers.astype(np.int64)
        elif numbers.dtype.kind not in "iu":
            raise TracingError(f"an index is a whole number, not one of dtype {numbers.dtype}")
        for number in numbers:
            _check(int(number), n)
        return _core.gather(a, numbers.tolist(), axis), False
    try:
        number = operator.index(index)
    except TypeError:
        raise TracingError(
            f"an index is a whole number, a slice, a list of numbers, ... or None, not an object of type {type(index).__name__}"
        ) from None
    _check(number, n)
    number %= n
    return _core.slice(a, number, number + 1, axis), True


def _check(number: int, n: int) -> None:
    if not -n <= number < n:
        raise IndexError(f"index {number} is out of bounds for an axis of {n} entries")


def _is_torn(indices: tuple[Any, ...]) -> bool:
    """Whether NumPy would put the entries chosen by a list in front: a number, a slice, ... or None, and then the list."""
    chosen = [k for k, i in enumerate(indices) if not (i is None or i is Ellipsis or isinstance(i, slice))]
    has_list = any(isinstance(indices[k], (list, np.ndarray)) for k in chosen)
    return has_list and chosen[-1] - chosen[0] >= len(chosen)


def getitem(a: Expr, index: Any) -> Expr:
    """a[index]: whole numbers, slices, one list of numbers or mask, ... and None."""
    indices = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, Expr) for i in indices):
        raise TracingError("an index must be known while tracing; np.where(condition, a, b) chooses by an expression")
    if any(isinstance(i, (bool, np.bool_)) for i in indices):
        raise TracingError("a truth value is no index: choose with if before tracing, or with np.where")
    if sum(isinstance(i, (list, np.ndarray)) for i in indices) > 1:
        raise TracingError("at most one axis is indexed by a list: take one after the other, a[rows][:, columns]")
    if _is_torn(indices):
        raise TracingError("a number and a list with None between them index in NumPy's other order: index first, a[0, rows][None]")
    used = sum(i is not None and i is not Ellipsis for i in indices)
    if used > a.ndim:
        raise IndexError(f"{used} indices for an expression of shape {a.shape}")
    if not any(i is Ellipsis for i in indices):
        indices = (*indices, Ellipsis)
    at = next(k for k, i in enumerate(indices) if i is Ellipsis)
    if any(i is Ellipsis for i in indices[at + 1 :]):
        raise IndexError("at most one ... in an index")
    indices = (*indices[:at], *[slice(None)] * (a.ndim - used), *indices[at + 1 :])
    shape: list[int] = []
    axis = 0
    for i in indices:
        if i is None:
            shape.append(1)
            continue
        a, gone = _along(a, i, axis)
        if not gone:
            shape.append(a.shape[axis])
        axis += 1
    return a if a.shape == tuple(shape) else _core.reshape(a, shape)
