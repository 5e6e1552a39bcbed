"""Points nearer to the fixed point than z_k, where a certificate computes the derivative it compares with: by Newton's method
on z - F(z, theta) = 0, whose linear systems are solved roughly by GMRES. src/estimate/refine.cpp, for a map in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from onestep.torch._krylov import Gmres
from onestep.torch._lengths import norm
from onestep.torch._point import Point
from onestep.torch._systems import System

ROUGH, MOST_PRODUCTS, USUAL_STAGES, MOST_STAGES, SLOW = 0.02, 4, 3, 5, 0.2
ZERO_STEP = 4.0  # units in the last place of z that a step of zero counts as


@dataclass
class Stage:
    """A point on the way."""

    z: Tensor
    point: Point
    step: float  # |F(z) - z|
    moved: float = 0.0  # from the point before


class Seen:
    """The norm of (I - A)^-1 as linear solves saw it, and whether A was seen to have an eigenvalue above 1."""

    def __init__(self) -> None:
        self.inverse, self.repels = 1.0, False

    def note(self, gmres: Gmres) -> None:
        """What a solve tells."""
        self.inverse = max(self.inverse, gmres.inverse())
        self.repels = self.repels or gmres.has_negative_eigenvalue()


class Refinement:
    """The stages of the way; z_k is the first of them, the last one is the best."""

    def __init__(self, make: Callable[[Tensor], Point], z: Tensor, previous: Tensor, whole: bool, seen: Seen) -> None:
        self.make, self.whole, self.seen = make, whole, seen
        point = make(z)
        self.eps = point.step.eps
        self.may_be_rounding = max(1e-7, 100 * self.eps)
        self.scale = max(norm(z), norm(previous))
        self.noise, self.noise_is_measured = ZERO_STEP * self.eps * self.scale, True
        self.trouble, self.products, self.inverse, self.left = "", 0, 1.0, 0.0
        step = norm(point.value - z)
        self.stages = [Stage(z, point, step)]
        if not math.isfinite(step):
            self.trouble = "the step from z_k is not finite"
            return
        self._go()

    @property
    def best(self) -> Stage:
        """The point that is nearest."""
        return self.stages[-1]

    @property
    def covered(self) -> float:
        """Length of the way from z_k to the best point."""
        return sum(s.moved for s in self.stages)

    @property
    def distance(self) -> float:
        """From z_k to the fixed point: the way covered so far, and the rest."""
        return 1.1 * self.covered + 2 * self.inverse * max(self.best.step, self.noise)

    def _go(self) -> None:
        slow = False
        while self.best.step > self.noise and len(self.stages) < MOST_STAGES:
            # It goes on as long as each Newton step is longer than the one before: the distance was underestimated then.
            done = len(self.stages)
            farther = done >= 2 and self.best.moved > self.stages[-2].moved > 0
            is_usual = done >= USUAL_STAGES or self.products >= MOST_PRODUCTS
            if done >= 2 and is_usual and not farther and not slow:
                break
            at = self.best
            step = at.step
            if self._advance(at.z + self._newton_step(at, max(1, MOST_PRODUCTS - self.products)), 0.5 * step):
                slow = self.best.step > max(SLOW * step, 3 * self.left)
                continue
            if self._advance(at.point.value, step):
                continue
            self.noise_is_measured = False
            if step <= self.may_be_rounding * self.scale:
                self.noise = max(self.noise, step)
            else:
                self.trouble = (
                    f"z_k is not near a fixed point: its next step, of length {step:.1e}, is not followed by a shorter one"
                )
            return
        if slow and self.best.step > self.noise:
            self.trouble = "Newton's method converges slowly from z_k: the solution is degenerate, or not near"

    def _advance(self, z: Tensor, most: float) -> bool:
        if not bool(z.isfinite().all()):
            return False
        point = self.make(z)
        step = norm(point.value - z)
        if not (step <= max(most, self.noise) and step < self.best.step):
            return False
        self.stages.append(Stage(z, point, step, norm(z - self.best.z)))
        return True

    def _newton_step(self, at: Stage, most: int) -> Tensor:
        """(I - A)^-1 (F(z) - z), roughly."""
        system = System(at.point, False, self.whole)
        r = system.rows(at.point.value - at.z).to(system.dtype)
        gmres = Gmres(r)
        self.products += gmres.run(system, np.full(len(r), ROUGH) * gmres.residual, most)
        self.seen.note(gmres)
        self.inverse = max(self.inverse, gmres.inverse())
        self.left = float(np.sqrt(np.sum(gmres.residual**2)))
        return gmres.solution().reshape(at.z.shape).to(at.z.dtype)
