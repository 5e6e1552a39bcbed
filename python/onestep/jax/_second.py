"""Second derivatives of a solver, as primitives: they are the end, there are no third ones.

All directions have an axis of directions and one of problems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

import onestep
from onestep import _core
from onestep._core import Expr, Function, KStep, Solver
from onestep._errors import MisuseError
from onestep.jax._batching import lift_directions, lift_inputs, lift_shared, lift_states, out_of_directions, out_of_problems
from onestep.jax._lowering import add_lowering
from onestep.jax._problem import Directions, Flags, Layout, Problem, Shape, run

second_p = Primitive("onestep_second")
second_jvp_p = Primitive("onestep_second_jvp")
second_p.multiple_results = True
second_jvp_p.multiple_results = True


# ---- what they compute, traced with the solve inside ----


def traced(
    body: Callable[..., Any], shapes: Sequence[Shape], trace: Callable[..., Function] = _core.traced
) -> Function:
    """A function of any number of arguments, traced."""
    import inspect

    def counted(*arguments: Expr) -> Any:
        return body(*arguments)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = [inspect.Parameter(f"a{i}", kind) for i in range(len(shapes))]
    counted.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return trace(counted, *shapes)


def _moved(y: Expr, theta: Sequence[Expr], v: Sequence[Expr]) -> Expr:
    """How y moves when these parameters move along v."""
    total = _core.jvp(y, theta[0], v[0])
    for t, of_t in zip(theta[1:], v[1:]):
        total = _core.add(total, _core.jvp(y, t, of_t))
    return total


def _chosen(all_of_them: Sequence[Any], flags: Flags) -> list[Any]:
    return [one for one, flag in zip(all_of_them, flags) if flag]


def _solver(problem: Problem) -> Solver:
    """One step of Newton's method gives first derivatives only; by default a solve inside a traced function makes two."""
    return problem.renewed().with_options(estimator=problem.estimator if isinstance(problem.estimator, KStep) else None)


def _call(
    problem: Problem, layout: Layout, count: int, shapes: list[Shape], first: int, of: Callable[..., tuple[Expr, ...]]
) -> _core.CompiledCall:
    """`of`(x, theta, directions) for each direction of each problem, whose solve begins at the state that was found. It is
    linear in the `first` of the directions, and in the others."""
    number = len(shapes)
    starts = problem.state if problem.start else []
    solver = _solver(problem)

    def body(*arguments: Expr) -> tuple[Expr, ...]:
        theta, start = arguments[number : number + len(problem.theta)], arguments[number + len(problem.theta) :]
        return of(solver(*theta, *start), theta, arguments[:number])

    try:
        function = traced(body, [*shapes, *problem.theta, *starts], problem.core.traced)
    except MisuseError as error:
        raise MisuseError(f"[{problem.name}] no second derivative: {error}") from error
    batched = [*layout.batched[len(problem.start) :], *([True] * len(starts))]
    raises = problem.on_error == "raise"
    return _core.evaluation_call(function, first, number, batched, layout.count, count, problem.name, raises)


def _second_call(problem: Problem, layout: Layout, count: int, given: Flags, needed: Flags) -> _core.CompiledCall:
    shapes = [(sum(_sizes(problem.state)),) if len(problem.state) > 1 else problem.state[0], *_chosen(problem.theta, given)]

    def gradients(x: Expr, theta: Sequence[Expr], directions: Sequence[Expr]) -> tuple[Expr, ...]:
        total = _core.sum(_core.mul(directions[0], _moved(x, _chosen(theta, given), directions[1:])))
        return tuple(onestep.grad(total, t) for t in _chosen(theta, needed))

    return problem.call(("second", layout, count, given, needed), lambda: _call(problem, layout, count, shapes, 1, gradients))


def _second_jvp_call(problem: Problem, layout: Layout, count: int, given: Flags, also: Flags) -> _core.CompiledCall:
    shapes = [*_chosen(problem.theta, given), *_chosen(problem.theta, also)]
    number = sum(given)

    def moved_twice(x: Expr, theta: Sequence[Expr], directions: Sequence[Expr]) -> tuple[Expr, ...]:
        along = _moved(x, _chosen(theta, given), directions[:number])
        return (_moved(along, _chosen(theta, also), directions[number:]),)

    key = ("second_jvp", layout, count, given, also)
    return problem.call(key, lambda: _call(problem, layout, count, shapes, number, moved_twice))


def _sizes(shapes: Sequence[Shape]) -> list[int]:
    return [int(np.prod(shape)) for shape in shapes]


# ---- the primitives ----
# second: (c, v, theta, state) -> the gradient of <c, (dx/dtheta) v> by the parameters that are needed.
# second_jvp: (v, w, theta, state) -> how (dx/dtheta) v moves when theta moves along w.
# c and results of second_jvp have the parts of the state one behind the other where there are several.


def _thetas(problem: Problem, layout: Layout, count: int, flags: Flags) -> list[ShapedArray]:
    return [ShapedArray((count, layout.count, *s), np.dtype(np.float64)) for s in _chosen(problem.theta, flags)]


@second_p.def_abstract_eval
def _second_shapes(*_: Any, problem: Problem, layout: Layout, count: int, given: Flags, needed: Flags) -> list[Any]:
    return _thetas(problem, layout, count, needed)


@second_jvp_p.def_abstract_eval
def _second_jvp_shapes(*_: Any, problem: Problem, layout: Layout, count: int, given: Flags, also: Flags) -> list[Any]:
    shape = problem.state[0] if len(problem.state) == 1 else (sum(_sizes(problem.state)),)
    return [ShapedArray((count, layout.count, *shape), np.dtype(np.float64))]


def _evaluated(call_of: Callable[..., _core.CompiledCall]) -> Callable[..., list[Any]]:
    def impl(*operands: Any, **params: Any) -> list[Any]:
        return run(call_of(**params), *operands)

    return impl


def _linear_in_directions(primitive: Any, numbers: Callable[..., tuple[int, int]]) -> Callable[..., Any]:
    def rule(primals: Any, tangents: Any, **params: Any) -> Any:
        first, second = numbers(**params)
        if any(not isinstance(t, ad.Zero) for t in tangents[first + second :]):
            raise MisuseError(
                f"[{params['problem'].name}] a solver has first and second derivatives; a third one was asked for"
            )
        out = primitive.bind(*primals, **params)
        terms = []
        for begin, end in ((0, first), (first, first + second)):
            if any(not isinstance(t, ad.Zero) for t in tangents[begin:end]):
                moved = [ad.instantiate_zeros(t) for t in tangents[begin:end]]
                terms.append(primitive.bind(*primals[:begin], *moved, *primals[end:], **params))
        if not terms:
            return out, [ad.Zero(ShapedArray(o.shape, o.dtype)) for o in out]
        return out, terms[0] if len(terms) == 1 else [a + b for a, b in zip(*terms)]

    return rule


def _numbers_of_second(problem: Problem, given: Flags, **_: Any) -> tuple[int, int]:
    return 1, sum(given)


def _numbers_of_second_jvp(given: Flags, also: Flags, **_: Any) -> tuple[int, int]:
    return sum(given), sum(also)


def _instantiated(cts: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    return [jnp.zeros(s.shape) if isinstance(ct, ad.Zero) else ct for ct, s in zip(cts, shapes)]


def _second_transposed(
    cts: Any, *operands: Any, problem: Problem, layout: Layout, count: int, given: Flags, needed: Flags
) -> list[Any]:
    number = sum(given)
    c, v, rest = operands[0], operands[1 : 1 + number], operands[1 + number :]
    common = {"problem": problem, "layout": layout, "count": count}
    w = _instantiated(cts, _thetas(problem, layout, count, needed))
    if ad.is_undefined_primal(c):
        out = second_jvp_p.bind(*v, *w, *rest, given=given, also=needed, **common)
        return [*out, *([None] * (number + len(rest)))]
    # The second derivative is symmetric.
    out = second_p.bind(c, *w, *rest, given=needed, needed=given, **common)
    return [None, *out, *([None] * len(rest))]


def _second_jvp_transposed(
    cts: Any, *operands: Any, problem: Problem, layout: Layout, count: int, given: Flags, also: Flags
) -> list[Any]:
    number, more = sum(given), sum(also)
    v, w, rest = operands[:number], operands[number : number + more], operands[number + more :]
    common = {"problem": problem, "layout": layout, "count": count}
    (c,) = _instantiated(cts, _second_jvp_shapes(given=given, also=also, **common))
    if any(ad.is_undefined_primal(one) for one in v):
        out = second_p.bind(c, *w, *rest, given=also, needed=given, **common)
        return [*out, *([None] * (more + len(rest)))]
    out = second_p.bind(c, *v, *rest, given=given, needed=also, **common)
    return [*([None] * number), *out, *([None] * len(rest))]


def _batched(primitive: Any, numbers: Callable[..., tuple[int, int]]) -> Callable[..., Any]:
    def rule(values: Any, dims: Any, *, problem: Problem, layout: Layout, count: int, **flags: Any) -> Any:
        size = next(v.shape[d] for v, d in zip(values, dims) if d is not None)
        number = sum(numbers(problem=problem, **flags))
        cut = number + len(problem.theta)
        directions, theta, state = values[:number], values[number:cut], values[cut:]
        if all(d is None for d in dims[number:]):
            lifted = lift_directions(size, directions, dims[:number])
            out = primitive.bind(*lifted, *theta, *state, problem=problem, layout=layout, count=size * count, **flags)
            return out_of_directions(size, count, out)
        starts = (False,) * len(problem.start)
        wider, theta = lift_inputs(size, Layout(layout.batched[len(starts) :], layout.count), theta, dims[number:cut])
        wider = Layout((*starts, *wider.batched), wider.count)
        lifted = lift_shared(size, directions, dims[:number], [True] * number)
        state = lift_states(size, state, dims[cut:])
        out = primitive.bind(*lifted, *theta, *state, problem=problem, layout=wider, count=count, **flags)
        return out_of_problems(size, layout.count, out)

    return rule


for _primitive, _call_of, _numbers, _transposed in (
    (second_p, _second_call, _numbers_of_second, _second_transposed),
    (second_jvp_p, _second_jvp_call, _numbers_of_second_jvp, _second_jvp_transposed),
):
    _primitive.def_impl(_evaluated(_call_of))
    ad.primitive_jvps[_primitive] = _linear_in_directions(_primitive, _numbers)
    ad.primitive_transposes[_primitive] = _transposed
    batching.primitive_batchers[_primitive] = _batched(_primitive, _numbers)
    add_lowering(_primitive, _call_of)


# ---- how the first derivatives move with the parameters ----


def _with_axes(problem: Problem, layout: Layout, count: int, tangents: Sequence[Any]) -> list[Any]:
    """Tangents of the parameters, the same for each direction, with both axes."""
    v = []
    for k, tangent in enumerate(tangents):
        if isinstance(tangent, ad.Zero):
            continue
        tangent = lax.expand_dims(tangent, (0,) if layout.batched[len(problem.start) + k] else (0, 1))
        v.append(jnp.broadcast_to(tangent, (count, layout.count, *problem.theta[k])))
    return v


def _operands(problem: Problem, rest: Sequence[Any]) -> list[Any]:
    """The parameters, and the state where solves begin at it."""
    theta, state = rest[len(problem.start) : problem.inputs], rest[problem.inputs :]
    return [*theta, *(state if problem.start else [])]


def _moving(tangents: Sequence[Any]) -> Flags:
    return tuple(not isinstance(t, ad.Zero) for t in tangents)


def of_vjp(problem: Problem, layout: Layout, which: Directions, primals: Any, along: Any) -> list[Any]:
    parts = len(problem.state)
    c, rest = primals[:parts], _operands(problem, primals[parts:])
    if parts > 1:
        c = [jnp.concatenate([p.reshape((which.count, layout.count, -1)) for p in c], axis=2)]
    v = _with_axes(problem, layout, which.count, along)
    out = second_p.bind(
        *c, *v, *rest, problem=problem, layout=layout, count=which.count, given=_moving(along), needed=which.given
    )
    keeps = _chosen([problem.has_axis(layout, which, k) for k in range(len(problem.theta))], which.given)
    return [o if k else o.sum(axis=1) for o, k in zip(out, keeps)]


def of_jvp(problem: Problem, layout: Layout, which: Directions, primals: Any, along: Any) -> list[Any]:
    number = sum(which.given)
    rest = _operands(problem, primals[number:])
    v = []
    for value, k in zip(primals, _chosen(range(len(problem.theta)), which.given)):
        value = value if problem.has_axis(layout, which, k) else value[:, None]
        v.append(jnp.broadcast_to(value, (which.count, layout.count, *problem.theta[k])))
    w = _with_axes(problem, layout, which.count, along)
    (joined,) = second_jvp_p.bind(
        *v, *w, *rest, problem=problem, layout=layout, count=which.count, given=which.given, also=_moving(along)
    )
    if len(problem.state) == 1:
        return [joined]
    parts = jnp.split(joined, np.cumsum(_sizes(problem.state))[:-1], axis=2)
    return [p.reshape((which.count, layout.count, *shape)) for p, shape in zip(parts, problem.state)]
