"""Functions of JAX that have an operation in onestep as a whole, and are recognised as such.

An equation that has the name of such a function is that function if its jaxpr is the one that JAX makes of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from onestep import _core
from onestep._core import Expr
from onestep.jax._keys import key_of
from onestep.jax._values import Value, as_expr, number_in


def _logaddexp(a: Value, b: Value) -> Expr:
    if number_in(b) == 0:
        return _core.softplus(as_expr(a, "logaddexp"))
    if number_in(a) == 0:
        return _core.softplus(as_expr(b, "logaddexp"))
    x, y = as_expr(a, "logaddexp"), as_expr(b, "logaddexp")
    return _core.add(y, _core.softplus(_core.sub(x, y)))


def _solve(a: Value, b: Value) -> Expr:
    return _core.solve_factored(_core.lu(as_expr(a, "solve")), as_expr(b, "solve"))


def _solve_positive(a: Value, b: Value) -> Expr:
    return _core.solve_factored(_core.cholesky(as_expr(a, "solve")), as_expr(b, "solve"))


def _slogdet(a: Value) -> tuple[Expr, Expr]:
    matrix = as_expr(a, "slogdet")
    return _core.sign(_core.det(matrix)), _core.logdet(_core.lu(matrix))


def _diag(a: Value) -> Expr:
    expr = as_expr(a, "diag")
    return _core.diag(expr) if expr.ndim == 1 else _core.diagonal(expr)


# By the name of the equation: functions of JAX that have it, and what they are here.
PATTERNS: dict[str, list[tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "logaddexp": [(jnp.logaddexp, _logaddexp)],
    "solve": [
        (jnp.linalg.solve, _solve),
        (jax.scipy.linalg.solve, _solve),
        (functools.partial(jax.scipy.linalg.solve, assume_a="pos"), _solve_positive),
        (functools.partial(jax.scipy.linalg.solve, assume_a="pos", lower=True), _solve_positive),
    ],
    "slogdet": [(jnp.linalg.slogdet, _slogdet)],
    "det": [(jnp.linalg.det, lambda a: _core.det(as_expr(a, "det")))],
    "inv": [(jnp.linalg.inv, lambda a: _core.inverse(as_expr(a, "inv")))],
    "diag": [(jnp.diag, _diag)],
    "diagonal": [(jnp.diagonal, _diag)],
    "trace": [(jnp.trace, lambda a: _core.trace(as_expr(a, "trace")))],
}
_BODIES = ("jaxpr", "call_jaxpr")


def recognised(eqn: Any, given: Sequence[Value]) -> Sequence[Value] | None:
    """The results where the equation is one of these functions."""
    name = _name_of(eqn)
    for function, rule in PATTERNS.get(name, []):
        avals = tuple((tuple(v.aval.shape), str(v.aval.dtype)) for v in eqn.invars)
        if any(len(shape) > 2 for shape, _ in avals):
            return None
        if _reference(function, name, avals) == _key_of(eqn):
            results = rule(*given)
            return results if isinstance(results, tuple) else (results,)
    return None


def _name_of(eqn: Any) -> str:
    name = eqn.params.get("name", "")
    if not name:
        inner = _body_of(eqn)
        jaxpr = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
        name = str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", "")).split(" ")[0]
    return str(name).lstrip("_")


def _body_of(eqn: Any) -> Any:
    return next((eqn.params[p] for p in _BODIES if p in eqn.params), None)


def _key_of(eqn: Any) -> Any:
    return key_of(_body_of(eqn))


@functools.lru_cache(maxsize=256)
def _reference(function: Callable[..., Any], name: str, avals: tuple[tuple[tuple[int, ...], str], ...]) -> Any:
    """The key of the equation with this name that JAX makes of its function; None where it makes none."""
    try:
        arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in avals]
        jaxpr = jax.make_jaxpr(function)(*arguments)
    except Exception:  # arguments that the function does not take, such as a vector for det
        return None
    return next((_key_of(e) for e in jaxpr.jaxpr.eqns if _name_of(e) == name), None)
