"""What a layer solves and differentiates, on NumPy's arrays: one problem, or a batch of them by solve_many.

Everything here has one layout. A batch has `count` problems. A parameter that is `batched` has a first axis for them; one that
is not is shared by all. Parts of the state always have that axis. Directions, that is, cotangents of the state and tangents of
parameters, have an axis of directions and then one of problems.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

import onestep
from onestep._core import ManySolutions, Solution, Solver, Status
from onestep._errors import MisuseError, NotConvergedError

if TYPE_CHECKING:
    from onestep._core import Estimator

Array = npt.NDArray[np.float64]
OnError = Literal["raise", "nan", "keep"]


@dataclass
class Kept:
    """The solutions of one forward pass, which its backward pass differentiates. They belong to that pass alone."""

    solutions: Solution | ManySolutions | None = None
    layout: tuple[tuple[bool, ...], int] | None = None


_current = threading.local()


@contextmanager
def keeping(kept: Kept) -> Iterator[None]:
    """Operators that run inside put their solutions here, or take them from here.

    The object reaches an operator past its arguments. A graph that records the operator, and runs it later on other numbers,
    then has none: it solves again instead of differentiating what is not its own.
    """
    before = getattr(_current, "kept", None)
    _current.kept = kept
    try:
        yield
    finally:
        _current.kept = before


class Problems:
    """A solver, how to differentiate it, and what happens to problems that have no solution."""

    # Not from 1: a graph that was written to a file must not find a layer of another process under its number.
    _numbers = itertools.count(secrets.randbits(60))
    _all: weakref.WeakValueDictionary[int, Problems] = weakref.WeakValueDictionary()

    def __init__(
        self, made: Solver | Callable[[], Solver], start: Any, estimator: Estimator | None, on_error: OnError
    ) -> None:
        solver = made if isinstance(made, Solver) or not callable(made) else made()
        if not isinstance(solver, Solver):
            raise MisuseError(f"[layer] a Solver, or a function that returns one, is needed, not {solver!r}")
        self.make = None if isinstance(made, Solver) else made
        self.start = start
        self.solver = solver if start is None else solver.from_(_numpy_start(start))  # type: ignore[attr-defined]
        self.estimator = estimator
        self.on_error: OnError = on_error
        self.number = next(Problems._numbers)
        Problems._all[self.number] = self

    @staticmethod
    def of(number: int) -> Problems:
        found = Problems._all.get(number)
        if found is None:
            raise MisuseError(
                "[layer] a recorded graph uses a layer that is gone: keep the layer as long as the graph is used"
            )
        return found

    # The solver has no state, so a copy of a layer may use the same one.
    def __deepcopy__(self, memo: dict[int, Any]) -> Problems:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.make is None:
            raise TypeError(
                "a layer of a Solver cannot be pickled, since its traced function cannot; give layer() a function of a module "
                "that returns the Solver, which is pickled by its name"
            )
        return Problems, (self.make, self.start, self.estimator, self.on_error)

    def solve(
        self, theta: Sequence[Array], batched: tuple[bool, ...], count: int
    ) -> tuple[list[Array], npt.NDArray[np.int64]]:
        """The parts of all states, and the statuses as numbers."""
        if count == 0:
            shapes = self.shapes([t.shape[b:] for t, b in zip(theta, batched)])
            return [np.zeros((0, *shape)) for shape in shapes], np.zeros(0, np.int64)
        solutions = self.solved(theta, batched, count)
        kept: Kept | None = getattr(_current, "kept", None)
        if kept is not None:
            kept.solutions, kept.layout = solutions, (batched, count)
        state, failed = _state_of(solutions), failed_of(solutions)
        if failed and self.on_error == "raise":
            raise _not_converged(solutions, failed)
        if failed and self.on_error == "nan":
            for part in state:
                part[failed] = np.nan
        return state, np.array([status.value for status in _statuses_of(solutions)], np.int64)

    def shapes(self, theta: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Of the parts of the state of one problem, whose parameters have these shapes."""
        trial = self.solver.with_options(max_iterations=1, callback=None)
        return [part.shape for part in trial.solve(*(np.ones(shape) for shape in theta)).state]

    def solved(self, theta: Sequence[Array], batched: tuple[bool, ...], count: int) -> Solution | ManySolutions:
        if count == 1:
            return self.solver.solve(*(t[0] if b else t for t, b in zip(theta, batched)), estimator=self.estimator)
        many = [list(t) if b else t for t, b in zip(theta, batched)]
        return onestep.solve_many(self.solver, *many, estimator=self.estimator)

    def again(
        self, theta: Sequence[Array], state: Sequence[Array], batched: tuple[bool, ...], count: int
    ) -> Solution | ManySolutions:
        """The solutions that the forward pass kept; where it could not keep them, those of another solve."""
        kept: Kept | None = getattr(_current, "kept", None)
        if kept is not None and kept.layout == (batched, count) and kept.solutions is not None:
            return kept.solutions
        solutions = self.solved(theta, batched, count)
        for now, then in zip(_state_of(solutions), state):
            then = np.where(np.isnan(then), now, then)
            if not np.allclose(now, then, rtol=1e-6, atol=1e-6 * np.max(np.abs(then), initial=0.0), equal_nan=True):
                raise MisuseError(
                    "[layer] the solution found again for the backward pass is another one: what the solver's function closes "
                    "over has changed since the forward pass"
                )
        return solutions


def _numpy_start(start: Any) -> Any:
    if isinstance(start, tuple):
        return tuple(_numpy_start(part) for part in start)
    detach = getattr(start, "detach", None)
    return np.asarray(start if detach is None else detach().cpu(), np.float64)


def _state_of(solutions: Solution | ManySolutions) -> list[Array]:
    if isinstance(solutions, Solution):
        return [part[None] for part in solutions.state]
    first = solutions[0].state
    if len(first) == 1:
        return [solutions.x]
    states = [solutions[i].state for i in range(len(solutions))]
    return [np.stack([state[part] for state in states]) for part in range(len(first))]


def _statuses_of(solutions: Solution | ManySolutions) -> list[Status]:
    return [solutions.status] if isinstance(solutions, Solution) else solutions.statuses


def one_of(solutions: Solution | ManySolutions, i: int) -> Solution:
    return solutions if isinstance(solutions, Solution) else solutions[i]


def failed_of(solutions: Solution | ManySolutions) -> list[int]:
    return [i for i, status in enumerate(_statuses_of(solutions)) if not status.is_solution]


def _not_converged(solutions: Solution | ManySolutions, failed: list[int]) -> NotConvergedError:
    first = one_of(solutions, failed[0])
    which = ""
    if not isinstance(solutions, Solution):
        which = f"{len(failed)} of {len(solutions)} problems did not end at a solution; the first of them, number {failed[0]}: "
    explanation = first.status.explanation
    why = f"{explanation} [{first.about}]" if first.about else explanation.rstrip(".")
    return NotConvergedError(
        f"[layer] {which}{why}. A layer with on_error='nan' or 'keep' goes on, and has a status for each problem",
        first.status,
        first.statistics.iterations,
    )
