"""The data of quadratic programs as arrays of a framework: which parts there are, and what stands for those left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onestep._errors import MisuseError

Shape = tuple[int, ...]

# The parts in the order of the arguments, with the axes that one program has.
AXES = {"Q": 2, "q": 1, "A": 2, "b": 1, "G": 2, "l": 1, "u": 1, "lo": 1, "hi": 1}

_LEFT_OUT = {"l": -math.inf, "u": math.inf, "lo": -math.inf, "hi": math.inf}  # all others: zero


def completed(
    given: dict[str, Any], full: Callable[[Shape, float], Any], expand: Callable[[Any, Shape], Any]
) -> list[Any]:
    """All parts: those that were left out have no rows, or no effect; a number stands for a vector of it.

    `full` and `expand` make an array of one number, and repeat an array, in the framework of `given`.
    """
    for matrix, vectors in (("A", ("b",)), ("G", ("l", "u"))):
        if (matrix in given) != any(v in given for v in vectors):
            raise MisuseError(f"[QP] {matrix} and {' or '.join(vectors)} belong together: only one of them is given")
    n = _unknowns(given)
    equalities, rows = _rows(given, "A"), _rows(given, "G")
    shapes = {"Q": (n, n), "q": (n,), "A": (equalities, n), "b": (equalities,), "G": (rows, n)}
    shapes |= {"l": (rows,), "u": (rows,), "lo": (n,), "hi": (n,)}
    parts = []
    for name, shape in shapes.items():
        if name not in given:
            parts.append(full(shape, _LEFT_OUT.get(name, 0.0)))
        elif given[name].ndim == 0 and len(shape) == 1:
            parts.append(expand(given[name], shape))
        elif tuple(given[name].shape[-len(shape) :]) != shape:
            there = tuple(given[name].shape)
            raise MisuseError(f"[QP] {name} has shape {there}; the last axes of it must be {shape}")
        else:
            parts.append(given[name])
    return parts


def _unknowns(given: dict[str, Any]) -> int:
    for name in ("q", "Q", "lo", "hi", "A", "G"):
        if name in given and given[name].ndim > 0:
            return int(given[name].shape[-1])
    raise MisuseError("[QP] a program has at least Q or q, whose last axis says how many unknowns there are")


def _rows(given: dict[str, Any], name: str) -> int:
    if name not in given:
        return 0
    if given[name].ndim < 2:
        raise MisuseError(f"[QP] {name} has shape {tuple(given[name].shape)}; a matrix is needed, or a batch of them")
    return int(given[name].shape[-2])
