"""The autograd.Functions that second derivatives of a layer are made of. They are the end: no third derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onestep._errors import MisuseError
from onestep.torch import _operators as _operators
from onestep.torch._layout import (
    Call,
    InDims,
    more_directions,
    more_parameters,
    more_problems,
    more_states,
    of_directions,
    of_problems,
    refuse_batches_of_autograd,
    split,
)

_NO_THIRD = "[layer] a layer has first and second derivatives; a third one was asked for"


class Second(torch.autograd.Function):
    """(c, v, theta) -> the gradient of <c, (dx/dtheta) v> by the parameters that are needed, for each problem."""

    @staticmethod
    def forward(call: Call, given: tuple[bool, ...], needed: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        refuse_batches_of_autograd(tensors)
        v, theta, c = split(tensors, sum(given), call.number)
        return tuple(torch.ops.onestep.second(c, v, theta, call.layer, call.batched, given, needed))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise MisuseError(_NO_THIRD)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise MisuseError(_NO_THIRD)

    @staticmethod
    def vmap(
        info: Any, in_dims: InDims, call: Call, given: tuple[bool, ...], needed: tuple[bool, ...], *tensors: Tensor
    ) -> tuple[Any, Any]:
        size = info.batch_size
        v, theta, c = split(tensors, sum(given), call.number)
        v_dims, theta_dims, c_dims = split(in_dims[3:], sum(given), call.number)
        if all(d is None for d in theta_dims):
            v, c = more_directions(size, v, v_dims), more_directions(size, c, c_dims)
            return of_directions(size, Second.apply(call, given, needed, *v, *theta, *c))
        wider, theta = more_parameters(size, call, theta, theta_dims)
        v, c = more_problems(size, v, v_dims), more_problems(size, c, c_dims)
        return of_problems(size, Second.apply(wider, given, needed, *v, *theta, *c))


class SecondJvp(torch.autograd.Function):
    """(v, w, theta, state) -> how (dx/dtheta) v moves when theta moves along w."""

    @staticmethod
    def forward(
        call: Call, given: tuple[bool, ...], given_to_w: tuple[bool, ...], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        refuse_batches_of_autograd(tensors)
        v, w, theta, state = split(tensors, sum(given), sum(given_to_w), call.number)
        return tuple(torch.ops.onestep.second_jvp(v, w, theta, state, call.layer, call.batched, given, given_to_w))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise MisuseError(_NO_THIRD)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise MisuseError(_NO_THIRD)

    @staticmethod
    def vmap(
        info: Any, in_dims: InDims, call: Call, given: tuple[bool, ...], given_to_w: tuple[bool, ...], *tensors: Tensor
    ) -> tuple[Any, Any]:
        size = info.batch_size
        lengths = sum(given), sum(given_to_w), call.number
        v, w, theta, state = split(tensors, *lengths)
        v_dims, w_dims, theta_dims, state_dims = split(in_dims[3:], *lengths)
        if all(d is None for d in theta_dims):
            v, w = more_directions(size, v, v_dims), more_directions(size, w, w_dims)
            return of_directions(size, SecondJvp.apply(call, given, given_to_w, *v, *w, *theta, *state))
        wider, theta = more_parameters(size, call, theta, theta_dims)
        v, w = more_problems(size, v, v_dims), more_problems(size, w, w_dims)
        out = SecondJvp.apply(wider, given, given_to_w, *v, *w, *theta, *more_states(size, state, state_dims))
        return of_problems(size, out)


def second_of_shared(
    call: Call,
    given: tuple[bool, ...],
    needed: Sequence[bool],
    v: Sequence[Tensor],
    theta: Sequence[Tensor],
    c: Sequence[Tensor],
) -> list[Tensor | None]:
    """The gradient of <c, (dx/dtheta) v>, summed over all directions, as backward returns it for the parameters."""
    found = iter(Second.apply(call, given, tuple(needed), *v, *theta, *c))
    return [None if not n else next(found).sum(dim=0 if b else (0, 1)) for n, b in zip(needed, call.batched)]
