"""The linear systems of derivatives of a fixed point, (I - A) x = b and (I - A)^T x = b: how Implicit and Auto solve them at
one state. src/estimate/auto.cpp and implicit.cpp, for many items at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onestep._core import Auto, DerivativeReport, Implicit, Status
from onestep.torch import _krylov
from onestep.torch._lengths import Array, norm_of_all, random_like, row_norms, total, work_dtype
from onestep.torch._point import Point

INVERSE_SAFETY = 4.0  # of the norm of the inverse as GMRES saw it
SOUGHT = 0.1  # the estimated error that a solve aims at, as a fraction of the tolerance
SHARE_OF_B = 0.25  # of the norm of B that a residual may meet, whatever x meets
MOST_PRODUCTS = 1000
FEW = 4
NEAR_ROUNDING = 4.0
SLOW_GROWTH = 0.999  # a rate above it is watched for longer


@dataclass
class Answer:
    """The solution of a system for each item, and how it was found."""

    x: Tensor
    status: npt.NDArray[np.int64]
    residual: float
    method: str
    products: int
    terms: int = 0
    met_tolerance: bool = True

    def report(self) -> DerivativeReport:
        """As the library has it."""
        worst = Status(int(np.max(self.status, initial=0)))
        values = (self.method, worst, self.residual, self.products, 0, 0, 0, self.terms, 0.0, self.met_tolerance)
        return report_of(*values)


def report_of(*values: object) -> DerivativeReport:
    """From the values of its fields, in their order."""
    made = DerivativeReport.__new__(DerivativeReport)
    made.__setstate__(values)
    return made


class CoupledItems(Exception):
    """The items of a batch act on each other, so that each has no linear system of its own."""


class System:
    """I - A, or its transpose, at a point; of all items together where `whole`."""

    def __init__(self, point: Point, transposed: bool, whole: bool) -> None:
        self.point, self.transposed, self.whole = point, transposed, whole
        self.shape = point.z.shape
        self.dtype = work_dtype(point.z.dtype)
        self.products = 0
        self.dead: Tensor | None = None

    def rows(self, v: Tensor) -> Tensor:
        """As this system has it: one row where it is one of all items."""
        return v.reshape(1, -1) if self.whole else v

    def __call__(self, v: Tensor) -> Tensor:
        self.products += 1
        of_items = v.reshape(self.shape).to(self.point.z.dtype)
        image = self.point.vjp_x(of_items) if self.transposed else self.point.jvp_x(of_items)
        if self.dead is not None:
            image = torch.where(self.dead & ~image.isfinite(), 0.0, image)
        return v - image.reshape(v.shape).to(v.dtype)

    def ignore_nan_of(self, dead: Tensor) -> None:
        """Items with nothing to solve for may have failed, and their products may be NaN."""
        self.dead = dead[:, None] if bool(dead.any()) else None

    def check(self, gmres: _krylov.Gmres, left: Array, size: Array) -> None:
        """Raises CoupledItems where true residuals are not what the solves for each item say, for that reason."""
        rounding = 1e3 * self.point.step.eps * size
        if self.whole or len(left) < 2 or not np.any(left > 10 * gmres.residual + rounding):
            return
        if self._is_coupled():
            raise CoupledItems

    def _is_coupled(self) -> bool:
        items = np.arange(self.shape[0])
        v = random_like(self.point.z)
        for bit in range(max(1, int(self.shape[0] - 1).bit_length())):
            for side in (0, 1):
                moves = torch.from_numpy((items >> bit) & 1 == side).to(v.device)
                image = self.point.vjp_x(torch.where(moves[:, None], v, 0.0))
                if bool((torch.where(moves[:, None], 0.0, image) != 0).any()):
                    return True
        return False


def solve(
    point: Point, transposed: bool, b: Tensor, how: Implicit | Auto, slowness: float, of_theta: bool = True
) -> Answer:
    """x for each item. Where items act on each other, of all of them together."""
    fine = b.isfinite().all(dim=1)
    if b.numel() == 0 or not bool(b.any()):
        status = np.full(b.shape[0], Status.converged.value)
        return Answer(b.clone(), status, 0.0, "one step" if isinstance(how, Auto) else "implicit", 0)
    clean = torch.where(fine[:, None], b, 0.0)
    for whole in (False, True):
        system = System(point, transposed, whole)
        system.ignore_nan_of((clean == 0).all(dim=1))
        try:
            if isinstance(how, Auto):
                answer = _Automatic(system, how.tolerance, slowness, of_theta).solve(clean)
            else:
                answer = _implicit(system, clean, how)
            break
        except CoupledItems:
            continue
    x = answer.x.reshape(b.shape)
    answer.x = torch.where(fine[:, None], x, torch.nan).to(b.dtype)
    if whole:
        answer.status = np.repeat(answer.status, b.shape[0])
    answer.products = point.products
    return answer


def _implicit(system: System, b: Tensor, how: Implicit) -> Answer:
    eps = system.point.step.eps
    found = _krylov.solve(system, system.rows(b), max(how.tolerance, 4 * eps), how.max_iterations, eps, system.check)
    return Answer(found.x, found.status, float(np.max(found.residual, initial=0.0)), "implicit", found.products)


class _Automatic:
    """One step where that is accurate enough, else GMRES, as accurately as the tolerance asks for."""

    def __init__(self, system: System, tolerance: float, slowness: float, of_theta: bool) -> None:
        self.system, self.tolerance, self.slowness = system, tolerance, slowness
        self.of_theta = of_theta and system.transposed and bool(system.point.wanted)
        self.size_of_b: float | None = None
        self.units: Tensor | None = None
        self.eps = system.point.step.eps

    def solve(self, b: Tensor) -> Answer:
        system, tolerance = self.system, self.tolerance
        product = self._in_units(b) if not system.transposed else system
        b = system.rows(b).to(system.dtype)
        if self.units is not None:
            b = b / self.units
        (size,) = row_norms(b)
        x, unit = b.clone(), np.where(size > 0, size, 1.0)
        inverse = self._inverse_to_begin_with(product, b)
        r = b - product(x)
        (left,) = row_norms(r)
        target, rounding = SOUGHT * tolerance * size, 5 * self.eps * size
        near, first, terms = bool(np.all(left <= target)), True, 0
        gmres, base, least = _krylov.Gmres(r), x, left
        while True:
            made = 0
            if not (first and near) and np.any(left > rounding):
                if gmres.exhausted or np.any(left > 2 * gmres.residual + rounding):
                    gmres, base = _krylov.Gmres(r), x
                made = gmres.run(product, np.maximum(target, 0.5 * rounding), MOST_PRODUCTS - system.products)
                terms += made
                inverse = max(inverse, gmres.inverse())
                x = base + gmres.solution()
                r = b - product(x)
                (left,) = row_norms(r)
                system.check(gmres, left, size)
            derivative, rest, scale = self._judge(x, r)
            (length,) = row_norms(x)
            inverse = max(inverse, float(np.max(length / unit)))
            error = INVERSE_SAFETY * inverse * (rest + 4 * self.eps * scale)
            unsolved = max(_krylov.good_enough(self.eps), tolerance)
            is_met = error <= tolerance * derivative and bool(np.all(left <= unsolved * size))
            # Near what rounding leaves of them some residuals always shrink while others grow again.
            shrinks = np.any((left < 0.5 * least) & (least > NEAR_ROUNDING * rounding))
            stalls = not shrinks and (made > 0 or (not first and bool(np.all(target <= 0.5 * rounding))))
            least = np.minimum(least, left)
            spent = system.products >= MOST_PRODUCTS
            if is_met or np.all(left <= rounding) or stalls or spent or not np.isfinite(left).all():
                break
            first = False
            lower = np.clip(SOUGHT * tolerance * derivative / error if error > 0 else 1.0, 1e-6, 0.5)
            target = left * lower
        status = np.full(len(size), Status.converged.value)
        if not is_met:
            limited = spent and not np.all(left <= NEAR_ROUNDING * rounding)
            status[:] = Status.iteration_limit.value if limited else Status.rounding_reached.value
            status[~(left <= _krylov.good_enough(self.eps) * size)] = Status.singular.value
        if self.units is not None:
            x = x * self.units
        method = "one step" if terms == 0 else "implicit"
        residual = float(np.max(left / unit))
        return Answer(x, status, residual, method, 0, terms, is_met)

    def _judge(self, x: Tensor, r: Tensor) -> tuple[float, float, float]:
        """The norm of the derivative from x, the error that the residual r causes in it, up to the norm of the inverse, and
        what rounding is relative to."""
        (of_x,), (of_r,) = row_norms(x), row_norms(r)
        length, left = total(of_x), total(of_r)
        if not self.of_theta:
            return length, left, length
        point = self.system.point
        derivative = norm_of_all(point.vjp_theta(x.reshape(point.z.shape)))
        seen = norm_of_all(point.vjp_theta(r.reshape(point.z.shape)))
        if self.size_of_b is None:
            self.size_of_b = point.size_of_b()
        of_length = derivative / length if length > 0 else 0.0
        rest = max(seen, max(of_length, SHARE_OF_B * self.size_of_b) * left)
        return derivative, rest, self.size_of_b * length

    def _inverse_to_begin_with(self, product: _krylov.Product, b: Tensor) -> float:
        """As the solve's steps tell it, or a random vector where they were too few."""
        if self.slowness > 0:
            return max(1.0, self.slowness)
        probe = _krylov.Gmres(random_like(b))
        probe.run(product, 1e-3 * probe.residual, FEW)
        return max(1.0, probe.inverse())

    def _in_units(self, b: Tensor) -> _krylov.Product:
        """The system of a state whose entries are measured in units of their own: an error of a small entry may be enlarged
        a thousand times in others that are a thousand times as large."""
        system, alike = self.system, 0.03
        z, wide = system.rows(system.point.z.detach()).to(system.dtype).abs(), system.rows(b).to(system.dtype).abs()

        def share(v: Tensor) -> Tensor:
            largest = v.amax(dim=1, keepdim=True)
            return v / torch.where(largest > 0, largest, 1.0)

        size = torch.maximum(share(z), share(wide))
        small = (size > 0) & (size < alike)
        if not bool(small.any()):
            return system
        units = torch.where(small, torch.exp2(torch.round(torch.log2(torch.where(small, size, 1.0)))), 1.0)
        self.units = units

        def product(w: Tensor) -> Tensor:
            return system(units * w) / units

        return product


def growth(point: Point) -> float:
    """The factor by which repeated products with A grow a vector once transients have died out: an estimate of its spectral
    radius. src/estimate/contraction.cpp."""
    v, end, k, rate = random_like(point.z, 5), 20, 0, 0.0
    while end <= 640:
        log_growth = 0.0
        while k < end:
            (sizes,) = row_norms(v.reshape(1, -1))
            size = float(sizes[0])
            if not size > 0:
                return 0.0
            if 2 * k >= end:
                log_growth += 2 * math.log(size) / end if math.isfinite(size) else math.inf
            v = point.vjp_x(v / size)
            k += 1
        rate = math.exp(min(log_growth, 700.0))
        if rate < SLOW_GROWTH:
            break
        end *= 2
    return rate
