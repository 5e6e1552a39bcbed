"""The primitives of a solver: the solution, and its two first derivatives. What is batched is described in _problem.Layout.

Operands of the solution are the parts of the start and the parameters. Those of the derivatives are directions, with an axis
of directions in front, then the same, and then the state that was found: whatever a derivative needs is an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from onestep.jax import _second
from onestep.jax._batching import lift_directions, lift_inputs, lift_shared, lift_states, out_of_directions, out_of_problems
from onestep.jax._lowering import add_lowering
from onestep.jax._problem import Directions, Layout, Problem, run

solve_p = Primitive("onestep_solve")
vjp_p = Primitive("onestep_vjp")
jvp_p = Primitive("onestep_jvp")
for _primitive in (solve_p, vjp_p, jvp_p):
    _primitive.multiple_results = True


def split(values: Sequence[Any], *lengths: int) -> list[list[Any]]:
    """Lists of these lengths, and the rest."""
    parts, first = [], 0
    for length in lengths:
        parts.append(list(values[first : first + length]))
        first += length
    return [*parts, list(values[first:])]


def arrays(shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    return [jax.core.ShapedArray(shape, np.dtype(np.float64)) for shape in shapes]


# ---- the solution ----


@solve_p.def_abstract_eval
def _solve_shapes(*_: Any, problem: Problem, layout: Layout) -> list[Any]:
    return [*arrays(problem.states(layout)), jax.core.ShapedArray((layout.count,), np.dtype(np.int32))]


@solve_p.def_impl
def _solve(*inputs: Any, problem: Problem, layout: Layout) -> list[Any]:
    return run(problem.solve_call(layout), *inputs)


def _solve_jvp(primals: Any, tangents: Any, *, problem: Problem, layout: Layout) -> tuple[Any, Any]:
    *state, statuses = solve_p.bind(*primals, problem=problem, layout=layout)
    no_status = ad.Zero(jax.core.ShapedArray(statuses.shape, jax.dtypes.float0))
    moving = [not isinstance(t, ad.Zero) for t in tangents[len(problem.start) :]]
    # Where a solve begins changes the time, never the solution.
    if not any(moving):
        return (*state, statuses), (*(ad.Zero(jax.core.ShapedArray(s.shape, s.dtype)) for s in state), no_status)
    which = Directions(1, tuple(moving), (False,) * len(moving))
    v = [jax.lax.expand_dims(t, (0,)) for t, m in zip(tangents[len(problem.start) :], moving) if m]
    moved = jvp_p.bind(*v, *primals, *state, problem=problem, layout=layout, which=which)
    return (*state, statuses), (*(jax.lax.squeeze(part, (0,)) for part in moved), no_status)


def _solve_batched(size: int, values: Any, dims: Any, *, problem: Problem, layout: Layout) -> tuple[Any, Any]:
    wider, lifted = lift_inputs(size, layout, values, dims)
    out = solve_p.bind(*lifted, problem=problem, layout=wider)
    return [o.reshape((size, layout.count, *o.shape[1:])) for o in out], [0] * len(out)


# ---- its derivatives; each is the transpose of the other ----


@vjp_p.def_abstract_eval
def _vjp_shapes(*_: Any, problem: Problem, layout: Layout, which: Directions) -> list[Any]:
    return arrays(problem.directions(layout, which))


@jvp_p.def_abstract_eval
def _jvp_shapes(*_: Any, problem: Problem, layout: Layout, which: Directions) -> list[Any]:
    return arrays(problem.states(layout, which.count))


@vjp_p.def_impl
def _vjp(*operands: Any, problem: Problem, layout: Layout, which: Directions) -> list[Any]:
    return run(problem.vjp_call(layout, which), *operands)


@jvp_p.def_impl
def _jvp(*operands: Any, problem: Problem, layout: Layout, which: Directions) -> list[Any]:
    return run(problem.jvp_call(layout, which), *operands)


def _transposed(of: Any, number_of: Any, cotangents_of: Any) -> Any:
    def rule(cts: Any, *operands: Any, problem: Problem, layout: Layout, which: Directions) -> list[Any]:
        linear = number_of(problem, which)
        c = [
            jnp.zeros(shape) if isinstance(ct, ad.Zero) else ct
            for ct, shape in zip(cts, cotangents_of(problem, layout, which))
        ]
        out = of.bind(*c, *operands[linear:], problem=problem, layout=layout, which=which)
        return [*out, *([None] * (len(operands) - linear))]

    return rule


def _differentiated(of: Any, number_of: Any, by_parameters: Any) -> Any:
    """Linear in the directions; how it moves with the parameters is a second derivative."""

    def rule(primals: Any, tangents: Any, *, problem: Problem, layout: Layout, which: Directions) -> tuple[Any, Any]:
        linear = number_of(problem, which)
        out = of.bind(*primals, problem=problem, layout=layout, which=which)
        terms = []
        if any(not isinstance(t, ad.Zero) for t in tangents[:linear]):
            moved = [ad.instantiate_zeros(t) for t in tangents[:linear]]
            terms.append(of.bind(*moved, *primals[linear:], problem=problem, layout=layout, which=which))
        first = linear + len(problem.start)
        along = tangents[first : first + len(problem.theta)]
        if any(not isinstance(t, ad.Zero) for t in along):
            terms.append(by_parameters(problem, layout, which, primals, along))
        if not terms:
            return out, [ad.Zero(jax.core.ShapedArray(o.shape, o.dtype)) for o in out]
        return out, terms[0] if len(terms) == 1 else [a + b for a, b in zip(*terms)]

    return rule


def _vjp_batched(
    size: int, values: Any, dims: Any, *, problem: Problem, layout: Layout, which: Directions
) -> tuple[Any, Any]:
    parts = len(problem.state)
    c, inputs, state = split(values, parts, problem.inputs)
    c_dims, in_dims, state_dims = split(dims, parts, problem.inputs)
    if all(d is None for d in in_dims):
        more = Directions(size * which.count, which.given, which.apart)
        lifted = lift_directions(size, c, c_dims)
        out = vjp_p.bind(*lifted, *inputs, *_first(state, state_dims), problem=problem, layout=layout, which=more)
        return out_of_directions(size, which.count, out)
    wider, lifted = lift_inputs(size, layout, inputs, in_dims)
    c, state = lift_shared(size, c, c_dims, [True] * parts), lift_states(size, state, state_dims)
    # What was summed over the problems is still summed over these, but not over the new level.
    apart = Directions(which.count, which.given, (True,) * len(which.apart))
    out = vjp_p.bind(*c, *lifted, *state, problem=problem, layout=wider, which=apart)
    out, out_dims = out_of_problems(size, layout.count, out)
    kept = [problem.has_axis(layout, which, k) for k, given in enumerate(which.given) if given]
    return [o if k else o.sum(axis=2) for o, k in zip(out, kept)], out_dims


def _jvp_batched(
    size: int, values: Any, dims: Any, *, problem: Problem, layout: Layout, which: Directions
) -> tuple[Any, Any]:
    number = sum(which.given)
    v, inputs, state = split(values, number, problem.inputs)
    v_dims, in_dims, state_dims = split(dims, number, problem.inputs)
    if all(d is None for d in in_dims):
        more = Directions(size * which.count, which.given, which.apart)
        lifted = lift_directions(size, v, v_dims)
        out = jvp_p.bind(*lifted, *inputs, *_first(state, state_dims), problem=problem, layout=layout, which=more)
        return out_of_directions(size, which.count, out)
    wider, lifted = lift_inputs(size, layout, inputs, in_dims)
    has_axis = [problem.has_axis(layout, which, k) for k, given in enumerate(which.given) if given]
    v = lift_shared(size, v, v_dims, has_axis, layout.count)
    apart = Directions(which.count, which.given, (True,) * len(which.apart))
    out = jvp_p.bind(*v, *lifted, *lift_states(size, state, state_dims), problem=problem, layout=wider, which=apart)
    return out_of_problems(size, layout.count, out)


def _first(state: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The state of problems that are not batched is the same along every new axis."""
    return [s if d is None else jax.lax.index_in_dim(s, 0, d, keepdims=False) for s, d in zip(state, dims)]


def _number_of_v(problem: Problem, which: Directions) -> int:
    return sum(which.given)


def _number_of_c(problem: Problem, which: Directions) -> int:
    return len(problem.state)


def _shapes_of_v(problem: Problem, layout: Layout, which: Directions) -> list[tuple[int, ...]]:
    return problem.directions(layout, which)


def _shapes_of_c(problem: Problem, layout: Layout, which: Directions) -> list[tuple[int, ...]]:
    return problem.states(layout, which.count)


def _with_size(rule: Any) -> Any:
    def batched(values: Any, dims: Any, **params: Any) -> Any:
        size = next(v.shape[d] for v, d in zip(values, dims) if d is not None)
        return rule(size, values, dims, **params)

    return batched


ad.primitive_jvps[solve_p] = _solve_jvp
ad.primitive_jvps[vjp_p] = _differentiated(vjp_p, _number_of_c, _second.of_vjp)
ad.primitive_jvps[jvp_p] = _differentiated(jvp_p, _number_of_v, _second.of_jvp)
ad.primitive_transposes[vjp_p] = _transposed(jvp_p, _number_of_c, _shapes_of_v)
ad.primitive_transposes[jvp_p] = _transposed(vjp_p, _number_of_v, _shapes_of_c)
batching.primitive_batchers[solve_p] = _with_size(_solve_batched)
batching.primitive_batchers[vjp_p] = _with_size(_vjp_batched)
batching.primitive_batchers[jvp_p] = _with_size(_jvp_batched)
add_lowering(solve_p, lambda problem, layout: problem.solve_call(layout))
add_lowering(vjp_p, lambda problem, layout, which: problem.vjp_call(layout, which))
add_lowering(jvp_p, lambda problem, layout, which: problem.jvp_call(layout, which))
