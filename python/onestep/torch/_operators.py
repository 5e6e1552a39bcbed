"""The operators of torch.library behind a layer: opaque to compilers, on tensors of doubles in the memory of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onestep.torch import _derivatives
from onestep.torch._problems import Array, Problems


_library = torch.library.Library("onestep", "DEF")
_library.define("solve(Tensor[] theta, int layer, bool[] batched, int count) -> Tensor[]")
_library.define(
    "vjp(Tensor[] c, Tensor[] theta, Tensor[] state, int layer, bool[] batched, bool[] needed, bool[] each) -> Tensor[]"
)
_library.define("jvp(Tensor[] v, Tensor[] theta, Tensor[] state, int layer, bool[] batched, bool[] given) -> Tensor[]")
_library.define(
    "second(Tensor[] c, Tensor[] v, Tensor[] theta, int layer, bool[] batched, bool[] given, bool[] needed) -> Tensor[]"
)
_library.define(
    "second_jvp(Tensor[] v, Tensor[] w, Tensor[] theta, Tensor[] state, int layer, bool[] batched, bool[] given, "
    "bool[] given_to_w) -> Tensor[]"
)


def _arrays(tensors: Sequence[Tensor]) -> list[Array]:
    return [t.detach().numpy() for t in tensors]


def _tensors(arrays: Sequence[Any]) -> list[Tensor]:
    return [torch.from_numpy(np.asarray(a)) for a in arrays]


def _solve(theta: Sequence[Tensor], layer: int, batched: Sequence[bool], count: int) -> list[Tensor]:
    state, statuses = Problems.of(layer).solve(_arrays(theta), tuple(batched), count)
    return _tensors([*state, statuses])


def _vjp(
    c: Sequence[Tensor],
    theta: Sequence[Tensor],
    state: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    needed: Sequence[bool],
    each: Sequence[bool],
) -> list[Tensor]:
    arrays = _arrays(c), _arrays(theta), _arrays(state)
    return _tensors(_derivatives.vjp(Problems.of(layer), *arrays, tuple(batched), needed, each))


def _jvp(
    v: Sequence[Tensor],
    theta: Sequence[Tensor],
    state: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    given: Sequence[bool],
) -> list[Tensor]:
    arrays = _arrays(v), _arrays(theta), _arrays(state)
    return _tensors(_derivatives.jvp(Problems.of(layer), *arrays, tuple(batched), given))


def _second(
    c: Sequence[Tensor],
    v: Sequence[Tensor],
    theta: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    given: Sequence[bool],
    needed: Sequence[bool],
) -> list[Tensor]:
    arrays = _arrays(c), _arrays(v), _arrays(theta)
    return _tensors(_derivatives.second(Problems.of(layer), *arrays, tuple(batched), given, needed))


def _second_jvp(
    v: Sequence[Tensor],
    w: Sequence[Tensor],
    theta: Sequence[Tensor],
    state: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    given: Sequence[bool],
    given_to_w: Sequence[bool],
) -> list[Tensor]:
    arrays = _arrays(v), _arrays(w), _arrays(theta), _arrays(state)
    return _tensors(_derivatives.second_jvp(Problems.of(layer), *arrays, tuple(batched), given, given_to_w))


# What compilers are told: the shapes.


def _fake_solve(theta: Sequence[Tensor], layer: int, batched: Sequence[bool], count: int) -> list[Tensor]:
    shapes = Problems.of(layer).shapes([tuple(int(n) for n in t.shape[int(b) :]) for t, b in zip(theta, batched)])
    state = [theta[0].new_empty((count, *shape)) for shape in shapes]
    return [*state, theta[0].new_empty((count,), dtype=torch.int64)]


def _fake_vjp(
    c: Sequence[Tensor],
    theta: Sequence[Tensor],
    state: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    needed: Sequence[bool],
    each: Sequence[bool],
) -> list[Tensor]:
    directions, count = c[0].shape[:2]
    return [
        t.new_empty((directions, *((count,) if e or b else ()), *t.shape[int(b) :]))
        for t, b, n, e in zip(theta, batched, needed, each)
        if n
    ]


def _fake_jvp(
    v: Sequence[Tensor],
    theta: Sequence[Tensor],
    state: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    given: Sequence[bool],
) -> list[Tensor]:
    return [part.new_empty((v[0].shape[0], *part.shape)) for part in state]


def _fake_second(
    c: Sequence[Tensor],
    v: Sequence[Tensor],
    theta: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    given: Sequence[bool],
    needed: Sequence[bool],
) -> list[Tensor]:
    return [t.new_empty((*c[0].shape[:2], *t.shape[int(b) :])) for t, b, n in zip(theta, batched, needed) if n]


def _fake_second_jvp(
    v: Sequence[Tensor],
    w: Sequence[Tensor],
    theta: Sequence[Tensor],
    state: Sequence[Tensor],
    layer: int,
    batched: Sequence[bool],
    given: Sequence[bool],
    given_to_w: Sequence[bool],
) -> list[Tensor]:
    return [part.new_empty((v[0].shape[0], *part.shape)) for part in state]


for _name, _kernel, _fake in (
    ("solve", _solve, _fake_solve),
    ("vjp", _vjp, _fake_vjp),
    ("jvp", _jvp, _fake_jvp),
    ("second", _second, _fake_second),
    ("second_jvp", _second_jvp, _fake_second_jvp),
):
    _library.impl(_name, _kernel, "CPU")
    torch.library.register_fake(f"onestep::{_name}", _fake, lib=_library)


# Compilers trace operators, and no autograd.Function that has a jvp: the operator has a backward of its own for them.


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    theta, ctx.layer, ctx.batched, _ = inputs
    ctx.number = len(theta)
    ctx.needed = [t.requires_grad for t in theta]
    ctx.save_for_backward(*theta, *output[:-1])


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    theta, state = ctx.saved_tensors[: ctx.number], ctx.saved_tensors[ctx.number :]
    c = [(torch.zeros_like(part) if g is None else g).unsqueeze(0) for g, part in zip(grads, state)]
    found = iter(torch.ops.onestep.vjp(c, theta, state, ctx.layer, ctx.batched, ctx.needed, [False] * ctx.number))
    return [next(found).squeeze(0) if n else None for n in ctx.needed], None, None, None


torch.library.register_autograd("onestep::solve", _backward, setup_context=_setup_context, lib=_library)
