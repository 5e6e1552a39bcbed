"""A jaxpr as expressions: its equations are gone through in order, and each becomes what the table says for its primitive.

What is known while tracing (data, indices, shapes) is computed there and then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from onestep._errors import TracingError
from onestep.jax._equation import Equation, refusal
from onestep.jax._values import Known, Value, is_known

# The folder of JAX with its separator: packages beside it may have names that begin as its does.
_JAX = os.path.join(os.path.dirname(jax.__file__), "")

# The function that jax.custom_gradient makes of the user's is one of this file.
_CUSTOM_GRADIENT = os.path.join(_JAX, "_src", "custom_derivatives.py")

# Equations that are jaxprs themselves, and the parameter which has it.
INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}

# What may be done to whole numbers that are not known; the table refuses to make others.
_OF_WHOLE_NUMBERS = {"broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "reshape", "squeeze"}

def evaluated(jaxpr: ClosedJaxpr | Jaxpr, consts: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
    """The results of the jaxpr for these arguments."""
    body: Jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    values: dict[Any, Value] = {}

    def read(v: Any) -> Value:
        return np.asarray(v.val) if isinstance(v, Literal) else values[v]

    values.update(zip(body.constvars, consts))
    values.update(zip(body.invars, arguments))
    for eqn in body.eqns:
        values.update(zip(eqn.outvars, _results(eqn, [read(v) for v in eqn.invars])))
    return [read(v) for v in body.outvars]


def _results(eqn: Any, given: list[Value]) -> Sequence[Value]:
    from onestep.jax import _patterns, _table

    name = eqn.primitive.name
    if all(is_known(v) for v in given) and name not in ("stop_gradient", *INLINED):
        return _known(eqn, [np.asarray(v) for v in given])
    if name in INLINED:
        recognised = _patterns.recognised(eqn, given)
        if recognised is not None:
            return recognised
        inner = eqn.params[INLINED[name]]
        if name.startswith("custom_"):
            _check_own_rule(name, inner)
        return evaluated(inner, _consts_of(inner), given)
    if name == "cond" and is_known(given[0]):
        inner = eqn.params["branches"][int(np.clip(np.asarray(given[0]), 0, len(eqn.params["branches"]) - 1))]
        return evaluated(inner, _consts_of(inner), given[1:])
    rule = _table.RULES.get(name)
    if rule is None:
        raise refusal(name)
    if name not in _OF_WHOLE_NUMBERS and any(
        not is_known(value) and v.aval.dtype.kind in "iu" for value, v in zip(given, eqn.invars)
    ):
        raise TracingError(
            f"[{name}] whole numbers that depend on the variables or the parameters are not traced: .astype(jnp.float64)"
        )
    result = rule(Equation(name, eqn.params, eqn.outvars[0].aval, eqn.invars[0].aval.dtype), *given)
    return result if isinstance(result, tuple) else (result,)


def with_data_of_its_own(jaxpr: Jaxpr) -> Jaxpr:
    """The same, where the constants of jaxprs inside (of compiled functions) are copies of what NumPy owns, which may change
    before the jaxpr is gone through again."""
    eqns = []
    for eqn in jaxpr.eqns:
        owning = {name: _owning(value) for name, value in eqn.params.items()}
        is_same = all(owning[name] is value for name, value in eqn.params.items())
        eqns.append(eqn if is_same else eqn.replace(params=owning))
    return jaxpr if all(a is b for a, b in zip(eqns, jaxpr.eqns)) else jaxpr.replace(eqns=eqns)


def _owning(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        inner = with_data_of_its_own(value.jaxpr)
        if inner is value.jaxpr and not any(isinstance(c, np.ndarray) for c in value.consts):
            return value
        return value.replace(jaxpr=inner, consts=[np.array(c) if isinstance(c, np.ndarray) else c for c in value.consts])
    if isinstance(value, Jaxpr):
        return with_data_of_its_own(value)
    if isinstance(value, tuple):
        parts = tuple(_owning(v) for v in value)
        return value if all(a is b for a, b in zip(parts, value)) else parts
    return value


def _consts_of(jaxpr: Any) -> list[Value]:
    return [np.asarray(c) for c in jaxpr.consts] if isinstance(jaxpr, ClosedJaxpr) else []


def _check_own_rule(name: str, inner: Any) -> None:
    """Derivatives here are those of what is computed: a rule of the user's that says otherwise must not be lost silently.
    Rules of JAX's own functions say the same, and only more precisely."""
    jaxpr = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
    where = str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", ""))
    if _JAX not in where or _CUSTOM_GRADIENT in where:
        raise refusal(
            name, "onestep differentiates what a function computes and does not use derivative rules written for it"
        )


def _known(eqn: Any, given: list[Known]) -> Sequence[Known]:
    from onestep.jax import _known as known

    rule = known.RULES.get(eqn.primitive.name)
    if rule is not None:
        return (np.asarray(rule(eqn, *given), dtype=eqn.outvars[0].aval.dtype),)
    if eqn.primitive.name == "platform_index":
        platforms = eqn.params["platforms"]
        return (np.asarray(next(i for i, p in enumerate(platforms) if p is None or "cpu" in p), np.int32),)
    with jax.ensure_compile_time_eval():
        result = eqn.primitive.bind(*given, **eqn.params)
    return [np.asarray(r) for r in (result if eqn.primitive.multiple_results else [result])]
