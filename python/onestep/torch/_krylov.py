"""GMRES for many systems at once, one for each row of a matrix: vectors stay on the device, the small triangular systems are
on the host. src/linear/krylov.cpp, for tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onestep._core import Status
from onestep.torch._lengths import Array, row_norms, work_dtype

Product = Callable[[Tensor], Tensor]

RESTART = 60
"""Products after which GMRES begins again."""
STALLS = 3


class Gmres:
    """M x = b from zero for each row, as far as wanted: an iteration that can be gone on with until its memory is used up."""

    def __init__(self, b: Tensor) -> None:
        items, n = b.shape
        self.memory = min(RESTART, n)
        self.eps = torch.finfo(b.dtype).eps
        (size,) = row_norms(b)
        self.basis = torch.zeros(items, min(self.memory + 1, 9), n, dtype=b.dtype, device=b.device)
        self.active = (size > 0) & np.isfinite(size)
        self.basis[:, 0] = b / _on(np.where(self.active, size, 1.0), b)[:, None]
        self.columns: list[Array] = []  # of the triangular matrices
        self.g = np.zeros((items, self.memory + 1))
        self.g[:, 0] = np.where(self.active, size, 0.0)
        self.residual = size.copy()
        self.cosine, self.sine = np.ones((items, self.memory)), np.zeros((items, self.memory))
        self.length = np.zeros(items, np.int64)  # of the space that each has searched
        self.complete = np.zeros(items, bool)
        self.k = 0

    @property
    def exhausted(self) -> bool:
        """No further product will shrink a residual: begin again with it."""
        return self.k >= self.memory or bool(np.all(~self.active | self.complete))

    def run(self, product: Product, target: Array, most: int) -> int:
        """Goes on until each residual is at most its target, for so many products, or until the memory is used up. Returns
        the products it made."""
        made = 0
        while made < most and not self.exhausted and bool(np.any(self.active & (self.residual > target))):
            self.active &= ~self.complete  # others go on with the rest, which costs nothing, and can be gone on with
            self._extend(product)
            made += 1
        return made

    def _extend(self, product: Product) -> None:
        k = self.k
        next_ = product(self.basis[:, k]).to(self.basis.dtype)
        (before,) = row_norms(next_)
        V = self.basis[:, : k + 1]
        column: Tensor | float = 0.0
        for _ in range(2):
            along = torch.bmm(next_.unsqueeze(1), V.mT)  # ten times as fast on a CPU as V times a column
            next_ = next_ - torch.bmm(along, V).squeeze(1)
            column = column + along.squeeze(1)
        assert isinstance(column, Tensor)
        (last,) = row_norms(next_)
        h = column.cpu().double().numpy()
        self._note_column(h, before, last)
        if k + 1 <= self.memory:
            if self.basis.shape[1] <= k + 1:
                shape = (self.basis.shape[0], min(2 * self.basis.shape[1], self.memory + 1), self.basis.shape[2])
                wider = self.basis.new_zeros(shape)
                wider[:, : k + 1] = self.basis
                self.basis = wider
            keep = self.active & ~self.complete & (last > 0)
            scale = np.where(keep, 1 / np.where(keep, last, 1.0), 0.0)
            self.basis[:, k + 1] = torch.where(_on(keep, next_)[:, None], next_ * _on(scale, next_)[:, None], 0.0)
        self.k = k + 1

    def _note_column(self, h: Array, before: Array, last: Array) -> None:
        """Givens rotations make the new column triangular; items whose space is complete get one of the identity."""
        k, work = self.k, self.active
        with np.errstate(all="ignore"):
            for i in range(k):
                a = h[:, i].copy()
                following = h[:, i + 1].copy()
                h[:, i] = self.cosine[:, i] * a + self.sine[:, i] * following
                h[:, i + 1] = -self.sine[:, i] * a + self.cosine[:, i] * following
            length = np.hypot(h[:, k], last)
            broken = ~((length > 0) & np.isfinite(length))
            good = work & ~broken
            self.complete |= work & (broken | ~(last > 5 * self.eps * before))
            cosine, sine = np.where(good, h[:, k] / length, 1.0), np.where(good, last / length, 0.0)
        self.cosine[:, k], self.sine[:, k] = cosine, sine
        h[:, k] = length
        h = np.where(good[:, None], h, 0.0)
        h[~good, k] = 1.0
        self.columns.append(h)
        g = self.g[:, k].copy()
        self.g[:, k] = np.where(good, cosine * g, 0.0)
        self.g[:, k + 1] = np.where(good, -sine * g, 0.0)
        self.residual = np.where(good, np.abs(self.g[:, k + 1]), self.residual)
        self.length = np.where(good, k + 1, self.length)

    def solution(self) -> Tensor:
        """The x that was reached."""
        k = self.k
        if k == 0:
            return torch.zeros_like(self.basis[:, 0])
        y = torch.linalg.solve_triangular(self._triangular(), torch.from_numpy(self.g[:, :k, None]), upper=True)
        return torch.bmm(y.mT.to(self.basis), self.basis[:, :k]).squeeze(1)

    def _triangular(self) -> Tensor:
        R = np.zeros((self.basis.shape[0], self.k, self.k))
        for j, column in enumerate(self.columns):
            R[:, : j + 1, j] = column
        return torch.from_numpy(R)

    def inverse(self) -> float:
        """The largest |x| / |M x| over all x in the spaces it has searched: an underestimate of the norm of the inverse."""
        if self.k == 0 or not self.length.any():
            return 0.0
        rows = self.length > 0
        k, R = self.k, self._triangular()[torch.from_numpy(rows)]
        y = torch.from_numpy(1 + 0.5 * np.sin(np.arange(1, k + 1, dtype=np.float64))).expand(R.shape[0], k).unsqueeze(2)
        largest = torch.zeros(R.shape[0], dtype=torch.float64)
        for _ in range(8):
            y = y / torch.linalg.vector_norm(y, dim=1, keepdim=True).clamp_min(1e-300)
            y = torch.linalg.solve_triangular(R.mT, y, upper=False)
            largest = torch.maximum(largest, torch.linalg.vector_norm(y, dim=1).squeeze(1))
            y = torch.linalg.solve_triangular(R, y, upper=True)
        return float(largest.max())

    def has_negative_eigenvalue(self) -> bool:
        """Whether M, on a space it maps nearly into itself, has an odd number of negative eigenvalues, as I less a
        contraction never has."""
        rows = np.flatnonzero(self.length > 0)
        last = self.length[rows] - 1
        return bool(np.any((self.cosine[rows, last] < 0) & (np.abs(self.sine[rows, last]) < 0.5)))


@dataclass
class Solved:
    """The solutions of linear systems, and for each how good it is."""

    x: Tensor
    residual: Array  # relative to the right-hand side
    status: npt.NDArray[np.int64]
    products: int
    inverse: float


def solve(
    product: Product, b: Tensor, tolerance: float, most: int, eps: float, check: Callable[[Gmres, Array, Array], None]
) -> Solved:
    """x with M x = b for each row. Ends where the true residuals are small enough, do not shrink any more, or at the limit.
    `check` is shown the true residuals of each solve."""
    b = b.to(work_dtype(b.dtype))
    (size,) = row_norms(b)
    unit = np.where(size > 0, size, 1.0)
    x, best, r = torch.zeros_like(b), torch.zeros_like(b), b
    reached, stalls = np.where(size > 0, 1.0, 0.0), np.zeros(len(size), np.int64)
    limited, products, inverse = np.zeros(len(size), bool), 0, 0.0
    while True:
        open_ = (reached > tolerance) & (stalls < STALLS)
        if not open_.any():
            break
        if products >= most:
            limited = open_
            break
        gmres = Gmres(torch.where(_on(open_, r)[:, None], r, 0.0))
        products += gmres.run(product, tolerance * unit, most - products)
        inverse = max(inverse, gmres.inverse())
        x = x + gmres.solution()
        r = b - product(x).to(b.dtype)
        products += 1
        (left,) = row_norms(r)
        check(gmres, left, size)
        left = left / unit
        better = np.isfinite(left) & (left < reached) & open_
        stalls = np.where(better, np.where(left > 0.5 * reached, stalls + 1, 0), np.where(open_, STALLS, stalls))
        best = torch.where(_on(better, x)[:, None], x, best)
        reached = np.where(better, left, reached)
    status = np.full(len(size), Status.converged.value)
    fell_short = reached > tolerance
    status[fell_short] = np.where(
        reached[fell_short] <= good_enough(eps), Status.rounding_reached.value, Status.singular.value
    )
    status[limited & fell_short] = Status.iteration_limit.value
    status[~np.isfinite(size)] = Status.not_finite.value
    return Solved(best, reached, status, products, inverse)


def good_enough(eps: float) -> float:
    """The relative residual of a linear system up to which rounding may have stopped its solve; above, it is singular."""
    return min(max(1e-6, 1e3 * eps), 0.1)


def _on(values: npt.NDArray[np.generic], like: Tensor) -> Tensor:
    t = torch.from_numpy(np.ascontiguousarray(values))
    return t.to(device=like.device, dtype=like.dtype if t.is_floating_point() else None)
