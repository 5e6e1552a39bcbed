"""Products of a map's derivatives with directions, by torch.func, so that they can be differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onestep.torch._step import Step


def pullback(step: Step, z: Tensor, theta: Sequence[Tensor], needed: Sequence[bool], u: Tensor) -> list[Tensor]:
    """B^T u for the tensors that are needed, by torch.func, so that it can be differentiated again."""
    wanted = [t for t, n in zip(theta, needed) if n]
    if not wanted:
        return []
    pull: Any = torch.func.vjp(lambda *values: step(z, merged(theta, needed, values)), *wanted)[1]
    return list(pull(u))


def pushforward(
    step: Step, z: Tensor, theta: Sequence[Tensor], moves: Sequence[Tensor | None]
) -> Tensor | None:
    """B dtheta; None where nothing moves."""
    given = [m is not None for m in moves]
    if not any(given):
        return None

    def of(*values: Tensor) -> Tensor:
        return step(z, merged(theta, given, values))

    along = tuple(m for m in moves if m is not None)
    return jvp_of(of, tuple(t for t, g in zip(theta, given) if g), along, z)


def transposed_times(step: Step, z: Tensor, theta: Sequence[Tensor], w: Tensor) -> Tensor:
    """A^T w."""
    pull: Any = torch.func.vjp(lambda at: step(at, theta), z)[1]
    out: Tensor = pull(w)[0]
    return out


def jvp_of(f: Callable[..., Tensor], at: tuple[Tensor, ...], along: tuple[Tensor, ...], like: Tensor) -> Tensor:
    """The derivative of f along a direction; its result is `like` this one. Inside a dual level of torch, which knows no other
    one inside it, as the derivative of the transposed product, which is linear."""
    out: Tensor
    if torch.autograd.forward_ad._current_level < 0:
        out = torch.func.jvp(f, at, along)[1]
        return out

    def transposed(w: Tensor) -> tuple[Tensor, ...]:
        pull: Any = torch.func.vjp(f, *at)[1]
        pulled: tuple[Tensor, ...] = pull(w)
        return pulled

    pull: Any = torch.func.vjp(transposed, torch.zeros_like(like))[1]
    (out,) = pull(along)
    return out


def merged(all_: Sequence[Tensor], chosen: Sequence[bool], values: Sequence[Tensor]) -> list[Tensor]:
    """All, with other values for those that were chosen."""
    new = iter(values)
    return [next(new) if c else t for t, c in zip(all_, chosen)]


def placed(found: Sequence[Tensor], needed: Sequence[bool]) -> list[Any]:
    """A gradient for each, None where none is needed."""
    new = iter(found)
    return [next(new) if n else None for n in needed]


def differentiable(theta: Sequence[Tensor], needed: Sequence[bool]) -> tuple[bool, ...]:
    """Which are needed and can have a gradient."""
    return tuple(bool(n) and t.is_floating_point() for t, n in zip(theta, needed))
