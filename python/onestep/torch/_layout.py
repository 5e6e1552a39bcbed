"""How vmap adds to the axes of problems and of directions, see _problems; and lists of tensors taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onestep._errors import MisuseError
from onestep.torch._problems import Kept, Problems

InDims = Sequence[int | None]


@dataclass(frozen=True)
class Call:
    """What a forward pass and the derivatives of it share."""

    problems: Problems  # a graph keeps them, so that its layer may be gone
    batched: tuple[bool, ...]
    count: int
    kept: Kept

    @property
    def layer(self) -> int:
        """What operators know the layer by."""
        return self.problems.number

    @property
    def number(self) -> int:
        """Of parameters."""
        return len(self.batched)


def tangents_of(
    call: Call, tangents: Sequence[Tensor | None], directions: int, has_axis: Sequence[bool] | None = None
) -> tuple[tuple[bool, ...], list[Tensor]]:
    """Which parameters have a tangent, and these with both axes. They come with an axis of directions where has_axis says
    which of them have one of problems, too; else without, and with one of problems as the parameters have it."""
    given = tuple(t is not None for t in tangents)
    v = []
    for i, t in enumerate(tangents):
        if t is None:
            continue
        if has_axis is None:
            t = t.unsqueeze(0).expand(directions, *t.shape)
        if not (call.batched[i] if has_axis is None else has_axis[i]):
            t = t.unsqueeze(1).expand(t.shape[0], call.count, *t.shape[1:])
        v.append(t)
    return given, v


def split(tensors: Sequence[Any], *lengths: int) -> list[Any]:
    """Lists of these lengths, and the rest."""
    parts, first = [], 0
    for length in lengths:
        parts.append(list(tensors[first : first + length]))
        first += length
    return [*parts, list(tensors[first:])]


def refuse_batches_of_autograd(tensors: Sequence[Tensor]) -> None:
    """torch.autograd makes these without asking a function how it is batched."""
    if any(torch._C._functorch.is_legacy_batchedtensor(t) for t in tensors):
        raise MisuseError(
            "[layer] torch.autograd's own batches of directions (is_grads_batched, vectorize=True) are not supported: use "
            "torch.func.jacrev, jacfwd or vmap"
        )


# A level of vmap in which parameters are batched makes more problems ...


def more_parameters(size: int, call: Call, theta: Sequence[Tensor], dims: InDims) -> tuple[Call, list[Tensor]]:
    """The parameters with `size` times as many problems, and the call for them."""
    wider, batched = [], []
    for t, dim, has_axis in zip(theta, dims, call.batched):
        batched.append(has_axis or dim is not None)
        if dim is None and not has_axis:
            wider.append(t)
            continue
        t = t.unsqueeze(0).expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
        if not has_axis:
            t = t.unsqueeze(1).expand(size, call.count, *t.shape[1:])
        wider.append(t.flatten(0, 1))
    return replace(call, batched=tuple(batched), count=size * call.count), wider


def more_states(size: int, state: Sequence[Tensor], dims: InDims) -> list[Tensor]:
    wider = [s.unsqueeze(0).expand(size, *s.shape) if dim is None else s.movedim(dim, 0) for s, dim in zip(state, dims)]
    return [w.flatten(0, 1) for w in wider]


def more_problems(size: int, directions: Sequence[Tensor], dims: InDims) -> list[Tensor]:
    wider = [
        d.unsqueeze(1).expand(d.shape[0], size, *d.shape[1:]) if dim is None else d.movedim(dim, 0).movedim(0, 1)
        for d, dim in zip(directions, dims)
    ]
    return [w.flatten(1, 2) for w in wider]


def of_problems(size: int, results: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """What vmap is told of results with an axis of directions and one of problems."""
    return tuple(r.unflatten(1, (size, _of_each(r.shape[1], size))) for r in results), (1,) * len(results)


# ... and one in which only directions are batched makes more of these.


def more_directions(size: int, directions: Sequence[Tensor], dims: InDims) -> list[Tensor]:
    return more_states(size, directions, dims)


def of_directions(size: int, results: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    return tuple(r.unflatten(0, (size, _of_each(r.shape[0], size))) for r in results), (0,) * len(results)


def _of_each(together: int, size: int) -> int:
    """How many each of `size` has; where there are none, it does not matter."""
    return together // size if size > 0 else 1
