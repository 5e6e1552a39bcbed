"""The functions of NumPy that are traced: one table of ufuncs, one of functions, and what to use instead of some others.

Importing this module gives Expr the array protocols of NumPy, and the methods of its arrays that are traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onestep import _core
from onestep import _rules as rules
from onestep._core import Expr
from onestep._errors import TracingError
from onestep._indexing import getitem

UFUNCS: dict[Any, Callable[..., Expr]] = {
    np.add: _core.add,
    np.subtract: _core.sub,
    np.multiply: _core.mul,
    np.divide: _core.div,
    np.power: rules.power,
    np.float_power: rules.power,
    np.maximum: _core.maximum,
    np.minimum: _core.minimum,
    np.less: _core.less,
    np.less_equal: _core.less_equal,
    np.greater: _core.greater,
    np.greater_equal: _core.greater_equal,
    np.equal: _core.equal,
    np.not_equal: _core.not_equal,
    np.logical_and: lambda a, b: _core.mul(rules.is_not_zero(a), rules.is_not_zero(b)),
    np.logical_or: lambda a, b: _core.maximum(rules.is_not_zero(a), rules.is_not_zero(b)),
    np.logical_not: lambda a: _core.equal(a, 0.0),
    np.hypot: _core.hypot,
    np.arctan2: _core.atan2,
    np.logaddexp: rules.logaddexp,
    np.matmul: _core.matmul,
    np.negative: _core.neg,
    np.positive: rules.expr,
    np.reciprocal: lambda a: _core.div(1.0, a),
    np.exp: _core.exp,
    np.expm1: _core.expm1,
    np.log: _core.log,
    np.log1p: _core.log1p,
    np.sqrt: _core.sqrt,
    np.square: _core.square,
    np.cbrt: _core.cbrt,
    np.absolute: _core.abs,
    np.fabs: _core.abs,
    np.sign: _core.sign,
    np.sin: _core.sin,
    np.cos: _core.cos,
    np.tan: _core.tan,
    np.arcsin: _core.asin,
    np.arccos: _core.acos,
    np.arctan: _core.atan,
    np.sinh: _core.sinh,
    np.cosh: _core.cosh,
    np.tanh: _core.tanh,
}

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: rules.total,
    np.mean: rules.mean,
    np.prod: rules.prod,
    np.max: rules.largest,
    np.amax: rules.largest,
    np.min: rules.smallest,
    np.amin: rules.smallest,
    np.var: rules.var,
    np.std: rules.std,
    np.cumsum: rules.cumsum,
    np.dot: rules.dot,
    np.vdot: lambda a, b: _core.dot(rules.ravel(a), rules.ravel(b)),
    np.inner: rules.inner,
    np.outer: lambda a, b: _core.outer(rules.ravel(a), rules.ravel(b)),
    np.transpose: rules.transpose,
    np.reshape: rules.reshape,
    np.ravel: rules.ravel,
    np.squeeze: rules.squeeze,
    np.expand_dims: rules.expand_dims,
    np.broadcast_to: lambda array, shape: _core.broadcast(array, [shape] if np.ndim(shape) == 0 else list(shape)),
    np.concatenate: rules.concatenate,
    np.stack: rules.stack,
    np.hstack: rules.hstack,
    np.vstack: rules.vstack,
    np.column_stack: rules.column_stack,
    np.where: rules.where,
    np.clip: rules.clip,
    np.diag: rules.diag,
    np.diagonal: rules.diagonal,
    np.trace: rules.trace,
    np.flip: rules.flip,
    np.take: rules.take,
    np.linalg.norm: rules.norm,
    np.linalg.solve: rules.solve,
    np.linalg.inv: lambda a: _core.inverse(a),
    np.linalg.det: lambda a: _core.det(a),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.zeros_like: lambda a: np.zeros(a.shape),
    np.ones_like: lambda a: np.ones(a.shape),
    np.full_like: lambda a, fill_value: np.full(a.shape, fill_value),
}

# Functions of SciPy, which are ufuncs, by their names: SciPy is not imported for them.
SCIPY_UFUNCS: dict[str, Callable[..., Expr]] = {"expit": _core.sigmoid, "erf": _core.erf}

INSTEAD: dict[str, str] = {
    "einsum": "np.matmul, np.outer, sums and np.diag",
    "tensordot": "np.matmul",
    "multi_dot": "A @ B @ C",
    "cholesky": "onestep.cholesky(A), a factor for onestep.solve_factored and onestep.logdet",
    "slogdet": "onestep.logdet(onestep.lu(A))",
    "lstsq": "np.linalg.solve(A.T @ A, A.T @ b)",
    "log2": "np.log(x) / np.log(2)",
    "log10": "np.log(x) / np.log(10)",
    "exp2": "2.0**x",
    "logaddexp2": "np.logaddexp",
    "fmax": "np.maximum",
    "fmin": "np.minimum",
    "bitwise_and": "np.logical_and",
    "bitwise_or": "np.logical_or",
    "invert": "np.logical_not",
    "heaviside": "np.where(x > 0, 1.0, 0.0)",
    "isnan": "x != x",
    "sort": "a problem without sorting: the order is a kink at every tie",
    "average": "np.sum(w * x) / np.sum(w)",
    "select": "np.where",
    "piecewise": "np.where",
    "interp": "np.where",
    "pad": "onestep.pad",
    "roll": "np.concatenate([x[-k:], x[:-k]])",
    "median": "a problem without sorting",
    "argmax": "np.max: an index has no derivative",
    "argmin": "np.min: an index has no derivative",
    "asarray": "the expression as it is",
    "array": "np.stack",
}


def _refusal(name: str) -> TracingError:
    instead = INSTEAD.get(name.rpartition(".")[2])
    return TracingError(
        f"{name} is not traced: " + (f"use {instead}" if instead else "onestep.traced_functions() lists what is")
    )


def _array_ufunc(self: Expr, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    rule = UFUNCS.get(ufunc) or SCIPY_UFUNCS.get(ufunc.__name__)
    if rule is None:
        raise _refusal(f"np.{ufunc.__name__}" if ufunc.__name__ in np.__dict__ else ufunc.__name__)
    if method != "__call__":
        raise TracingError(f"np.{ufunc.__name__}.{method} is not traced: use np.sum, np.prod, np.max, np.min or np.outer")
    if options:
        name = next(iter(options))
        more = ": an expression cannot be written into an array, make the whole anew" if name == "out" else ""
        raise TracingError(f"np.{ufunc.__name__}: the argument {name}= is not traced{more}")
    return rule(*inputs)


def _array_function(self: Expr, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    rule = FUNCTIONS.get(function)
    name = f"{function.__module__.replace('numpy', 'np', 1)}.{function.__name__}"
    if rule is None:
        raise _refusal(name)
    # None is what out=, dtype= and their like are without being given; an axis of None says something.
    given = {key: value for key, value in kwargs.items() if value is not None or key == "axis"}
    try:
        return rule(*args, **given)
    except TypeError as error:
        if isinstance(error, TracingError):
            raise
        raise TracingError(f"{name}: these arguments are not traced ({error})") from None


def _with_refusals(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of arrays, which has fewer arguments than NumPy's."""

    @functools.wraps(method)
    def traced(self: Expr, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TypeError as error:
            if isinstance(error, TracingError):
                raise
            raise TracingError(f".{name}(): these arguments are not traced ({error})") from None

    return traced


def _operator_refused(symbol: str, instead: str) -> Callable[[Expr, Any], Any]:
    def refused(self: Expr, other: Any) -> Any:
        raise TracingError(f"the operator {symbol} is not traced: use {instead}")

    return refused


def _invert(self: Expr) -> Any:
    raise TracingError(f"the operator ~ is not traced: use {INSTEAD['invert']}")


def _iter(self: Expr) -> Iterator[Expr]:
    if self.ndim == 0:
        raise TracingError("a number cannot be iterated over")
    return (getitem(self, i) for i in range(self.shape[0]))


def _method_reshape(self: Expr, *shape: Any) -> Expr:
    return rules.reshape(self, shape[0] if len(shape) == 1 else shape)


def _method_transpose(self: Expr, *axes: Any) -> Expr:
    return rules.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)


def _pow(self: Expr, other: Any) -> Expr:
    return rules.power(self, other)


METHODS: dict[str, Any] = {
    "__array_ufunc__": _array_ufunc,
    "__array_function__": _array_function,
    "__getitem__": getitem,
    "__iter__": _iter,
    "__pow__": _pow,
    "__invert__": _invert,
}

ARRAY_METHODS: dict[str, Any] = {
    "sum": rules.total,
    "mean": rules.mean,
    "prod": rules.prod,
    "max": rules.largest,
    "min": rules.smallest,
    "var": rules.var,
    "std": rules.std,
    "cumsum": rules.cumsum,
    "dot": rules.dot,
    "reshape": _method_reshape,
    "ravel": rules.ravel,
    "flatten": rules.ravel,
    "squeeze": rules.squeeze,
    "transpose": _method_transpose,
    "clip": rules.clip,
    "diagonal": rules.diagonal,
    "trace": rules.trace,
    "take": rules.take,
    "copy": rules.expr,
}

OPERATORS: dict[str, tuple[str, str]] = {
    "and": ("&", INSTEAD["bitwise_and"]),
    "or": ("|", INSTEAD["bitwise_or"]),
    "xor": ("^", "a != b for conditions"),
    "mod": ("%", "a problem without remainders: they jump"),
    "floordiv": ("//", "a problem without rounding: it jumps"),
}

for _name, _method in METHODS.items():
    setattr(Expr, _name, _method)
for _name, _method in ARRAY_METHODS.items():
    setattr(Expr, _name, _with_refusals(_name, _method))
for _name, (_symbol, _instead) in OPERATORS.items():
    setattr(Expr, f"__{_name}__", _operator_refused(_symbol, _instead))
    setattr(Expr, f"__r{_name}__", _operator_refused(_symbol, _instead))


def traced_functions() -> list[str]:
    """The names of the functions of NumPy (and the ufuncs of scipy.special) that can be applied to an expression."""
    functions = [f"{f.__module__}.{f.__name__}" for f in FUNCTIONS]
    ufuncs = [f"numpy.{f.__name__}" for f in UFUNCS]
    return sorted({*functions, *ufuncs, *(f"scipy.special.{name}" for name in SCIPY_UFUNCS)})
