"""Solutions of qpsolvers that can be differentiated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import qpsolvers

from onestep._core import Status
from onestep._errors import MisuseError, NotConvergedError
from onestep.qpsolvers._problem import Floats, Program

if TYPE_CHECKING:
    import onestep

# Of a Problem, in the order of the parameters of quadratic_program; it has no lower bounds of rows.
PARTS = ("P", "q", "A", "b", "G", "", "h", "lb", "ub")


@dataclass(frozen=True)
class Ended:
    """How a solve ended, and where: x and the multipliers of equalities, rows and bounds."""

    status: Status
    message: str
    iterations: int
    state: tuple[Floats, Floats, Floats, Floats]


class Solution(qpsolvers.Solution):
    """What qpsolvers has of a solution, and its derivatives.

    >>> solution = onestep.qpsolvers.solve_problem(problem)
    >>> gradients = solution.vjp(solution.x)    # of |x|²/2, by each part of the problem
    >>> gradients["h"], solution.certificate(solution.x)

    Copies and pickles are its numbers: they have no derivatives.
    """

    _ended: Ended | None = None
    _program: Program | None = None
    _solver: onestep.Solver | None = None
    _solved: onestep.Solution | None = None

    def vjp(self, c: Any) -> dict[str, Floats]:
        """The gradient of c'x by each part of the problem: P, q, G, h, A, b, lb and ub, as far as it has them. Instead of
        c there may be a tuple of cotangents of x, y, z and z_box. That of P is symmetric."""
        solved, program = self._differentiable()
        gradients = solved.vjp(self._cotangent(c, program))
        return {name: g for name, g in zip(PARTS, gradients) if name and getattr(self.problem, name) is not None}

    def jvp(self, tangents: Mapping[str, Any]) -> tuple[Floats, Floats, Floats, Floats]:
        """How x, y, z and z_box move when parts of the problem do: {"h": dh}. Those that are not named stay as they
        are."""
        solved, program = self._differentiable()
        for name in tangents:
            if name not in PARTS or not name or getattr(self.problem, name) is None:
                raise MisuseError(f"[qpsolvers] jvp: the problem has no part {name!r}")
        still = [part.shape for part in program.data()]
        x, y, z, z_box = solved.jvp(
            tuple(_tangent(name, tangents.get(name), shape) for name, shape in zip(PARTS, still))
        )
        return x, y, z, z_box

    def certificate(self, c: Any) -> onestep.Certificate:
        """How wrong vjp(c) can be."""
        solved, program = self._differentiable()
        return solved.certificate(self._cotangent(c, program))

    def _cotangent(self, c: Any, program: Program) -> Any:
        """A z_box of a problem without bounds has no entries here."""
        if isinstance(c, tuple) and len(c) == 4 and np.size(c[3]) == 0:
            return (*c[:3], np.zeros(program.q.shape))
        return c

    def _differentiable(self) -> tuple[onestep.Solution, Program]:
        """The solution as the library differentiates it: a further solve, from where this one ended."""
        if self._ended is None or self._program is None or self._solver is None:
            raise MisuseError("[qpsolvers] a copy of a solution has no derivatives: solve the problem again")
        if not self._ended.status.is_solution:
            raise NotConvergedError(
                f"[qpsolvers] no derivative: {self._ended.message}", self._ended.status, self._ended.iterations
            )
        if self._solved is None:
            self._solved = self._solver.solve(*self._program.data(), start=self._ended.state)
        return self._solved, self._program

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_NUMBERS}


_NOT_NUMBERS = ("_ended", "_program", "_solver", "_solved")


def _tangent(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    if value is None:
        return np.zeros(shape)
    tangent = np.asarray(value, dtype=np.float64)
    if tangent.size != int(np.prod(shape)):
        raise MisuseError(f"[qpsolvers] jvp: the tangent of {name} has shape {tangent.shape}, {shape} is needed")
    return tangent.reshape(shape)
