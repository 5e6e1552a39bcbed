"""The primitives of JAX that have an operation in onestep: a row for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onestep import _core
from onestep._core import Expr
from onestep.jax import _entries
from onestep.jax._equation import Equation, check_dtype, refusal
from onestep.jax._values import Value, as_expr, checked, is_known, number_in


Rule = Callable[..., Any]


def _elementwise(operation: Callable[..., Expr]) -> Rule:
    """A known array of equal numbers is one number, unless the result takes its shape from it."""

    def rule(eqn: Equation, *given: Value) -> Expr:
        check_dtype(eqn)
        has_shape = any(isinstance(v, Expr) and v.shape == eqn.shape for v in given)
        operands: list[Any] = []
        for v in given:
            number = number_in(v) if has_shape else None
            operands.append(as_expr(v, eqn.name) if number is None else number)
        return operation(*operands)

    return rule


def _of_booleans(operation: Callable[..., Expr]) -> Rule:
    inner = _elementwise(operation)

    def rule(eqn: Equation, *given: Value) -> Expr:
        if eqn.out.dtype != np.bool_:
            raise refusal(eqn.name, "bits of numbers are not looked at")
        return inner(eqn, *given)  # type: ignore[no-any-return]

    return rule


def _mul(a: Any, b: Any) -> Expr:
    """Of a column and a row it is the outer product, which is kept as such."""
    for u, v in ((a, b), (b, a)):
        if isinstance(u, Expr) and isinstance(v, Expr) and u.ndim == 2 and v.ndim == 2:
            if u.shape[1] == 1 and v.shape[0] == 1 and u.shape[0] > 1 and v.shape[1] > 1:
                return _core.outer(_core.reshape(u, [u.size]), _core.reshape(v, [v.size]))
    return _core.mul(a, b)


def _integer_pow(eqn: Equation, a: Expr) -> Expr:
    y = eqn.params["y"]
    if y in (2, -2):
        return _core.square(a) if y > 0 else _core.div(1.0, _core.square(a))
    if y in (3, 4):
        return _core.mul(a, _core.square(a)) if y == 3 else _core.square(_core.square(a))
    return _core.pow(a, float(y))


def _pow(a: Any, b: Any) -> Expr:
    return _core.sqrt(a) if isinstance(b, float) and b == 0.5 else _core.pow(a, b)


def _select_n(eqn: Equation, which: Value, *cases: Value) -> Any:
    if len(cases) != 2 or (is_known(which) and np.asarray(which).dtype != np.bool_):
        raise refusal(eqn.name, "of two cases one is chosen by a condition")
    check_dtype(eqn)
    if is_known(which):
        number = number_in(which)
        if number is not None:
            chosen = cases[1] if number else cases[0]
            return chosen if np.shape(chosen) == eqn.shape else _core.broadcast(as_expr(chosen, eqn.name), list(eqn.shape))
    condition = as_expr(which, eqn.name)
    # The shape is that of the cases: one of them that is a number everywhere may stand for itself.
    yes, no = (as_expr(c, eqn.name) for c in (cases[1], cases[0]))
    numbers = [number_in(c) for c in (cases[1], cases[0])]
    if condition.shape == eqn.shape or any(isinstance(c, Expr) for c in cases):
        yes = yes if numbers[0] is None else _core.constant(numbers[0])
        no = no if numbers[1] is None else _core.constant(numbers[1])
    result = _core.where(condition, yes, no)
    return result if result.shape == eqn.shape else _core.broadcast(result, list(eqn.shape))


def _convert(eqn: Equation, a: Expr, *_: Any) -> Expr:
    to = eqn.params["new_dtype"]
    if to == np.bool_:
        return _core.not_equal(a, 0.0)
    if to != np.float64 and eqn.of != np.bool_:  # a condition as a whole number is still 0 or 1
        check_dtype(eqn)
    return a


def _broadcast_in_dim(eqn: Equation, a: Expr, *_: Any) -> Expr:
    shape = eqn.shape
    ones = [1] * len(shape)
    for size, dim in zip(a.shape, eqn.params["broadcast_dimensions"]):
        ones[dim] = size
    if a.ndim < len(shape):
        a = _core.reshape(a, ones) if a.ndim else a
    return a if a.shape == shape else _core.broadcast(a, list(shape))


def _reduction(reduce: Callable[..., Expr]) -> Rule:
    def rule(eqn: Equation, a: Expr) -> Expr:
        check_dtype(eqn)
        axes = eqn.params["axes"]
        if len(axes) == 0:
            return a
        return reduce(a) if len(axes) == a.ndim else reduce(a, axes[0])

    return rule


def _cumsum(eqn: Equation, a: Expr) -> Expr:
    axis = eqn.params["axis"]
    if not eqn.params["reverse"]:
        return _core.cumsum(a, axis)
    return _core.reverse(_core.cumsum(_core.reverse(a, axis), axis), axis)


def _dot_general(eqn: Equation, left: Value, right: Value) -> Expr:
    check_dtype(eqn)
    a, b = as_expr(left, eqn.name), as_expr(right, eqn.name)
    (over_a, over_b), (along_a, along_b) = eqn.params["dimension_numbers"]
    if along_a:
        return _dot_of_rows(eqn, a, b)
    if len(over_a) == 2:
        return _core.sum(_core.mul(a, b if tuple(over_a) == tuple(over_b) else _core.transpose(b)))
    if len(over_a) == 1:
        a = _core.transpose(a) if a.ndim == 2 and over_a[0] == 0 else a
        b = _core.transpose(b) if b.ndim == 2 and over_b[0] == 1 else b
        return _core.matmul(a, b)
    shape = eqn.shape
    return _core.outer(a, b) if len(shape) == 2 and a.ndim == b.ndim == 1 else _core.mul(a, b)


def _dot_of_rows(eqn: Equation, a: Expr, b: Expr) -> Expr:
    """A product for each entry of an axis that both have: of their rows, or of their columns."""
    (over_a, over_b), (along_a, along_b) = eqn.params["dimension_numbers"]
    if len(along_a) == 1 and a.ndim == b.ndim == 2 and len(over_a) == 1:
        a = _core.transpose(a) if along_a[0] == 1 else a
        b = _core.transpose(b) if along_b[0] == 1 else b
        return _core.sum(_core.mul(a, b), 1)
    if len(along_a) == a.ndim == b.ndim and (a.ndim == 1 or tuple(along_a) == tuple(along_b) == (0, 1)):
        return _core.mul(a, b)
    raise refusal(eqn.name, "products of batches of matrices have more than two axes")


def _reshape(eqn: Equation, a: Expr, *_: Any) -> Expr:
    if eqn.params.get("dimensions") is not None:
        raise refusal(eqn.name, "in another order of the axes: jnp.reshape(a.T, shape)")
    return _squeeze(eqn, a)


def _squeeze(eqn: Equation, a: Expr) -> Expr:
    return a if a.shape == eqn.shape else _core.reshape(a, list(eqn.shape))


def _rev(eqn: Equation, a: Expr) -> Expr:
    for axis in eqn.params["dimensions"]:
        a = _core.reverse(a, axis)
    return a


def _concatenate(eqn: Equation, *parts: Value) -> Expr:
    return _core.concat([as_expr(p, eqn.name) for p in parts], eqn.params["dimension"])


def _pad(eqn: Equation, a: Value, value: Value) -> Expr:
    result = as_expr(a, eqn.name)
    if not is_known(value):
        raise refusal(eqn.name, "what is padded with must be known")
    number = float(np.asarray(value))
    for axis, (low, high, between) in enumerate(eqn.params["padding_config"]):
        if between:
            raise refusal(eqn.name, "padding between entries")
        n = result.shape[axis]
        begin, end = max(0, -low), n - max(0, -high)
        if (begin, end) != (0, n):
            result = _core.slice(result, begin, max(begin, end), axis)
        low, high = max(0, low), max(0, high)
        if (low, high) == (0, 0):
            continue
        if number == 0:
            result = _core.pad(result, low, low + result.shape[axis] + high, axis)
            continue
        shapes = [[size if k != axis else m for k, size in enumerate(result.shape)] for m in (low, high)]
        before, after = (_core.broadcast(_core.constant(number), shape) for shape in shapes)
        result = _core.concat([before, result, after], axis)
    return result


def _onestep_solve(eqn: Equation, *inputs: Value) -> tuple[Expr, ...]:
    """A solver inside of what another one solves: a node with the derivatives of its estimator, NaN where it fails."""
    problem, layout = eqn.params["problem"], eqn.params["layout"]
    if layout.count != 1:
        raise refusal(eqn.name, "a batch of problems inside of another one")
    flat = []
    for value, shape in zip(inputs, [*problem.start, *problem.theta]):
        expr = as_expr(value, eqn.name)
        flat.append(expr if expr.shape == shape else _core.reshape(expr, list(shape)))
    start, theta = flat[: len(problem.start)], flat[len(problem.start) :]
    state = problem.renewed().with_options(estimator=problem.estimator)(*theta, *start)
    parts, first = [], 0
    for shape in problem.state:
        size = math.prod(shape)
        part = state if len(problem.state) == 1 else _core.slice(state, first, first + size)
        parts.append(_core.reshape(part, list(checked((1, *shape), eqn.name))))
        first += size
    return (*parts, _core.constant(np.full(1, np.nan)))  # its status is not known here


def _rsqrt(a: Expr) -> Expr:
    return _core.div(1.0, _core.sqrt(a))


UNARY: dict[str, Callable[..., Expr]] = {
    "neg": _core.neg,
    "exp": _core.exp,
    "exp2": lambda a: _core.pow(2.0, a),
    "expm1": _core.expm1,
    "log": _core.log,
    "log1p": _core.log1p,
    "sqrt": _core.sqrt,
    "rsqrt": _rsqrt,
    "cbrt": _core.cbrt,
    "square": _core.square,
    "abs": _core.abs,
    "sign": _core.sign,
    "tanh": _core.tanh,
    "logistic": _core.sigmoid,
    "erf": _core.erf,
    "sin": _core.sin,
    "cos": _core.cos,
    "tan": _core.tan,
    "asin": _core.asin,
    "acos": _core.acos,
    "atan": _core.atan,
    "sinh": _core.sinh,
    "cosh": _core.cosh,
    "is_finite": lambda a: _core.equal(_core.sub(a, a), 0.0),
}

BINARY: dict[str, Callable[..., Expr]] = {
    "add": _core.add,
    "add_any": _core.add,
    "sub": _core.sub,
    "mul": _mul,
    "div": _core.div,
    "max": _core.maximum,
    "min": _core.minimum,
    "pow": _pow,
    "atan2": _core.atan2,
    "lt": _core.less,
    "le": _core.less_equal,
    "gt": _core.greater,
    "ge": _core.greater_equal,
    "eq": _core.equal,
    "ne": _core.not_equal,
}

RULES: dict[str, Rule] = {
    **{name: _elementwise(operation) for name, operation in (UNARY | BINARY).items()},
    "and": _of_booleans(_core.mul),
    "or": _of_booleans(_core.maximum),
    "xor": _of_booleans(_core.not_equal),
    "not": _of_booleans(lambda a: _core.sub(1.0, a)),
    "integer_pow": _integer_pow,
    "clamp": _elementwise(lambda low, a, high: _core.clip(a, low, high)),
    "select_n": _select_n,
    "stop_gradient": lambda eqn, a: a if is_known(a) else _core.stop_gradient(a),
    "copy": lambda eqn, a: a,
    "copy_p": lambda eqn, a: a,
    "optimization_barrier": lambda eqn, *all_of_them: all_of_them,
    "convert_element_type": _convert,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand_dims": _squeeze,
    "transpose": lambda eqn, a: a if eqn.params["permutation"] != (1, 0) else _core.transpose(a),
    "rev": _rev,
    "concatenate": _concatenate,
    "pad": _pad,
    "slice": _entries.by_numbers,
    "dynamic_slice": _entries.by_numbers,
    "gather": _entries.by_numbers,
    "scatter": _entries.scatter,
    "scatter-add": _entries.scatter,
    "dynamic_update_slice": _entries.dynamic_update_slice,
    "reduce_sum": _reduction(_core.sum),
    "reduce_max": _reduction(_core.max),
    "reduce_min": _reduction(_core.min),
    "reduce_prod": _reduction(_core.prod),
    "reduce_or": _reduction(_core.max),
    "reduce_and": _reduction(_core.min),
    "cumsum": _cumsum,
    "dot_general": _dot_general,
    "onestep_solve": _onestep_solve,
}


def traced_primitives() -> list[str]:
    """The primitives of JAX that an objective may consist of."""
    return sorted(RULES)
