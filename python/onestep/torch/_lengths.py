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
    """The Euclidean norm of each row, without overflow or underflow of squares, in one transfer from the device."""
    found = []
    for m in matrices:
        if m.shape[1] == 0:
            found.append(torch.zeros(2, m.shape[0], dtype=_wide(m), device=m.device))
            continue
        wide = m.to(_wide(m))
        largest = wide.abs().amax(dim=1)
        unit = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
        found.append(torch.stack([torch.linalg.vector_norm(wide / unit[:, None], dim=1), unit]))
    lengths = torch.stack(found).cpu().double().numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return [pair[0] * pair[1] for pair in lengths]


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


def _wide(m: Tensor) -> torch.dtype:
    return work_dtype(m.dtype)


def random_like(m: Tensor, seed: int = 1) -> Tensor:
    """Orthogonal to nothing in particular, and the same in every run."""
    generator = np.random.default_rng(20231123 + seed)
    entries = generator.uniform(0.5, 1.5, m.shape) * generator.choice([-1.0, 1.0], m.shape)
    return torch.from_numpy(entries).to(device=m.device, dtype=m.dtype)


def signs_like(m: Tensor, seed: int = 1) -> Tensor:
    """1 or -1."""
    return random_like(m, seed).sign()
