"""JAX's arrays on their way into a solver and back: what is refused, what is converted, and what results are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from onestep._errors import MisuseError

Dtype: TypeAlias = Any | Literal["input"]


def check_x64(who: str) -> None:
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise MisuseError(
            f"[{who}] onestep computes in double precision, which JAX has to be asked for: "
            'jax.config.update("jax_enable_x64", True) before the first array, or JAX_ENABLE_X64=1 in the environment'
        )


def checked_dtype(who: str, dtype: Dtype) -> Dtype:
    if isinstance(dtype, str) and dtype == "input":
        return dtype
    try:
        known = jnp.dtype(dtype)
    except TypeError:
        known = None
    if known is None or not jnp.issubdtype(known, jnp.floating):
        raise MisuseError(f"[{who}] dtype must be a floating dtype or 'input', not {dtype!r}")
    return known


def as_double(who: str, name: str, value: Any, dtype: Dtype) -> Any:
    """In double precision. Whole numbers are converted, less than double precision only where a dtype says that it is known."""
    if hasattr(value, "todense"):
        raise MisuseError(f"[{who}] {name} is sparse, which this version does not support: use .todense()")
    try:
        array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise MisuseError(f"[{who}] {name} is no array of real numbers but {type(value).__name__}") from error
    if array.dtype == np.float64:
        return array
    if jnp.issubdtype(array.dtype, jnp.integer):
        return array.astype(np.float64)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise MisuseError(f"[{who}] {name} is an array of {array.dtype}; one of real numbers is needed")
    if not isinstance(dtype, str) and dtype == np.float64:
        raise MisuseError(
            f"[{who}] {name} is an array of {array.dtype}, and onestep computes in float64: .astype(jnp.float64), or say "
            "dtype='input' for results of the inputs' dtype, computed in float64"
        )
    return array.astype(np.float64)


def dtype_of(inputs: Sequence[Any], asked: Dtype) -> Any:
    """Of results: as asked for; "input" is what JAX makes of the dtypes of those inputs together that are arrays."""
    if not isinstance(asked, str):
        return asked
    floating = [v.dtype for v in inputs if isinstance(v, (jax.Array, np.ndarray)) and jnp.issubdtype(v.dtype, jnp.floating)]
    return jnp.result_type(*floating) if floating else np.dtype(np.float64)


def converted(value: Any, dtype: Any) -> Any:
    return value if value.dtype == dtype else value.astype(dtype)


def is_traced(values: Sequence[Any]) -> bool:
    return any(isinstance(v, jax.core.Tracer) for v in values)
