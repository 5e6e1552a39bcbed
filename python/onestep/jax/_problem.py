"""One problem, or a batch of them, as JAX's primitives have it: a solver for given shapes, and the calls that it answers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import numpy as np

from onestep import _core
from onestep._core import Solver

Flags: TypeAlias = "tuple[bool, ...]"
Shape: TypeAlias = "tuple[int, ...]"
Dtype = np.dtype(np.float64)


@dataclass(frozen=True)
class Layout:
    """How many problems there are, and which of the inputs (parts of the start, then parameters) have one array for each of
    them along a first axis. The others are shared."""

    batched: Flags
    count: int


@dataclass(frozen=True)
class Directions:
    """How many there are, which parameters have them, and which of these have an axis of problems though the parameter is
    shared: else they are summed over the problems."""

    count: int
    given: Flags
    apart: Flags


@dataclass(eq=False)
class Problem:
    """A solver for given shapes. Equations of JAX refer to it; it is the same problem only if it is the same object."""

    name: str
    solver: Solver
    """Of the parameters and then the parts of the start, where it takes one: it starts from these."""
    on_error: str
    start: list[Shape]
    theta: list[Shape]
    state: list[Shape]
    core: _core.PreparedProblems
    estimator: Any
    renewed: Callable[[], Solver]
    """A solver whose last parameters are where it starts."""
    cannot_compile: str = ""
    """Why compiled functions cannot call it, if so."""
    _calls: dict[Any, _core.CompiledCall] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        return f"<{self.name} of {len(self.theta)} parameters>"

    @property
    def inputs(self) -> int:
        return len(self.start) + len(self.theta)

    def call(self, key: Any, make: Callable[[], _core.CompiledCall]) -> _core.CompiledCall:
        """Made when it is first asked for."""
        with self._lock:
            if key not in self._calls:
                if len(self._calls) >= 64:
                    self._calls.pop(next(iter(self._calls)))
                self._calls[key] = make()
            return self._calls[key]

    def solve_call(self, layout: Layout) -> _core.CompiledCall:
        return self.call(("solve", layout), lambda: self.core.solve(list(layout.batched), layout.count))

    def vjp_call(self, layout: Layout, which: Directions) -> _core.CompiledCall:
        arguments = list(layout.batched), layout.count, which.count, list(which.given), list(which.apart)
        return self.call(("vjp", layout, which), lambda: self.core.vjp(*arguments))

    def jvp_call(self, layout: Layout, which: Directions) -> _core.CompiledCall:
        arguments = list(layout.batched), layout.count, which.count, list(which.given), list(which.apart)
        return self.call(("jvp", layout, which), lambda: self.core.jvp(*arguments))

    # The shapes of what primitives take and return.

    def has_axis(self, layout: Layout, which: Directions, k: int) -> bool:
        return layout.batched[len(self.start) + k] or which.apart[k]

    def directions(self, layout: Layout, which: Directions) -> list[Shape]:
        """Of tangents of the parameters that are given, or of their cotangents."""
        return [
            (which.count, *((layout.count,) if self.has_axis(layout, which, k) else ()), *shape)
            for k, shape in enumerate(self.theta)
            if which.given[k]
        ]

    def states(self, layout: Layout, directions: int | None = None) -> list[Shape]:
        front = (layout.count,) if directions is None else (directions, layout.count)
        return [(*front, *shape) for shape in self.state]


def operand(value: Any) -> np.ndarray[Any, Any]:
    """As calls read it: doubles, row by row."""
    return np.ascontiguousarray(np.asarray(value, np.float64)).reshape(np.shape(value))


def run(call: _core.CompiledCall, *operands: Any) -> list[jax.Array]:
    """Without a compiled program."""
    results = call(*(operand(v) for v in operands))
    return [jax.numpy.asarray(np.asarray(r, np.int32) if isinstance(r, list) else r) for r in results]


def sizes(shapes: Sequence[Shape]) -> list[int]:
    return [math.prod(shape) for shape in shapes]
