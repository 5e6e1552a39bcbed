"""Tensors on their way into a solver and back: what is refused, what is converted, and where results go."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from onestep._errors import MisuseError

Dtype: TypeAlias = torch.dtype | Literal["input"]

_warned = False


def as_tensor(value: Any, name: str) -> Tensor:
    """A tensor of real numbers. Anything else is refused by name."""
    # Numbers of Python are doubles, as NumPy has it; torch would round them. Arrays may change later, so they are copied.
    try:
        t = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value, order="C"))
    except (TypeError, ValueError) as error:
        raise MisuseError(f"[layer] {name} is no array of real numbers but {type(value).__name__}") from error
    if t.layout is not torch.strided:
        raise MisuseError(f"[layer] {name} is a sparse tensor, which this version does not support: use .to_dense()")
    if t.is_complex() or t.dtype is torch.bool or t.is_quantized:
        raise MisuseError(f"[layer] {name} is a tensor of {t.dtype}; one of real numbers is needed")
    return t


def to_host(t: Tensor) -> Tensor:
    """As doubles in the memory of the host, where the library computes. Gradients go the way back."""
    global _warned
    if t.device.type != "cpu" and not _warned:
        _warned = True
        warnings.warn(
            f"onestep computes in the memory of the host: tensors on {t.device} are copied there and results back. This "
            "is said once",
            stacklevel=4,
        )
    return t.to(device="cpu", dtype=torch.float64)


def device_of(inputs: Sequence[Tensor]) -> torch.device:
    """Of results: that of the first input which is not in the memory of the host."""
    return next((t.device for t in inputs if t.device.type != "cpu"), torch.device("cpu"))


def dtype_of(inputs: Sequence[Any], asked: Dtype) -> torch.dtype:
    """Of results: as asked for; "input" is what torch makes of the dtypes of those inputs together that are tensors."""
    floating = [t.dtype for t in inputs if isinstance(t, Tensor) and t.is_floating_point()]
    if isinstance(asked, torch.dtype) or not floating:
        return asked if isinstance(asked, torch.dtype) else torch.float64
    return functools.reduce(torch.promote_types, floating)


def checked_dtype(dtype: Dtype) -> Dtype:
    if dtype == "input" or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return dtype
    raise MisuseError(f"[layer] dtype must be a floating dtype of torch or 'input', not {dtype!r}")
