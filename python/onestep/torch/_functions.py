"""The autograd.Functions of a layer: the solution, its two first derivatives, and what second derivatives are made of.

Their tensors have the layout of _problems. vmap adds to the axis of problems where parameters are batched, else to that of
directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onestep.torch import _operators as _operators
from onestep.torch._curvature import Second, SecondJvp, second_of_shared
from onestep.torch._layout import (
    Call,
    InDims,
    more_directions,
    more_parameters,
    more_problems,
    more_states,
    of_directions,
    of_problems,
    refuse_batches_of_autograd,
    split,
    tangents_of,
)
from onestep.torch._problems import keeping


class Solve(torch.autograd.Function):
    """theta -> the parts of the state, and the statuses."""

    @staticmethod
    def forward(call: Call, *theta: Tensor) -> tuple[Tensor, ...]:
        with keeping(call.kept):
            return tuple(torch.ops.onestep.solve(theta, call.layer, call.batched, call.count))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, *theta = inputs
        *state, statuses = output
        ctx.mark_non_differentiable(statuses)
        ctx.save_for_backward(*theta, *state)
        ctx.save_for_forward(*theta, *state)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        theta, state = split(ctx.saved_tensors, call.number)
        needed = tuple(ctx.needs_input_grad[1:])
        if all(g is None for g in grads[:-1]) or not any(needed):
            return (None,) * (1 + call.number)
        c = [(torch.zeros_like(part) if g is None else g).unsqueeze(0) for g, part in zip(grads, state)]
        found = iter(Vjp.apply(call, needed, (False,) * call.number, *theta, *state, *c))
        return (None, *(next(found).squeeze(0) if n else None for n in needed))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        theta, state = split(ctx.saved_tensors, call.number)
        given, v = tangents_of(call, tangents, directions=1)
        if not v:
            return (*(torch.zeros_like(part) for part in state), None)
        moved = Jvp.apply(call, given, *v, *theta, *state)
        return (*(part.squeeze(0) for part in moved), None)

    @staticmethod
    def vmap(info: Any, in_dims: InDims, call: Call, *theta: Tensor) -> tuple[Any, Any]:
        wider, lifted = more_parameters(info.batch_size, call, theta, in_dims[1:])
        out = Solve.apply(wider, *lifted)
        return tuple(o.unflatten(0, (info.batch_size, call.count)) for o in out), (0,) * len(out)


class Vjp(torch.autograd.Function):
    """(theta, state, c) -> (dx/dtheta)^T c for the parameters that are needed."""

    @staticmethod
    def forward(call: Call, needed: tuple[bool, ...], each: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        refuse_batches_of_autograd(tensors)
        theta, state, c = _of_vjp(call, tensors)
        with keeping(call.kept):
            return tuple(torch.ops.onestep.vjp(c, theta, state, call.layer, call.batched, needed, each))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, ctx.needed, ctx.each, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        theta, state, c = _of_vjp(call, ctx.saved_tensors)
        of_theta, _, of_c = _of_vjp(call, ctx.needs_input_grad[3:])
        found = iter(grads)
        by_parameter = [next(found) if n else None for n in ctx.needed]
        given, v = tangents_of(call, by_parameter, c[0].shape[0], has_axis=_has_axis(call, ctx.each))
        to_theta: Sequence[Tensor | None] = [None] * len(theta)
        to_c: Sequence[Tensor | None] = [None] * len(c)
        if v and any(of_theta):
            to_theta = second_of_shared(call, given, of_theta, v, theta, c)
        if v and any(of_c):
            to_c = Jvp.apply(call, given, *v, *theta, *state)
        return (None, None, None, *to_theta, *([None] * len(state)), *to_c)

    @staticmethod
    def jvp(ctx: Any, _0: None, _1: None, _2: None, *tangents: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        theta, state, c = _of_vjp(call, ctx.saved_tensors)
        of_theta, _, of_c = _of_vjp(call, tangents)
        terms = []
        if any(d is not None for d in of_c):
            whole = [torch.zeros_like(part) if d is None else d for d, part in zip(of_c, c)]
            terms.append(Vjp.apply(call, ctx.needed, ctx.each, *theta, *state, *whole))
        given, v = tangents_of(call, of_theta, c[0].shape[0])
        if v:
            curved = Second.apply(call, given, ctx.needed, *v, *theta, *c)
            keeps = [k for k, n in zip(_has_axis(call, ctx.each), ctx.needed) if n]
            terms.append(tuple(part if k else part.sum(dim=1) for part, k in zip(curved, keeps)))
        return _sum(terms)

    @staticmethod
    def vmap(
        info: Any, in_dims: InDims, call: Call, needed: tuple[bool, ...], each: tuple[bool, ...], *tensors: Tensor
    ) -> tuple[Any, Any]:
        size = info.batch_size
        theta, state, c = _of_vjp(call, tensors)
        theta_dims, state_dims, c_dims = _of_vjp(call, in_dims[3:])
        if all(d is None for d in theta_dims):
            return of_directions(size, Vjp.apply(call, needed, each, *theta, *state, *more_directions(size, c, c_dims)))
        wider, theta = more_parameters(size, call, theta, theta_dims)
        state, c = more_states(size, state, state_dims), more_problems(size, c, c_dims)
        # Those that were shared by the problems before this level of vmap are summed over them, not over this level.
        out, dims = of_problems(size, Vjp.apply(wider, needed, (True,) * call.number, *theta, *state, *c))
        keeps = [k for k, n in zip(_has_axis(call, each), needed) if n]
        return tuple(o if k else o.sum(dim=2) for o, k in zip(out, keeps)), dims


class Jvp(torch.autograd.Function):
    """(v, theta, state) -> (dx/dtheta) v, where only the parameters that are given have a tangent in v."""

    @staticmethod
    def forward(call: Call, given: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        refuse_batches_of_autograd(tensors)
        v, theta, state = split(tensors, sum(given), call.number)
        with keeping(call.kept):
            return tuple(torch.ops.onestep.jvp(v, theta, state, call.layer, call.batched, given))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, ctx.given, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        v, theta, state = split(ctx.saved_tensors, sum(ctx.given), call.number)
        of_v, of_theta, _ = split(ctx.needs_input_grad[2:], sum(ctx.given), call.number)
        to_v: Sequence[Tensor | None] = [None] * len(v)
        to_theta: Sequence[Tensor | None] = [None] * len(theta)
        if any(g is not None for g in grads):
            c = [part.new_zeros((v[0].shape[0], *part.shape)) if g is None else g for g, part in zip(grads, state)]
            if any(of_v):
                to_v = Vjp.apply(call, ctx.given, (True,) * call.number, *theta, *state, *c)
            if any(of_theta):
                to_theta = second_of_shared(call, ctx.given, of_theta, v, theta, c)
        return (None, None, *to_v, *to_theta, *([None] * len(state)))

    @staticmethod
    def jvp(ctx: Any, _0: None, _1: None, *tangents: Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        v, theta, state = split(ctx.saved_tensors, sum(ctx.given), call.number)
        of_v, of_theta, _ = split(tangents, sum(ctx.given), call.number)
        terms = []
        if any(d is not None for d in of_v):
            whole = [torch.zeros_like(part) if d is None else d for d, part in zip(of_v, v)]
            terms.append(Jvp.apply(call, ctx.given, *whole, *theta, *state))
        given, w = tangents_of(call, of_theta, v[0].shape[0])
        if w:
            terms.append(SecondJvp.apply(call, ctx.given, given, *v, *w, *theta, *state))
        return _sum(terms)

    @staticmethod
    def vmap(info: Any, in_dims: InDims, call: Call, given: tuple[bool, ...], *tensors: Tensor) -> tuple[Any, Any]:
        size = info.batch_size
        v, theta, state = split(tensors, sum(given), call.number)
        v_dims, theta_dims, state_dims = split(in_dims[2:], sum(given), call.number)
        if all(d is None for d in theta_dims):
            return of_directions(size, Jvp.apply(call, given, *more_directions(size, v, v_dims), *theta, *state))
        wider, theta = more_parameters(size, call, theta, theta_dims)
        v, state = more_problems(size, v, v_dims), more_states(size, state, state_dims)
        return of_problems(size, Jvp.apply(wider, given, *v, *theta, *state))


def _of_vjp(call: Call, values: Sequence[Any]) -> list[Any]:
    """Of the parameters, of the state and of its cotangent, which have as many parts."""
    return split(values, call.number, (len(values) - call.number) // 2)


def _has_axis(call: Call, each: Sequence[bool]) -> list[bool]:
    return [b or e for b, e in zip(call.batched, each)]


def _sum(terms: list[Any]) -> tuple[Tensor, ...]:
    if len(terms) == 2:
        return tuple(a + b for a, b in zip(*terms))
    return tuple(terms[0])
