"""How wrong the derivative of a fixed point can be, by comparison with a better one: B^T u, (I - A)^T u = c, at a point that
is nearer to the fixed point than z_k (_refine). The bound is the sum of

    |g - B^T u|                             with a safety factor; nothing about the estimator enters
    |(I - A)^-1| |B| times the residual     what GMRES left, with norms as it saw them
    what is left of the way                 extrapolated from how A^T u and B^T u changed on the way to that point
    changes in corners around it            where an operation of the map may switch
    rounding                                the point is known to 4 eps |z| |(I - A)^-1|

as src/estimate/certificate.cpp has it for a step whose derivatives somebody else computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from onestep._core import Auto, Certificate, KStep, OneStep, Status
from onestep._errors import MisuseError, NoDerivativeError
from onestep.torch._equilibrium import Call
from onestep.torch._krylov import Gmres
from onestep.torch._lengths import norm, norm_of_all, random_like, signs_like
from onestep.torch._point import Point
from onestep.torch._refine import Refinement, Seen
from onestep.torch._systems import CoupledItems, System

DIFFERENCE_SAFETY = 1.5  # factor on the difference to the better derivative
INVERSE_SAFETY = 2.0  # factor on the norm of (I - A)^-1, which GMRES underestimates
REMAINDER_SAFETY, SLOWEST = 4.0, 0.9  # factor on what is extrapolated, and the largest ratio that is
FAR_DERIVATIVE, FAR = 0.1, 0.1  # after a loose solve
LOOSE_TOLERANCE = 1e-5
VISIBLE_KINK, CORNER_RADIUS, CORNER_PAIRS, LOOKED_AT = 0.1, 4.0, 3, 3
ENOUGH, TAIL_SAFETY, MOST_PRODUCTS = 0.5, 4.0, 2000

Products = tuple[Tensor, list[Tensor]]
"""A^T u and B^T u at a point: the derivative there, as far as it matters for what is certified."""


class _Refused(Exception):
    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason, self.advice = reason, advice


def certify(call: Call, z: Tensor, start: Tensor, theta: Sequence[Tensor], c: Tensor) -> Certificate:
    """Of the gradient by the tensors of theta that require one."""
    needed = [t.requires_grad and t.is_floating_point() for t in theta]
    if not any(needed):
        raise MisuseError("[fixed_point] nothing that f depends on requires a gradient, so there is no derivative to certify")
    detached = [t.detach() for t in theta]
    before = call.seen.report
    try:
        for whole in (False, True):
            certifier = _Certifier(call, z.detach(), start.detach(), detached, needed, whole)
            try:
                return certifier.certificate(c)
            except CoupledItems:
                continue
            except _Refused as why:
                return certifier.refused(why.reason, why.advice)
            except NoDerivativeError as none:
                return certifier.refused(none.reason, "the solution may not be unique: regularise the problem")
    finally:
        call.seen.report = before
    raise AssertionError("a system of all items together cannot be coupled")


class _Certifier:
    def __init__(
        self, call: Call, z: Tensor, start: Tensor, theta: Sequence[Tensor], needed: Sequence[bool], whole: bool
    ) -> None:
        self.call, self.z, self.start, self.theta, self.needed, self.whole = call, z, start, theta, needed, whole
        self.options = call.options
        self.eps = call.step.eps
        self.n = z.numel()
        self.seen = Seen()
        self.value, self.rho, self.products = 0.0, 0.0, 0
        self.size_of_b, self.whole_b, self.points = 0.0, 0.0, list[Point]()
        run = call.seen.run
        assert run is not None
        self.run = run
        self.seen.inverse = max(1.0, run.slowness)

    def at(self, z: Tensor, theta: Sequence[Tensor] | None = None) -> Point:
        """The map there."""
        point = Point(self.call.step, z, self.theta if theta is None else theta, self.needed)
        self.points.append(point)
        return point

    @property
    def inverse(self) -> float:
        """An upper estimate of the norm of (I - A)^-1."""
        return INVERSE_SAFETY * self.seen.inverse

    def certificate(self, c: Tensor) -> Certificate:
        if self.n == 0:
            return self.observed(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.refuse_what_did_not_converge()
        g = self.returned(c)
        self.value = norm_of_all(g)
        if not math.isfinite(self.value):
            raise _Refused("the derivative is not finite", "check the step for NaN and infinities near the solution")
        if norm(c) == 0:
            return self.observed(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        way = Refinement(self.at, self.z, self.start, self.whole, self.seen)
        self.refuse_from_there(way)
        self.whole_b = self.norm_of_b(way.best.point)
        u, r, better, to_better = self.solve(way.best.point, c, g)
        self.refuse_where_steps_lead_away(way)
        return self.finish(way, u, r, better, to_better, c)

    # -- what was returned, and what is better

    def returned(self, c: Tensor) -> list[Tensor]:
        """The gradient that a backward pass computes."""
        how = self.call.estimator
        if self.call.seen.no_contraction:
            raise _Refused(self.call.seen.no_contraction, "take Implicit(), which needs no contraction")
        if isinstance(how, OneStep):
            return self.at(self.start).vjp_theta(c)
        if isinstance(how, KStep):
            states = [self.start]
            for _ in range(how.K - 1):
                with torch.no_grad():
                    states.append(self.call.step(states[-1], self.theta))
            total, w = [torch.zeros_like(t) for t, n in zip(self.theta, self.needed) if n], c
            for state in reversed(states):
                following, of_theta = self.at(state).vjp(w)
                total, w = [a + b for a, b in zip(total, of_theta)], following
            return total
        point = self.at(self.z)
        answer = self.call.solved(point, c, True)
        if np.any(answer.status == Status.singular.value):
            raise _Refused(
                f"there is no derivative: the linear system is singular, its relative residual stayed at {answer.residual:.1e}",
                "the solution may not be unique: regularise the problem",
            )
        return point.vjp_theta(answer.x)

    def solve(self, point: Point, c: Tensor, g: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor], float]:
        """u with (I - A)^T u = c, its residual, B^T u, and how far that is from g: to 1e-3, and then until what is left changes
        the derivative by a fraction of the difference to g."""
        system = System(point, True, self.whole)
        b = system.rows(c).to(system.dtype)
        size = norm(b)
        of_items = np.array([norm(row) for row in b])
        u, r = b.clone(), b - system(b)
        left, rounding = norm(r), 5 * self.eps * (size + norm(b))
        better, difference = list[Tensor](), math.inf
        target = 1e-3 * size
        gmres, base = Gmres(r), u
        while True:
            if left > rounding:
                if gmres.exhausted or left > 2 * float(np.sqrt(np.sum(gmres.residual**2))) + rounding:
                    gmres, base = Gmres(r), u
                part = target / math.sqrt(len(b))
                gmres.run(system, np.full(len(b), part), MOST_PRODUCTS - system.products)
                self.seen.note(gmres)
                u = base + gmres.solution()
                r = b - system(u)
                system.check(gmres, np.array([norm(row) for row in r]), of_items)
            before, left = left, norm(r)
            better = point.vjp_theta(u.reshape(self.z.shape))
            self.note_size_of_b(norm_of_all(better), norm(u))
            difference = norm_of_all([a - b for a, b in zip(better, g)])
            self.seen.inverse = max(self.seen.inverse, norm(u) / size)
            effect = self.effect_of(left)
            done = left <= rounding or (left <= 1e-3 * size and effect <= ENOUGH * difference)
            if done or not left < 0.5 * before or system.products >= MOST_PRODUCTS:
                break
            ratio = difference / effect if effect > 0 else 1.0
            target = max(target if left > 1e-3 * size else left * min(max(0.5 * ENOUGH * ratio, 1e-4), 0.3), rounding)
        if not (left <= 0.1 * size or left <= 1e3 * rounding):
            raise _Refused(
                f"the linear system with I - A was solved to a relative residual of {left / size:.1e} only: the solution may "
                "not be unique",
                "regularise the problem, or use a step that contracts",
            )
        return u.reshape(self.z.shape), r.reshape(self.z.shape), better, difference

    def effect_of(self, left: float) -> float:
        """The error that a residual as large as this leaves."""
        return self.inverse * max(self.size_of_b, 0.0) * left

    def note_size_of_b(self, image: float, of: float) -> None:
        """|B| as directions saw it."""
        if of > 0:
            self.size_of_b = max(self.size_of_b, image / of)

    def norm_of_b(self, point: Point) -> float:
        """Entries of B that do not matter in a direction are rounded, too, and their errors do matter."""
        few = 8
        tries = 4 if sum(t.numel() for t in point.wanted) < few else 1
        return max(norm_of_all(point.vjp_theta(random_like(self.z, 3 + i))) for i in range(tries))

    # -- how the derivative changes

    def look(self, point: Point, u: Tensor) -> Products:
        of_z, of_theta = point.vjp(u)
        self.note_size_of_b(norm_of_all(of_theta), norm(u))
        return of_z, of_theta

    def difference(self, a: Products, b: Products) -> float:
        """An upper estimate of the difference of the derivatives at two points."""
        of_theta = norm_of_all([p - q for p, q in zip(a[1], b[1])])
        return of_theta + self.inverse * self.size_of_b * norm(a[0] - b[0])

    def extrapolated(self, way: Refinement, seen: list[Products]) -> float:
        """From the best point to the solution, geometrically from how changes shrank on the way to it."""
        if len(way.stages) < 2:
            return 0.0
        change = self.difference(seen[-1], seen[-2])
        before = self.difference(seen[-2], seen[-3]) if len(seen) >= 3 else 0.0
        of_steps = way.stages[-1].step / way.stages[-2].step if way.stages[-2].step > 0 else 0.0
        q = min(max(max(change / before, of_steps) if before > 0 else of_steps, 0.0), SLOWEST)
        return REMAINDER_SAFETY * change * q / (1 - q)

    def rate(self, way: Refinement, u: Tensor, best: Products) -> float:
        """The change with z, from a displacement in a random direction, in which each coordinate has a share of 1/sqrt(n)."""
        length = max(1e-6, 30 * math.sqrt(self.eps) if self.eps > 1e-10 else 0.0) * way.scale
        if length == 0:
            return 0.0
        for side in (1.0, -1.0):
            point = self.at(way.best.z + side * length * signs_like(self.z))
            if bool(point.value.isfinite().all()):
                return self.difference(self.look(point, u), best) / length
        return math.inf

    def in_corners(self, way: Refinement, distance: float, u: Tensor, best: Products) -> float:
        """The largest change in corners of a cube that should contain the solution, and for parameters displaced in their last
        places."""
        floor = max(1e-12, 30 * self.eps) * (way.scale if way.scale > 0 else 1.0) / math.sqrt(self.n)
        half = CORNER_RADIUS * max(distance, floor)
        points = []
        for pair in range(CORNER_PAIRS):
            for side in (1.0, -1.0):
                points.append(self.at(way.best.z + side * half * signs_like(self.z, 11 + pair)))
        for pair in range(CORNER_PAIRS):
            for side in (1.0, -1.0):
                points.append(self.at(way.best.z, [self.moved(t, side, pair) for t in self.theta]))
        largest = 0.0
        for point in points:
            if not bool(point.value.isfinite().all()):
                return math.inf
            largest = max(largest, self.difference(self.look(point, u), best))
        return largest

    def moved(self, t: Tensor, side: float, pair: int) -> Tensor:
        if not t.is_floating_point() or t.numel() == 0:
            return t
        largest = float(t.nan_to_num(0.0, 0.0, 0.0).abs().max())
        by = side * max(1e-13, 4 * self.eps) * (largest if largest > 0 else 1.0)
        return t + by * (torch.ones_like(t) if pair == 0 else signs_like(t, 21 + pair))

    # -- the bound

    def finish(
        self, way: Refinement, u: Tensor, r: Tensor, better: list[Tensor], to_better: float, c: Tensor
    ) -> Certificate:
        rest = self.inverse * max(way.best.step, way.noise)
        # A^T u, from the residual of its linear system.
        best: Products = ((u + r.to(u.dtype) - c.to(u.dtype)).to(self.z.dtype), better)
        u_there = u.to(self.z.dtype)
        looked = [s for i, s in enumerate(way.stages[:-1]) if i == 0 or i + LOOKED_AT >= len(way.stages)]
        seen = [*(self.look(s.point, u_there) for s in looked), best]
        on_the_way = self.difference(seen[0], best) if len(seen) > 1 else 0.0
        beyond, of_rounding = self.extrapolated(way, seen), 0.0
        shows = to_better <= 1e-6 * self.value
        is_exact = way.best.step <= way.noise and way.noise_is_measured
        if not is_exact or shows or self.eps > 1e-10:
            rate = self.rate(way, u_there, best)
            of_rounding = 2 * rate * self.inverse * way.noise / math.sqrt(self.n)
            if not is_exact:
                beyond = max(beyond, rate * rest)
        reference = norm_of_all(better)
        corners = self.in_corners(way, rest, u_there, best)
        if not corners <= VISIBLE_KINK * max(reference, self.value):
            raise _Refused(
                f"within {CORNER_RADIUS * rest:.1e} of z the map has a kink, or another branch",
                "at a kink the solution has no derivative; near one, solve with a smaller tolerance",
            )
        beyond += corners
        left = self.effect_of(norm(r))
        left = left if left <= ENOUGH * to_better else TAIL_SAFETY * left
        size_of_u = norm(u)
        of_theta = norm_of_all([t for t, n in zip(self.theta, self.needed) if n])
        usual = way.scale / of_theta if of_theta > 0 and math.isfinite(of_theta) else 0.0
        terms = max(max(self.size_of_b, self.whole_b) * size_of_u, usual * size_of_u if reference > 0 else 0.0)
        rounding = of_rounding + 8 * self.eps * math.sqrt(self.n) * self.inverse * terms
        whole = DIFFERENCE_SAFETY * to_better
        of_distance = min(whole, on_the_way)
        from_distance, left_out = of_distance + beyond, whole - of_distance + left
        loose = self.options.tolerance > LOOSE_TOLERANCE
        if loose and from_distance > FAR_DERIVATIVE * max(reference, self.value):
            raise _Refused(
                f"on the way from z_k to the solution the derivative changes by {from_distance:.1e}, its own size is "
                f"{self.value:.1e}",
                "solve with a smaller tolerance",
            )
        estimate = to_better if to_better > rounding + left else math.nan
        l_j = on_the_way / way.covered if way.covered > 0 else 0.0
        return self.observed(left_out, from_distance, rounding, estimate, way.distance, l_j)

    def observed(
        self, left_out: float, from_distance: float, rounding: float, estimate: float, distance: float, l_j: float
    ) -> Certificate:
        bound = left_out + from_distance + rounding
        if not math.isfinite(bound):
            raise _Refused(
                "the derivative is not finite near the solution", "check the step for NaN and infinities there"
            )
        relative = bound / self.value if self.value > 0 else (math.inf if bound > 0 else 0.0)
        term = Certificate.Term
        if left_out >= max(from_distance, rounding):
            dominant, advice = term.left_out, self.what_leaves_less_out()
        elif from_distance >= rounding:
            dominant, advice = term.distance, "solve with a smaller tolerance"
        else:
            dominant = term.rounding
            advice = f"nothing in {str(self.z.dtype).removeprefix('torch.')}: only rounding is left"
        reason = "compared with a derivative computed nearer to the solution"
        return self.made(
            Certificate.Basis.observed, dominant, bound, relative, estimate, left_out, from_distance, rounding, distance, l_j,
            reason, advice,
        )  # fmt: skip

    def refused(self, reason: str, advice: str) -> Certificate:
        basis, nothing = Certificate.Basis.refused, Certificate.Term.rounding
        return self.made(basis, nothing, math.inf, math.inf, math.nan, 0.0, 0.0, 0.0, 0.0, 0.0, reason, advice)

    def made(
        self, basis: Certificate.Basis, dominant: Certificate.Term, bound: float, relative: float, estimate: float,
        left_out: float, from_distance: float, rounding: float, distance: float, l_j: float, reason: str, advice: str,
    ) -> Certificate:  # fmt: skip
        products = sum(p.products for p in self.points)
        certificate = Certificate.__new__(Certificate)
        certificate.__setstate__(
            (
                basis, dominant, bound, relative, estimate, self.value, left_out, from_distance, rounding, self.rho, distance,
                l_j, max(self.size_of_b, self.whole_b), products, reason, advice,
            )  # fmt: skip
        )
        return certificate

    def what_leaves_less_out(self) -> str:
        how = self.call.estimator
        if isinstance(how, OneStep):
            return "Implicit() leaves nothing out but what its tolerance allows"
        if isinstance(how, KStep):
            return "more steps (K of KStep) leave less out, Implicit() nothing"
        return f"a smaller tolerance of {'Auto' if isinstance(how, Auto) else 'Implicit'} leaves less out"

    # -- why there is none

    def refuse_what_did_not_converge(self) -> None:
        failed = self.run.failed
        if failed.any():
            first = Status(int(self.run.status[np.flatnonzero(failed)[0]]))
            which = f" of {int(failed.sum())} of {len(failed)} items" if len(failed) > 1 else ""
            raise _Refused(f"the solve{which} ended with status {first.name}", first.explanation)

    def refuse_from_there(self, way: Refinement) -> None:
        growing, settled = 1.02, 1e-5 if self.eps < 1e-10 else 1e-3
        better = "solve with a smaller tolerance"
        if way.trouble:
            raise _Refused(way.trouble, better)
        step, last = way.stages[0].step, self.run.last_step
        self.rho = step / last if last > 0 and step > way.noise else 0.0
        if self.options.is_plain and self.rho > growing and last > settled * way.scale:
            raise _Refused(
                f"the next step is {self.rho:.3g} times as long as the last: the iteration has not settled", better
            )
        if self.options.tolerance > LOOSE_TOLERANCE and way.distance > FAR * way.scale:
            raise _Refused(
                f"the solution is {way.distance:.1e} away from a z of size {way.scale:.1e}: too far to tell what changes on "
                "the way",
                better,
            )

    def refuse_where_steps_lead_away(self, way: Refinement) -> None:
        """Iterates pass slowly by a fixed point that attracts them in all directions but few, and are stopped there. A solve
        that began there, or one that is damped or accelerated, may want just that one."""
        began_there = self.run.iterations < 3 and self.options.tolerance <= LOOSE_TOLERANCE
        if self.seen.repels and self.options.is_plain and not began_there:
            raise _Refused(
                "steps lead away from the fixed point that is nearest to z_k, to another one",
                "solve with a smaller tolerance",
            )
