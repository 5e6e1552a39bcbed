"""Solves the programs of a batch, and differentiates their solutions; on NumPy's arrays."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import onestep
from onestep._core import ManySolutions, Solution, Status
from onestep._errors import NoDerivativeError, NotConvergedError
from onestep.cvxpylayers._canonical import Canonical, Floats

State = tuple[Floats, ...]
OnError = Literal["raise", "nan", "keep"]


class SolverError(NotConvergedError, RuntimeError):
    """A problem has no solution, or none was found: NotConvergedError, and what CVXPYlayers says layers raise."""


@dataclass
class Solved:
    """What a backward pass differentiates. It belongs to one forward pass."""

    canonical: Canonical
    solutions: Solution | ManySolutions
    count: int
    on_error: OnError
    without_derivative: dict[int, State]
    """The solutions of problems whose last step did not become short, as it need not where there are several."""

    def one(self, i: int) -> Solution:
        return self.solutions if isinstance(self.solutions, Solution) else self.solutions[i]

    def state(self, i: int) -> State:
        return self.without_derivative.get(i) or self.one(i).state

    def statuses(self) -> list[Status]:
        return [self.solutions.status] if isinstance(self.solutions, Solution) else self.solutions.statuses

    def failed(self) -> list[int]:
        statuses = enumerate(self.statuses())
        return [i for i, status in statuses if not status.is_solution and i not in self.without_derivative]


class _Program:
    """The traced function of the parts that vary; the others are constants."""

    def __init__(self, names: tuple[str, ...], constants: dict[str, Floats]) -> None:
        self.names = names
        self.constants = constants
        kind = inspect.Parameter.POSITIONAL_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def __call__(self, *parts: Any) -> dict[str, Any]:
        return {**self.constants, **dict(zip(self.names, parts))}


def solve(
    canonical: Canonical,
    values: tuple[Floats | None, Floats, Floats],
    options: dict[str, Any],
    estimator: Any,
    on_error: OnError,
) -> tuple[Floats, Floats, Solved]:
    """The minimisers, the multipliers of all constraints, and what differentiates them."""
    count = values[1].shape[0]
    programs = canonical.programs(*values)
    names = canonical.parameters
    constants = {name: part[0] for name, part in programs.items() if name not in names}
    solver = onestep.quadratic_program(_Program(names, constants), **options)
    theta = [programs[name] for name in names]
    solutions: Solution | ManySolutions
    if count == 1:
        solutions = solver.solve(*(part[0] for part in theta), estimator=estimator)
    else:
        solutions = onestep.solve_many(solver, *(list(part) for part in theta), estimator=estimator)
    solved = Solved(canonical, solutions, count, on_error, {})
    _look_again(solved, programs, options)
    failed = solved.failed()
    if failed and on_error == "raise":
        raise _not_converged(solved, failed)
    states = [solved.state(i) for i in range(count)]
    primal = np.stack([state[0] for state in states])
    dual = np.stack([np.concatenate([state[1], state[2]]) for state in states])
    if on_error == "nan":
        primal[failed] = np.nan
        dual[failed] = np.nan
    return primal, dual, solved


def _look_again(solved: Solved, programs: dict[str, Floats], options: dict[str, Any]) -> None:
    """Where a solve stopped short, for a solution that has small residuals, whatever the steps to it were."""
    limits = {name: value for name, value in options.items() if name != "callback"}
    for i, status in enumerate(solved.statuses()):
        if status in (Status.line_search_failed, Status.singular):
            of_one = {name: part[min(i, len(part) - 1)] for name, part in programs.items()}
            s = onestep.solve_qp(**of_one, **limits)
            if s.status.is_solution:
                solved.without_derivative[i] = (s.x, s.y, s.z, s.bound_multipliers)


def vjp(solved: Solved, dprimal: Floats, ddual: Floats) -> tuple[Floats | None, Floats, Floats]:
    """The gradients of the values that were handed over, for cotangents of the minimisers and the multipliers."""
    e = solved.canonical.equalities
    c = (dprimal, np.ascontiguousarray(ddual[:, :e]), np.ascontiguousarray(ddual[:, e:]), np.zeros(dprimal.shape))
    gradients = _together(solved, c)
    if gradients is None:
        gradients = _one_by_one(solved, c)
    return solved.canonical.gradients(dict(zip(solved.canonical.parameters, gradients)), solved.count)


def _together(solved: Solved, c: tuple[Floats, ...]) -> list[Floats] | None:
    """None where they have to be looked at one by one."""
    s = solved.solutions
    if isinstance(s, Solution) or solved.without_derivative or (solved.on_error != "raise" and solved.failed()):
        return None
    try:
        return _all_parts(s.vjp(c))
    except NoDerivativeError:
        if solved.on_error == "raise":
            raise
        return None


def _one_by_one(solved: Solved, c: tuple[Floats, ...]) -> list[Floats]:
    """A problem that has no derivative gives NaN, or what there is of it; with a cotangent of zero it gives zero."""
    parts: list[list[Floats] | None] = []
    for i in range(solved.count):
        of_one = tuple(part[i] for part in c)
        if not any(np.any(part) for part in of_one):
            parts.append(None)
            continue
        s = solved.one(i)
        if solved.on_error == "keep":
            s = s.even_if_unconverged()
        elif i in solved.without_derivative and solved.on_error == "raise":
            raise NoDerivativeError(
                f"[cvxpylayers] the solution of problem {i} has no derivative that could be computed: it may not be unique",
                "steps stay long",
                s.status,
            )
        try:
            parts.append(_all_parts(s.vjp(of_one)))
        except (NotConvergedError, NoDerivativeError):
            if solved.on_error == "raise":
                raise
            parts.append([np.full(shape, np.nan) for shape in _shapes(solved.canonical)])
    zeros = [np.zeros(shape) for shape in _shapes(solved.canonical)]
    each = [zeros if of_one is None else of_one for of_one in parts]
    return [np.stack([of_one[k] for of_one in each]) for k in range(len(zeros))]


def _shapes(canonical: Canonical) -> list[tuple[int, ...]]:
    n, e, i = canonical.variables, canonical.equalities, canonical.inequalities
    of = {"Q": (n, n), "q": (n,), "A": (e, n), "b": (e,), "G": (i, n), "u": (i,)}
    return [of[name] for name in canonical.parameters]


def _all_parts(parts: Any) -> list[Floats]:
    return list(parts) if isinstance(parts, tuple) else [parts]


def _not_converged(solved: Solved, failed: list[int]) -> SolverError:
    first = solved.one(failed[0])
    which = ""
    if solved.count > 1:
        which = f"{len(failed)} of {solved.count} problems did not end at a solution; the first, number {failed[0]}: "
    explanation = first.status.explanation
    why = f"{explanation} [{first.about}]" if first.about else explanation.rstrip(".")
    return SolverError(
        f"[cvxpylayers] {which}{why}. QPSolver(on_error='nan') or 'keep' goes on",
        first.status,
        first.statistics.iterations,
    )
