"""Norms of the rows of a matrix as doubles of the host, where all decisions are made; and random vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]


def row_norms(*matrices: Tensor) -> list[Array]:
    """The Euclidean norm of each row, without overflow or underflow of squares, in one transfer from the device. The matrices
    have one shape."""
    if matrices[0].shape[1] == 0:
        return [np.zeros(m.shape[0]) for m in matrices]
    together = matrices[0].unsqueeze(0) if len(matrices) == 1 else torch.stack(matrices)
    wide = together.detach().to(work_dtype(together.dtype))
    unit = wide.abs().amax(dim=2, keepdim=True).clamp_min(torch.finfo(wide.dtype).tiny)
    lengths = torch.linalg.vector_norm(wide / unit, dim=2)
    pairs = torch.stack([lengths, unit.squeeze(2)]).cpu().double().numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return list(pairs[0] * pairs[1])


def total(norms: Array) -> float:
    """The norm of the whole of that whose rows have these norms."""
    largest = float(np.max(norms, initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return float(np.sum(norms)) if norms.size else 0.0
    return largest * float(np.sqrt(np.sum((norms / largest) ** 2)))


def norm(m: Tensor) -> float:
    """Of all entries."""
    return float(row_norms(m.reshape(1, -1))[0][0])


def norm_of_all(parts: Sequence[Tensor]) -> float:
    """Of all entries of all tensors."""
    return total(np.array([norm(p) for p in parts])) if parts else 0.0


def work_dtype(dtype: torch.dtype) -> torch.dtype:
    """In which vectors of a linear solve are kept: at least single precision."""
    return torch.promote_types(dtype, torch.float32)


def random_like(m: Tensor, seed: int = 1) -> Tensor:
    """Orthogonal to nothing in particular, and the same in every run."""
    generator = np.random.default_rng(20231123 + seed)
    entries = generator.uniform(0.5, 1.5, m.shape) * generator.choice([-1.0, 1.0], m.shape)
    return torch.from_numpy(np.asarray(entries)).to(device=m.device, dtype=m.dtype)


def signs_like(m: Tensor, seed: int = 1) -> Tensor:
    """1 or -1."""
    return random_like(m, seed).sign()
