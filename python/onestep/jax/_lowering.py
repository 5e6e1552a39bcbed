"""How a call gets into a compiled program: on the CPU by XLA's foreign function interface, elsewhere, and where the package was
built without it, by a callback of Python."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from onestep import _core
from onestep._errors import MisuseError
from onestep.jax._problem import operand

_TARGET = "onestep_call"


def _version_of_xla() -> tuple[int, int] | None:
    """Of the foreign function interface of the installed jaxlib, which only its header says."""
    try:
        header = pathlib.Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    except (OSError, AttributeError):
        return None
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", header) for part in ("MAJOR", "MINOR")]
    return None if None in found else tuple(int(match[1]) for match in found if match)  # type: ignore[return-value]


def _fits(built_for: str, there: tuple[int, int] | None) -> bool:
    """XLA takes handlers of its own major version and of an older minor one. One that it does not take would not be refused
    alone: the CPU would be gone for all of the process."""
    if there is None or not built_for:
        return False
    major, minor = map(int, built_for.split("."))
    return major == there[0] and minor <= there[1]


def _register() -> bool:
    handler = _core.xla_handler()
    if handler is None or not _fits(_core.xla_version, _version_of_xla()):
        return False
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    return True


HAS_FFI: bool = _register()


def interface() -> str:
    """How compiled programs call onestep: "ffi 0.3" with the version of XLA's interface, or "callback"."""
    return f"ffi {_core.xla_version}" if HAS_FFI else "callback"


def add_lowering(primitive: Any, call_of: Callable[..., _core.CompiledCall]) -> None:
    """`call_of` makes the call of an equation from its parameters."""

    def call_for(**params: Any) -> _core.CompiledCall:
        problem = params["problem"]
        if problem.cannot_compile:
            raise MisuseError(f"[{problem.name}] this cannot be compiled: {problem.cannot_compile}")
        return call_of(**params)

    def by_ffi(ctx: Any, *operands: Any, **params: Any) -> Any:
        call = call_for(**params)
        ctx.module_context.add_keepalive(call)
        return jax.ffi.ffi_lowering(_TARGET)(ctx, *operands, number=np.int64(call.number))

    def by_callback(*operands: Any, **params: Any) -> Any:
        call = call_for(**params)
        avals, _ = primitive.abstract_eval(*(jax.core.ShapedArray(v.shape, v.dtype) for v in operands), **params)
        results = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]

        def compute(*values: Any) -> Any:
            try:
                found = call(*(operand(v) for v in values))
            except KeyboardInterrupt as error:
                # XLA makes an error of its own of this one, and lets go of it. The interpreter then raises it again.
                error.again = _core.InterruptWhenGone()  # type: ignore[attr-defined]
                raise
            return [np.asarray(f, r.dtype) for f, r in zip(found, results)]

        return jax.pure_callback(compute, results, *operands)

    mlir.register_lowering(primitive, mlir.lower_fun(by_callback, multiple_results=True))
    if HAS_FFI:
        mlir.register_lowering(primitive, by_ffi, platform="cpu")
