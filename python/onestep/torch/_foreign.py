"""A function of PyTorch as a step that is not traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import jvp, vjp

from onestep._core import ForeignStep
from onestep._errors import MisuseError

Array = npt.NDArray[np.float64]


def foreign_step(step: Callable[..., Tensor], *, device: torch.device | str = "cpu") -> ForeignStep:
    """A step F(x, *theta) written with torch, whose derivatives are torch's, for `onestep.fixed_point`, with all its estimators.

    >>> solver = onestep.fixed_point(onestep.torch.foreign_step(lambda x, t: torch.tanh(W @ x) + t))
    >>> s = solver.solve(np.zeros(3), np.ones(3))

    The state is a vector. F is called with tensors of doubles on `device`; what it closes over is held constant, so what shall
    be differentiated by has to be a parameter. Derivatives of other tensors, and batches, are what `fixed_point` of this
    module is for.
    """
    if not callable(step):
        raise MisuseError(f"[foreign_step] a function of torch is needed, not {step!r}")

    def tensors(arrays: Sequence[Array]) -> list[Tensor]:
        return [torch.tensor(a, dtype=torch.float64, device=device) for a in arrays]

    def called(x: Tensor, *theta: Tensor) -> Tensor:
        result = step(x, *theta)
        if not isinstance(result, Tensor):
            raise MisuseError(f"[foreign_step] the step must return a tensor, not {type(result).__name__}")
        if result.shape != x.shape:
            raise MisuseError(
                f"[foreign_step] the step returned a tensor of shape {tuple(result.shape)} for a state of shape {tuple(x.shape)}"
            )
        return result.to(torch.float64)

    def apply(x: Array, *theta: Array) -> Array:
        with torch.no_grad():
            return _numpy(called(*tensors((x, *theta))))

    def forward(x: Array, theta: Sequence[Array], dx: Array | None, dtheta: Sequence[Array] | None) -> Array:
        primals = (x, *theta)
        zero = [np.zeros_like(a) for a in primals]
        tangents = ([dx] if dx is not None else zero[:1]) + (list(dtheta) if dtheta is not None else zero[1:])
        return _numpy(jvp(called, tuple(tensors(primals)), tuple(tensors(tangents)))[1])

    def backward(x: Array, theta: Sequence[Array], c: Array) -> tuple[Array, tuple[Array, ...]]:
        pull_back = vjp(called, *tensors((x, *theta)))[1]
        of_x, *of_theta = (_numpy(bar) for bar in pull_back(*tensors([c])))
        return of_x, tuple(of_theta)

    return ForeignStep(apply, forward, backward)


def _numpy(t: Tensor) -> Array:
    result: Any = t.detach().cpu().numpy()
    return result
