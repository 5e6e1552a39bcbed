"""Solutions of qpsolvers that can be differentiated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
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


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a solve ended, and where: x and the multipliers of equalities, rows and bounds; and what can be differentiated:
    the solution as the library has it, or the data for another solve."""

    status: Status
    message: str
    iterations: int
    state: tuple[Floats, Floats, Floats, Floats]
    solved: onestep.Solution | None
    program: Program | None
    solver: onestep.Solver


class Solution(qpsolvers.Solution):
    """What qpsolvers has of a solution, and its derivatives.

    >>> solution = onestep.qpsolvers.solve_problem(problem)
    >>> gradients = solution.vjp(solution.x)    # of |x|²/2, by each part of the problem
    >>> gradients["h"], solution.certificate(solution.x)

    Copies and pickles are its numbers: they have no derivatives.
    """

    _ended: Ended | None = None

    def vjp(self, c: Any) -> dict[str, Floats]:
        """The gradient of c'x by each part of the problem: P, q, G, h, A, b, lb and ub, as far as it has them. Instead of
        c there may be a tuple of cotangents of x, y, z and z_box. That of P is symmetric."""
        gradients = self._differentiable().vjp(self._cotangent(c))
        return {name: g for name, g in zip(PARTS, gradients) if name and getattr(self.problem, name) is not None}

    def jvp(self, tangents: Mapping[str, Any]) -> tuple[Floats, Floats, Floats, Floats]:
        """How x, y, z and z_box move when parts of the problem do: {"h": dh}. Those that are not named stay as they
        are."""
        solved = self._differentiable()
        for name in tangents:
            if name not in PARTS or not name or getattr(self.problem, name) is None:
                raise MisuseError(f"[qpsolvers] jvp: the problem has no part {name!r}")
        x, y, z, z_box = (part.size for part in solved.state)
        shapes = ((x, x), (x,), (y, x), (y,), (z, x), (z,), (z,), (z_box,), (z_box,))
        moved = solved.jvp(tuple(_tangent(name, tangents.get(name), shape) for name, shape in zip(PARTS, shapes)))
        return moved[0], moved[1], moved[2], moved[3]

    def certificate(self, c: Any) -> onestep.Certificate:
        """How wrong vjp(c) can be."""
        return self._differentiable().certificate(self._cotangent(c))

    def _cotangent(self, c: Any) -> Any:
        """A z_box of a problem without bounds has no entries here."""
        if isinstance(c, tuple) and len(c) == 4 and np.size(c[3]) == 0:
            return (*c[:3], np.zeros(np.shape(c[0])))
        return c

    def _differentiable(self) -> onestep.Solution:
        ended = self._ended
        if ended is None:
            raise MisuseError("[qpsolvers] a copy of a solution has no derivatives: solve the problem again")
        if not ended.status.is_solution:
            raise NotConvergedError(f"[qpsolvers] no derivative: {ended.message}", ended.status, ended.iterations)
        if ended.solved is None and ended.program is not None:
            solved = ended.solver.with_options(callback=None).solve(*ended.program.data(), start=ended.state)
            self._ended = ended = dataclasses.replace(ended, solved=solved, program=None)
        assert ended.solved is not None
        return ended.solved

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_ended"}


def _tangent(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    if value is None:
        return np.zeros(shape)
    tangent = np.asarray(value, dtype=np.float64)
    if tangent.size != int(np.prod(shape)):
        raise MisuseError(f"[qpsolvers] jvp: the tangent of {name} has shape {tangent.shape}, {shape} is needed")
    return tangent.reshape(shape)
