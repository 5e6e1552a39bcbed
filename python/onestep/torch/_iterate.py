"""The loop z <- F(z, theta), plain, damped, or accelerated by Anderson's method, and what is known of it afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onestep._core import Status
from onestep._errors import NotConvergedError
from onestep.torch._lengths import Array, row_norms, total, work_dtype
from onestep.torch._monitor import Monitor, is_solution
from onestep.torch._step import Step


@dataclass(frozen=True)
class Options:
    """How the loop goes and when it ends."""

    tolerance: float
    typical_z: float
    max_iterations: int
    anderson: int
    damping: float
    keep: int  # last states, for the estimator
    on_error: str

    @property
    def is_plain(self) -> bool:
        """Whether the iterates are z_k = F(z_{k-1})."""
        return self.anderson == 0 and self.damping == 1


@dataclass
class Run:
    """How a solve ended. z is F(previous)."""

    z: Tensor
    states: list[Tensor]  # the last ones before z, as far as they are kept; the last of them is `previous`
    status: npt.NDArray[np.int64]
    iterations: int
    last_step: float = 0.0
    step_before: float = 0.0
    slowness: float = 0.0
    fewest: int = 0  # iterations until an item ended
    scale: Array | None = None  # what the tolerance is relative to

    @property
    def failed(self) -> npt.NDArray[np.bool_]:
        """Items that did not end at a solution."""
        return ~is_solution(self.status)


class _Anderson:
    """The next state is where the residual F(z) - z, linear between the last states, is smallest; damped. Each item mixes its
    own states."""

    def __init__(self, memory: int, damping: float) -> None:
        self.memory, self.damping = memory, damping
        self.forget()

    def forget(self) -> None:
        """Begins again, as after steps that did not lead nearer."""
        self.dz: list[Tensor] = []
        self.dr: list[Tensor] = []
        self.before: tuple[Tensor, Tensor] | None = None

    def next(self, z: Tensor, r: Tensor) -> tuple[Tensor, Array]:
        """The next state, and what the secants tell of the norm of the inverse of I - A, for each item."""
        plain = z + self.damping * r
        if self.before is not None:
            self.dz = [*self.dz, z - self.before[0]][-self.memory :]
            self.dr = [*self.dr, r - self.before[1]][-self.memory :]
        self.before = (z, r)
        if not self.dz:
            return plain, np.ones(z.shape[0])
        wide = work_dtype(z.dtype)
        dZ, dR = (torch.stack(d, dim=2).to(wide) for d in (self.dz, self.dr))
        gram = torch.bmm(dR.mT, dR)
        right = torch.bmm(dR.mT, r.to(wide).unsqueeze(2))
        G, b = gram.cpu().double().numpy(), right.cpu().double().numpy()
        gamma = _least_squares(G, b, torch.finfo(wide).eps)
        move = torch.bmm(dZ + self.damping * dR, torch.from_numpy(gamma).to(device=z.device, dtype=wide)).squeeze(2)
        lengths_z = torch.linalg.vector_norm(dZ, dim=1).cpu().double().numpy()
        lengths_r = torch.linalg.vector_norm(dR, dim=1).cpu().double().numpy()
        with np.errstate(all="ignore"):
            seen = np.where(lengths_r > 0, lengths_z / lengths_r, np.inf)
        return plain - move.to(z.dtype), np.maximum(1.0, np.max(seen, axis=1, initial=1.0))


def _least_squares(gram: Array, right: Array, eps: float) -> Array:
    """gamma with gram gamma = right, where directions that are lost in rounding get nothing."""
    scale = np.sqrt(np.maximum(np.einsum("bii->bi", gram), 0.0))
    unit = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    G, b = gram / (unit[:, :, None] * unit[:, None, :]), right / unit[:, :, None]
    fine = np.isfinite(G).all(axis=(1, 2)) & np.isfinite(b).all(axis=(1, 2))
    G, b = np.where(fine[:, None, None], G, np.eye(G.shape[1])), np.where(fine[:, None, None], b, 0.0)
    values, vectors = np.linalg.eigh(G)
    cut = 100 * eps * values[:, -1:]
    inverse = np.where(values > cut, 1 / np.where(values > cut, values, 1.0), 0.0)
    y = (vectors * inverse[:, None, :]) @ (vectors.transpose(0, 2, 1) @ b)
    return np.asarray(y / unit[:, :, None])


def iterate(step: Step, z0: Tensor, theta: Sequence[Tensor], options: Options) -> Run:
    """Solves all items; each ends by itself, and the loop with the last of them."""
    z = z0
    if z.numel() == 0:
        return Run(z, [z] * options.keep, np.full(step.items, Status.converged.value), 0)
    monitor = Monitor(z, options.tolerance, options.typical_z, step.eps, options.max_iterations)
    mixing = _Anderson(options.anderson, options.damping) if options.anderson else None
    states: deque[Tensor] = deque(maxlen=max(options.keep, 1))
    best = np.inf
    while True:
        states.append(z)
        following = step(z, theta)
        r = following - z
        length, size = row_norms(r, following)
        distance = None
        moved = following
        if mixing is not None:
            if total(length) > 10 * best:
                mixing.forget()
            best = min(best, total(length))
            moved, inverse = mixing.next(z, r)
            with np.errstate(invalid="ignore"):
                distance = inverse * length
        elif options.damping != 1:
            moved = z + options.damping * r
        if monitor.record(following, length, size, options.damping, distance):
            break
        z = moved
    status = monitor.status
    finite = following.isfinite().all(dim=1).cpu().numpy()
    status = np.where(is_solution(status) & ~finite, Status.not_finite.value, status)
    before = total(monitor.step_before) if np.isfinite(monitor.step_before).all() else 0.0
    run = Run(following, list(states), status, monitor.iterations, total(length), before)
    run.slowness = float(np.max(monitor.slowness, initial=0.0)) if options.is_plain else 0.0
    run.scale = monitor.within
    run.fewest = int(np.min(monitor.ended_at))
    return run


def not_converged(run: Run, options: Options) -> NotConvergedError:
    """What is raised with on_error="raise"."""
    failed = np.flatnonzero(run.failed)
    first = Status(int(run.status[failed[0]]))
    which = ""
    if len(run.status) > 1:
        which = f"{len(failed)} of {len(run.status)} items did not end at a solution; the first of them, number {failed[0]}: "
    word = f"{first.name} after {run.iterations} iterations"
    return NotConvergedError(
        f"[fixed_point] {which}{word}. {first.explanation} Damping (damping=0.5) or acceleration (anderson=5) may help; "
        "on_error='nan' or 'keep' goes on, and has a status for each item",
        first,
        run.iterations,
    )
