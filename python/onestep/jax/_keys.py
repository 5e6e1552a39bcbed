"""Whether two jaxprs compute the same: a key for each, which can be hashed and compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Of equations: what has no effect on numbers, and the derivative rules that onestep does not use.
_IGNORED = {
    "bwd",
    "compiler_options_kvs",
    "ctx_mesh",
    "debug_info",
    "donated_invars",
    "fwd_jaxpr_thunk",
    "in_layouts",
    "in_shardings",
    "inline",
    "jvp_jaxpr_fun",
    "jvp_jaxpr_thunk",
    "keep_unused",
    "name",
    "out_layouts",
    "out_sharding",
    "out_shardings",
    "out_trees",
    "resource_env",
    "sharding",
    "symbolic_zeros",
    "weak_type",
}


class Data:
    """A constant: equal to another one of the same bits. JAX's arrays cannot change, so that identity decides first."""

    def __init__(self, value: Any) -> None:
        # What NumPy owns may be changed by the user later.
        self.value = value if isinstance(value, jax.Array) else np.array(value)
        self._array: Any = None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """NumPy's view of it, always the same one."""
        if self._array is None:
            self._array = np.asarray(self.value)
            self._array.flags.writeable = False
        return self._array  # type: ignore[no-any-return]

    def __hash__(self) -> int:
        return hash((np.shape(self.value), str(getattr(self.value, "dtype", ""))))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Data):
            return NotImplemented
        if self.value is other.value and isinstance(self.value, jax.Array):
            return True
        mine, its = self.array, other.array
        return mine.shape == its.shape and mine.dtype == its.dtype and mine.tobytes() == its.tobytes()


def key_of(jaxpr: Jaxpr | ClosedJaxpr) -> tuple[Any, ...]:
    """Equal keys have equal equations, in the same order, on the same numbers."""
    consts: tuple[Any, ...] = ()
    if isinstance(jaxpr, ClosedJaxpr):
        consts = tuple(Data(c) for c in jaxpr.consts)
        jaxpr = jaxpr.jaxpr
    numbers: dict[Any, int] = {}

    def number(v: Any) -> Any:
        if isinstance(v, Literal):
            return Data(np.asarray(v.val))
        return numbers.setdefault(v, len(numbers))

    def described(v: Any) -> tuple[Any, ...]:
        return number(v), str(v.aval.dtype), tuple(v.aval.shape)

    heads = tuple(described(v) for v in (*jaxpr.constvars, *jaxpr.invars))
    lines = []
    for eqn in jaxpr.eqns:
        given = tuple(number(v) for v in eqn.invars)
        made = tuple(described(v) for v in eqn.outvars)
        parameters = tuple((name, _frozen(eqn.params[name])) for name in sorted(eqn.params) if name not in _IGNORED)
        lines.append((eqn.primitive.name, given, parameters, made))
    return (consts, heads, tuple(lines), tuple(number(v) for v in jaxpr.outvars))


def _frozen(value: Any) -> Any:
    if isinstance(value, (Jaxpr, ClosedJaxpr)):
        return key_of(value)
    if isinstance(value, (tuple, list)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _frozen(value[k])) for k in sorted(value, key=str))
    if isinstance(value, (np.ndarray, jax.Array)):
        return Data(value)
    try:
        hash(value)
    except TypeError:
        return _Only(value)
    return value


class _Only:
    """What cannot be compared is equal to itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Only) and self.value is other.value


