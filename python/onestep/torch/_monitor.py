"""When the items of a batch have converged. A short step counts only where the steps were seen to contract, and its scale is
the size of the state near the solution: src/solve/monitor.cpp, for many items at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onestep._core import Status
from onestep.torch._lengths import Array, row_norms

# Largest distance to the solution, relative to |z|, that the rate of the last steps may predict at convergence.
NEAR = 0.1
# Steps whose ratios creep towards 1, as those of a sublinear iteration do, are told where they are slow.
SLOW_RATIO, SUBLINEAR, RESOLUTION, SLOW_HALVING, ABRUPT = 0.9, 0.1, 0.05, 7, 0.05
# Steps shorter than this many units in the last place times sqrt(n) |z| are rounding where they lead nowhere.
ROUNDING, WINDOW, LEADS_NOWHERE = 64.0, 8, 0.5
BLOW_UP, OVERFLOW_AFTER = 1e20, 1e8
RUNNING = -1
Bools = npt.NDArray[np.bool_]


class Monitor:
    """Knows each item by the lengths of its steps."""

    def __init__(self, z: Tensor, tolerance: float, typical: float, eps: float, max_iterations: int) -> None:
        items, self.n = z.shape
        self.tolerance, self.typical, self.eps, self.most = tolerance, typical, eps, max_iterations
        self.tiny = 1e3 * torch.finfo(z.dtype).tiny  # iterations that converge to zero end here
        (size,) = row_norms(z)
        self.first_size, self.size_before = size.copy(), size.copy()
        self.status = np.full(items, RUNNING)
        self.iterations = 0
        self.ended_at = np.zeros(items, np.int64)  # the iteration in which each ended

        def all_of(value: float) -> Array:
            return np.full(items, value)

        self.step, self.step_before, self.ratio, self.ratio_before = (all_of(np.nan) for _ in range(4))
        self.halved_from, self.since_halving = all_of(np.nan), all_of(0)
        self.halving = np.full((3, items), np.inf)
        self.creep, self.creep_before = all_of(np.inf), all_of(np.inf)
        self.sees_creep = np.zeros(items, bool)
        self.contractions = np.zeros(items, np.int64)
        self.largest, self.smallest = all_of(0), all_of(np.inf)
        self.within = size.copy()
        self.stalled, self.path, self.longest = all_of(0), all_of(0), all_of(0)
        self.stall_from, self.window = all_of(np.nan), all_of(WINDOW)
        self.anchor = z

    @property
    def slowness(self) -> Array:
        """1 / (1 - rho), as the iterations tell in which steps halved; 0 where they do not."""
        halving = np.where(np.isfinite(self.halving[0]), self.halving[0], self.halving[1])
        return np.where(np.isfinite(halving), halving / np.log(2.0), 0.0)

    def record(self, z: Tensor, step: Array, size: Array, factor: float = 1.0, distance: Array | None = None) -> bool:
        """Of an iteration that led to z: the lengths of its undamped step, of which the loop went `factor`; and what an
        accelerated loop says of the distance to the solution. Returns whether all items have ended."""
        with np.errstate(all="ignore"):
            self._record(z, step, size, factor, distance)
        return bool(np.all(self.status != RUNNING))

    def _record(self, z: Tensor, step: Array, size: Array, factor: float, distance: Array | None) -> None:
        self.iterations += 1
        self.within = np.maximum(np.maximum(size, self.size_before), self.typical)
        self.size_before = size
        grew = (self.iterations > 1) & (
            np.isinf(step) | (self.largest > OVERFLOW_AFTER * np.maximum(self.first_size, self.smallest))
        )
        bad = ~np.isfinite(step)
        self.status = np.where(bad, np.where(grew, Status.diverged.value, Status.not_finite.value), self.status)
        self.largest = np.fmax(self.largest, step)
        self._observe(step)
        is_within = step <= self.tolerance * self.within
        if not is_within.any():
            near = is_within
        elif distance is None:
            near = self._is_near(factor * step)
        else:
            near = (self.contractions >= 1) & (distance <= max(NEAR, self.tolerance) * self.within)
        converged = (step <= self.tiny) | (is_within & near)
        self.smallest = np.fmin(self.smallest, step)
        lost = self._reached_rounding(z, step)
        # An item that others of its batch act on may be moved again: it has not converged then.
        good = is_solution(self.status)
        allowed = max(2 * self.tolerance, ROUNDING * self.eps * np.sqrt(self.n)) * self.within
        self.status = np.where(good & ~(step <= allowed), RUNNING, self.status)
        running = self.status == RUNNING
        self.status = np.where(running & converged, Status.converged.value, self.status)
        ended = np.where(is_within, Status.converged.value, Status.rounding_reached.value)
        self.status = np.where(running & ~converged & lost, ended, self.status)
        blown = size > BLOW_UP * np.maximum(self.first_size, np.where(self.iterations == 1, step, self.smallest))
        blown &= (step > 0.9 * self.largest) & (self.iterations > 10)
        self.status = np.where((self.status == RUNNING) & blown, Status.diverged.value, self.status)
        if self.iterations >= self.most:
            self.status = np.where(self.status == RUNNING, Status.iteration_limit.value, self.status)
        self.ended_at = np.where(
            self.status == RUNNING, 0, np.where(self.ended_at == 0, self.iterations, self.ended_at)
        )

    def _observe(self, step: Array) -> None:
        """How fast the steps contract: from the last two ratios of their lengths, and, since single ratios oscillate and are
        lost in rounding, from the iterations in which they halve."""
        error, before = self.eps * self.within, self.step
        self.ratio_before, self.creep_before = self.ratio, self.creep
        self.ratio = np.where(before > error, (step + error) / (before - error), np.inf)
        gap_before, gap = 1 - self.ratio_before, 1 - (step - error) / (before + error)
        self.sees_creep = gap - (1 - self.ratio) <= RESOLUTION * gap * gap
        creep = np.where((gap > 0) & (gap_before > gap), np.log(gap_before / gap) / np.log(before / step), 0.0)
        self.creep = np.where(np.isfinite(self.ratio_before), creep, np.inf)
        expected = np.minimum(self.ratio_before, 1.0)
        contracts = (self.ratio < 1) & ~(self.ratio < 0.01 * expected * expected)
        self.contractions = np.where(contracts, self.contractions + 1, 0)
        self.since_halving = self.since_halving + 1
        halved = step + error <= 0.5 * (self.halved_from - error)
        starts = halved | ~(step <= 2 * self.halved_from)
        time = np.where(halved & ~(step < ABRUPT * before), self.since_halving, np.inf)
        self.halving = np.where(starts, np.stack([time, self.halving[0], self.halving[1]]), self.halving)
        self.halved_from = np.where(starts, step, self.halved_from)
        self.since_halving = np.where(starts, 0.0, self.since_halving)
        self.step_before, self.step = before, step

    def _is_near(self, step: Array) -> Bools:
        """Whether the distance left is small, by either estimate of the rate rho: it is step rho / (1 - rho), and more where
        the rate creeps towards 1. Not where no contraction was seen."""

        def is_small(distance: Array, creep: Array, is_slow: Bools) -> Bools:
            allowed = np.maximum(np.where(is_slow & (creep > SUBLINEAR), 0.0, NEAR), self.tolerance)
            return (creep < 1) & (distance / (1 - creep) <= allowed * self.within)

        last, before, first = self.halving
        ratio, creep = np.fmax(self.ratio, self.ratio_before), np.fmin(self.creep, self.creep_before)
        by_ratio = (self.contractions >= 2) & (self.sees_creep | ~np.isfinite(first))
        by_ratio &= is_small(step * ratio / (1 - ratio), creep, ratio > SLOW_RATIO)

        def growth(now: Array, then: Array) -> Array:
            return np.log2(np.maximum(now - 1, 1.0) / (then + 1))

        time = np.fmax(last, self.since_halving)
        of_times = np.where(np.isfinite(first), np.minimum(growth(time, before), growth(before, first)), 0.0)
        creep = np.fmax(np.where(np.isfinite(creep), creep, 0.0), of_times)
        by_time = is_small(step * time / np.log(2.0), creep, time > SLOW_HALVING)
        return by_ratio | by_time

    def _reached_rounding(self, z: Tensor, step: Array) -> Bools:
        """Whether the last steps of an item are as short as the last places of z and lead nowhere."""
        short = step <= ROUNDING * self.eps * np.sqrt(self.n) * self.within
        begins = ~short | ~(step > 0.5 * self.stall_from)
        self.stalled = np.where(begins, 0, self.stalled + 1)
        self.path = np.where(begins, 0.0, self.path + step)
        self.stall_from = np.where(begins, np.where(short, step, np.nan), self.stall_from)
        full = self.stalled >= self.window
        lost = np.zeros_like(full)
        if full.any():
            (moved,) = row_norms(z - self.anchor)
            lost = full & (moved <= LEADS_NOWHERE * self.path)
            again = full & ~lost
            self.window = np.where(again, 2 * self.window, self.window)
            self.stalled, self.path = np.where(again, 0, self.stalled), np.where(again, 0.0, self.path)
            begins = begins | again
        if (begins & short).any():
            mask = torch.from_numpy(begins).to(z.device)
            self.anchor = torch.where(mask[:, None], z, self.anchor)
        return lost


def is_solution(status: npt.NDArray[np.int64]) -> Bools:
    """Which items ended at a solution."""
    return np.asarray((status == Status.converged.value) | (status == Status.rounding_reached.value))
