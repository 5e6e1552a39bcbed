"""The functions of NumPy that are traced: one table of ufuncs, one of functions, and what to use instead of some others.

Importing this module gives Expr the array protocols of NumPy, and the methods of its arrays that are traced.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onestep import _core
from onestep._core import Expr
from onestep._errors import MisuseError, TracingError
from onestep._indexing import getitem


def _expr(a: Any) -> Expr:
    return a if isinstance(a, Expr) else _core.constant(a)


def _axis_of(axis: Any, ndim: int) -> int | None:
    """The axis as the library has it: None for all entries."""
    if isinstance(axis, tuple):
        axes = {a + ndim if a < 0 else a for a in axis}
        if len(axes) != len(axis):
            raise ValueError("duplicate value in 'axis'")
        if len(axis) != 1:
            for a in axis:
                _axis_of(a, ndim)
            if len(axis) == ndim:
                return None
            raise TracingError("a reduction is over one axis, or over all of them")
        (axis,) = axis
    if axis is None:
        return None
    return _one_axis(axis, ndim)


def _one_axis(axis: Any, ndim: int) -> int:
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(number, ndim)
    return number % ndim


def _reduction(reduce: Callable[..., Expr]) -> Callable[..., Expr]:
    def traced(a: Any, axis: Any = None, *, keepdims: bool = False) -> Expr:
        a = _expr(a)
        along = _axis_of(axis, a.ndim)
        result = reduce(a, along)
        if not keepdims:
            return result
        kept = [1 if along is None or k == along else n for k, n in enumerate(a.shape)]
        return _core.reshape(result, kept)

    return traced


_sum = _reduction(_core.sum)
_mean = _reduction(_core.mean)
_prod = _reduction(_core.prod)
_max = _reduction(_core.max)
_min = _reduction(_core.min)


def _var(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Expr:
    a = _expr(a)
    along = _axis_of(axis, a.ndim)
    n = a.size if along is None else a.shape[along]
    squares = _core.square(a - _mean(a, axis, keepdims=True))
    return _core.div(_sum(squares, axis, keepdims=keepdims), n - ddof)


def _std(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Expr:
    return _core.sqrt(_var(a, axis, ddof=ddof, keepdims=keepdims))


def _cumsum(a: Any, axis: int | None = None) -> Expr:
    a = _expr(a)
    return _core.cumsum(_ravel(a), 0) if axis is None else _core.cumsum(a, _axis_of(axis, a.ndim))


def _reshape(a: Any, shape: Any) -> Expr:
    a = _expr(a)
    dims = [operator.index(n) for n in shape] if isinstance(shape, (tuple, list)) else [operator.index(shape)]
    if dims.count(-1) == 1:
        rest = math.prod(n for n in dims if n != -1)
        if rest == 0 or a.size % rest:
            raise MisuseError(f"[reshape] {a.size} entries do not fit in shape {tuple(dims)}")
        dims[dims.index(-1)] = a.size // rest
    return _core.reshape(a, dims)


def _ravel(a: Any) -> Expr:
    a = _expr(a)
    return a if a.ndim == 1 else _core.reshape(a, [a.size])


def _transpose(a: Any, axes: Any = None) -> Expr:
    a = _expr(a)
    order = None if axes is None else tuple(n % a.ndim for n in axes)
    if order is not None and sorted(order) != list(range(a.ndim)):
        raise ValueError(f"axes {axes} are no order of the axes of shape {a.shape}")
    return a if order == tuple(range(a.ndim)) else _core.transpose(a)


def _dot(a: Any, b: Any) -> Expr:
    a, b = _expr(a), _expr(b)
    return _core.mul(a, b) if a.ndim == 0 or b.ndim == 0 else _core.matmul(a, b)


def _inner(a: Any, b: Any) -> Expr:
    a, b = _expr(a), _expr(b)
    return _core.mul(a, b) if a.ndim == 0 or b.ndim == 0 else _core.matmul(a, _core.transpose(b))


def _concatenate(arrays: Any, axis: int | None = 0) -> Expr:
    parts = [_expr(a) for a in arrays]
    if axis is None:
        return _core.concat([_ravel(a) for a in parts])
    return _core.concat(parts, _one_axis(axis, parts[0].ndim))


def _stack(arrays: Any, axis: int = 0) -> Expr:
    parts = [_expr(a) for a in arrays]
    return _core.stack(parts, _one_axis(axis, parts[0].ndim + 1))


def _hstack(arrays: Any) -> Expr:
    parts = [_core.reshape(_expr(a), [1]) if np.ndim(a) == 0 else _expr(a) for a in arrays]
    return _core.concat(parts, 0 if parts[0].ndim == 1 else 1)


def _vstack(arrays: Any) -> Expr:
    return _core.concat([_core.reshape(_expr(a), [1, np.size(a)]) if np.ndim(a) < 2 else _expr(a) for a in arrays], 0)


def _column_stack(arrays: Any) -> Expr:
    return _core.concat([_core.reshape(_expr(a), [np.size(a), 1]) if np.ndim(a) < 2 else _expr(a) for a in arrays], 1)


def _where(condition: Any, *choices: Any) -> Expr:
    if len(choices) != 2:
        raise TracingError("np.where of an expression takes both choices: np.where(condition, a, b)")
    return _core.where(condition, *choices)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Expr:
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    a = _expr(a)
    if low is not None and high is not None:
        return _core.clip(a, low, high)
    if low is not None:
        return _core.maximum(a, low)
    return a if high is None else _core.minimum(a, high)


def _diag(a: Any, k: int = 0) -> Expr:
    a = _expr(a)
    if k != 0:
        raise TracingError("np.diag of an expression is of the main diagonal: k=0")
    return _core.diag(a) if a.ndim == 1 else _core.diagonal(a)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Expr:
    if (offset, axis1, axis2) != (0, 0, 1):
        raise TracingError("np.diagonal of an expression is the main diagonal: offset=0, axis1=0, axis2=1")
    return _core.diagonal(a)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Expr:
    if (offset, axis1, axis2) != (0, 0, 1):
        raise TracingError("np.trace of an expression is of the main diagonal: offset=0, axis1=0, axis2=1")
    return _core.trace(a)


def _flip(a: Any, axis: int | None = None) -> Expr:
    result = _expr(a)
    for k in range(result.ndim) if axis is None else [_one_axis(axis, result.ndim)]:
        result = _core.reverse(result, k)
    return result


def _take(a: Any, indices: Any, axis: int | None = None) -> Expr:
    a = _expr(a)
    if axis is None:
        return getitem(_ravel(a), indices)
    return getitem(a, (slice(None),) * _one_axis(axis, a.ndim) + (indices,))


def _squeeze(a: Any, axis: int | None = None) -> Expr:
    a = _expr(a)
    along = _axis_of(axis, a.ndim)
    if along is not None and a.shape[along] != 1:
        raise ValueError(f"axis {axis} of shape {a.shape} has not size 1")
    return _core.reshape(a, [n for k, n in enumerate(a.shape) if n != 1 or (along is not None and k != along)])


def _expand_dims(a: Any, axis: int) -> Expr:
    a = _expr(a)
    at = _one_axis(axis, a.ndim + 1)
    return _core.reshape(a, [*a.shape[:at], 1, *a.shape[at:]])


def _norm(x: Any, ord: Any = None, axis: int | None = None, keepdims: bool = False) -> Expr:
    x = _expr(x)
    if not (ord is None or (ord == "fro" and x.ndim == 2 and axis is None) or (ord == 2 and (x.ndim == 1 or axis is not None))):
        raise TracingError("np.linalg.norm is traced for the Euclidean norm; others are np.sum(np.abs(x)) and np.max(np.abs(x))")
    return _reduction(_core.norm)(x, axis, keepdims=keepdims)


def _solve(a: Any, b: Any) -> Expr:
    return _core.solve_factored(_core.lu(a), b)


def _logaddexp(a: Any, b: Any) -> Expr:
    """log(exp(a) + exp(b)) without overflow for finite arguments; smooth where they are equal."""
    if isinstance(a, (int, float)) and a == 0:
        return _core.softplus(b)
    if isinstance(b, (int, float)) and b == 0:
        return _core.softplus(a)
    return _core.add(b, _core.softplus(_core.sub(a, b)))


def _power(a: Any, b: Any) -> Expr:
    if isinstance(b, (int, float)):
        if b == 0.5:
            return _core.sqrt(a)
        if b == 3:
            return _core.mul(a, _core.square(a))
        if b == 4:
            return _core.square(_core.square(a))
    return _core.pow(a, b)


def _is_not_zero(a: Any) -> Expr:
    return _core.not_equal(a, 0.0)


UFUNCS: dict[Any, Callable[..., Expr]] = {
    np.add: _core.add,
    np.subtract: _core.sub,
    np.multiply: _core.mul,
    np.divide: _core.div,
    np.power: _power,
    np.float_power: _power,
    np.maximum: _core.maximum,
    np.minimum: _core.minimum,
    np.less: _core.less,
    np.less_equal: _core.less_equal,
    np.greater: _core.greater,
    np.greater_equal: _core.greater_equal,
    np.equal: _core.equal,
    np.not_equal: _core.not_equal,
    np.logical_and: lambda a, b: _core.mul(_is_not_zero(a), _is_not_zero(b)),
    np.logical_or: lambda a, b: _core.maximum(_is_not_zero(a), _is_not_zero(b)),
    np.logical_not: lambda a: _core.equal(a, 0.0),
    np.hypot: _core.hypot,
    np.arctan2: _core.atan2,
    np.logaddexp: _logaddexp,
    np.matmul: _core.matmul,
    np.negative: _core.neg,
    np.positive: _expr,
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
    np.sum: _sum,
    np.mean: _mean,
    np.prod: _prod,
    np.max: _max,
    np.amax: _max,
    np.min: _min,
    np.amin: _min,
    np.var: _var,
    np.std: _std,
    np.cumsum: _cumsum,
    np.dot: _dot,
    np.vdot: lambda a, b: _core.dot(_ravel(a), _ravel(b)),
    np.inner: _inner,
    np.outer: lambda a, b: _core.outer(_ravel(a), _ravel(b)),
    np.transpose: _transpose,
    np.reshape: _reshape,
    np.ravel: _ravel,
    np.squeeze: _squeeze,
    np.expand_dims: _expand_dims,
    np.broadcast_to: lambda array, shape: _core.broadcast(array, [shape] if np.ndim(shape) == 0 else list(shape)),
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.hstack: _hstack,
    np.vstack: _vstack,
    np.column_stack: _column_stack,
    np.where: _where,
    np.clip: _clip,
    np.diag: _diag,
    np.diagonal: _diagonal,
    np.trace: _trace,
    np.flip: _flip,
    np.take: _take,
    np.linalg.norm: _norm,
    np.linalg.solve: _solve,
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
        if isinstance(error, TracingError) or "argument" not in str(error):
            raise
        raise TracingError(f"{name}: these arguments are not traced ({error})") from None


def _iter(self: Expr) -> Iterator[Expr]:
    if self.ndim == 0:
        raise TracingError("a number cannot be iterated over")
    return (getitem(self, i) for i in range(self.shape[0]))


def _method_reshape(self: Expr, *shape: Any) -> Expr:
    return _reshape(self, shape[0] if len(shape) == 1 else shape)


def _method_transpose(self: Expr, *axes: Any) -> Expr:
    return _transpose(self, (axes[0] if len(axes) == 1 else axes) or None)


def _pow(self: Expr, other: Any) -> Expr:
    return _power(self, other)


METHODS: dict[str, Any] = {
    "__array_ufunc__": _array_ufunc,
    "__array_function__": _array_function,
    "__getitem__": getitem,
    "__iter__": _iter,
    "__pow__": _pow,
    "sum": _sum,
    "mean": _mean,
    "prod": _prod,
    "max": _max,
    "min": _min,
    "var": _var,
    "std": _std,
    "cumsum": _cumsum,
    "dot": _dot,
    "reshape": _method_reshape,
    "ravel": _ravel,
    "flatten": _ravel,
    "squeeze": _squeeze,
    "transpose": _method_transpose,
    "clip": _clip,
    "diagonal": _diagonal,
    "trace": _trace,
    "take": _take,
}

for _name, _method in METHODS.items():
    setattr(Expr, _name, _method)


def traced_functions() -> list[str]:
    """The names of the functions of NumPy (and the ufuncs of scipy.special) that can be applied to an expression."""
    functions = [f"{f.__module__}.{f.__name__}" for f in FUNCTIONS]
    return sorted({*functions, *(f"numpy.{f.__name__}" for f in UFUNCS), *(f"scipy.special.{name}" for name in SCIPY_UFUNCS)})
