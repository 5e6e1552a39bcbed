"""Primitives on known arrays that NumPy computes as XLA does, to the bit: mostly indices. JAX would compile each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onestep.jax._values import Known


def _broadcast_in_dim(eqn: Any, a: Known, *_: Any) -> Known:
    shape, dims = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    ones = [1] * len(shape)
    for size, dim in zip(a.shape, dims):
        ones[dim] = size
    return np.broadcast_to(a.reshape(ones), shape)


def _iota(eqn: Any) -> Known:
    aval = eqn.outvars[0].aval
    ones = [1] * len(aval.shape)
    ones[eqn.params["dimension"]] = -1
    return np.broadcast_to(np.arange(aval.shape[eqn.params["dimension"]], dtype=aval.dtype).reshape(ones), aval.shape)


def _convert(eqn: Any, a: Known) -> Known:
    return a.astype(eqn.outvars[0].aval.dtype)


def _select_n(eqn: Any, which: Known, *cases: Known) -> Known:
    return np.choose(which.astype(np.int64), cases) if len(cases) > 2 else np.where(which, cases[-1], cases[0])


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def on_arrays(eqn: Any, *given: Known) -> Any:
        with np.errstate(all="ignore"):
            return function(*given)

    return on_arrays


RULES: dict[str, Callable[..., Any]] = {
    "add": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mul": _elementwise(np.multiply),
    "neg": _elementwise(np.negative),
    "lt": _elementwise(np.less),
    "le": _elementwise(np.less_equal),
    "gt": _elementwise(np.greater),
    "ge": _elementwise(np.greater_equal),
    "eq": _elementwise(np.equal),
    "ne": _elementwise(np.not_equal),
    "select_n": _select_n,
    "iota": _iota,
    "broadcast_in_dim": _broadcast_in_dim,
    "convert_element_type": _convert,
    "reshape": lambda eqn, a, *_: a.reshape(eqn.outvars[0].aval.shape),
    "squeeze": lambda eqn, a: a.reshape(eqn.outvars[0].aval.shape),
    "expand_dims": lambda eqn, a: a.reshape(eqn.outvars[0].aval.shape),
    # A view: AᵀDA is seen as what it is.
    "transpose": lambda eqn, a: a.transpose(eqn.params["permutation"]),
    "concatenate": lambda eqn, *parts: np.concatenate(parts, eqn.params["dimension"]),
    "copy": lambda eqn, a: a,
    "copy_p": lambda eqn, a: a,
}
