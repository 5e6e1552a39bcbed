"""Where the derivatives of a fixed point end: a first one that has no second one, and items that have none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onestep._errors import MisuseError
from onestep.torch._step import Dims

_NO_SECOND = (
    "[fixed_point] OneStep has the right first derivative alone; for a second one take Implicit(), or KStep(K) where K steps "
    "leave out little"
)


class Once(torch.autograd.Function):
    """A first derivative that has no further one."""

    @staticmethod
    def forward(derivative: Tensor, *theta: Tensor) -> Tensor:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise MisuseError(_NO_SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise MisuseError(_NO_SECOND)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, derivative: Tensor, *theta: Tensor) -> tuple[Any, Any]:
        return Once.apply(derivative, *theta), in_dims[0]


class Failed(torch.autograd.Function):
    """What is returned of items that failed, NaN or what there is, and their derivatives: NaN, but zero for a cotangent that
    is zero."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, instead: Tensor, failed: Tensor) -> Tensor:
        return torch.where(failed[:, None], instead, z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        (failed,) = ctx.saved_tensors
        nothing = (c == 0).all(dim=1, keepdim=True)
        return torch.where(failed[:, None], torch.where(nothing, 0.0, torch.nan), c), None, None

    @staticmethod
    def jvp(ctx: Any, moved: Tensor, _0: Any, _1: Any) -> Any:
        (failed,) = ctx.saved_tensors
        return torch.where(failed[:, None], torch.nan, moved)
