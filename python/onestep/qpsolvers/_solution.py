"""Solutions of qpsolvers that can be differentiated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import qpsolvers

from onestep._errors import MisuseError
from onestep.qpsolvers._problem import Floats

if TYPE_CHECKING:
    import onestep

# Of a Problem, in the order of the parameters of quadratic_program; it has no lower bounds of rows.
PARTS = ("P", "q", "A", "b", "G", "", "h", "lb", "ub")


class Solution(qpsolvers.Solution):
    """What qpsolvers has of a solution, and its derivatives.

    >>> solution = onestep.qpsolvers.solve_problem(problem)
    >>> gradients = solution.vjp(solution.x)    # of |x|²/2, by each part of the problem
    >>> gradients["h"], solution.certificate(solution.x)

    Copies and pickles are its numbers: they have no derivatives.
    """

    _solved: onestep.Solution | None = None
    _shapes: tuple[tuple[int, ...], ...] = ()

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
        x, y, z, z_box = solved.jvp(
            tuple(_tangent(name, tangents.get(name), shape) for name, shape in zip(PARTS, self._shapes))
        )
        return x, y, z, z_box

    def certificate(self, c: Any) -> onestep.Certificate:
        """How wrong vjp(c) can be."""
        return self._differentiable().certificate(self._cotangent(c))

    def _cotangent(self, c: Any) -> Any:
        """A z_box of a problem without bounds has no entries here."""
        if isinstance(c, tuple) and len(c) == 4 and np.size(c[3]) == 0:
            return (*c[:3], np.zeros(self._shapes[1]))
        return c

    def _differentiable(self) -> onestep.Solution:
        if self._solved is None:
            raise MisuseError("[qpsolvers] a copy of a solution has no derivatives: solve the problem again")
        return self._solved

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_solved"}


def _tangent(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    if value is None:
        return np.zeros(shape)
    tangent = np.asarray(value, dtype=np.float64)
    if tangent.size != int(np.prod(shape)):
        raise MisuseError(f"[qpsolvers] jvp: the tangent of {name} has shape {tangent.shape}, {shape} is needed")
    return tangent.reshape(shape)
