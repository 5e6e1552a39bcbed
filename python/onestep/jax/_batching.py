"""How a level of vmap adds to the axes of problems and of directions, see _problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from onestep.jax._problem import Layout

Dims = Sequence[int | None]


def _in_front(size: int, value: Any, dim: int | None) -> Any:
    return jnp.broadcast_to(value, (size, *value.shape)) if dim is None else jnp.moveaxis(value, dim, 0)


def _merged(value: Any, axis: int) -> Any:
    """This axis and the next as one."""
    return value.reshape((*value.shape[:axis], value.shape[axis] * value.shape[axis + 1], *value.shape[axis + 2 :]))


# A level in which inputs are batched makes more problems ...


def lift_inputs(size: int, layout: Layout, inputs: Sequence[Any], dims: Dims) -> tuple[Layout, list[Any]]:
    """The inputs with `size` times as many problems, and the layout of them."""
    wider, batched = [], []
    for value, dim, has_axis in zip(inputs, dims, layout.batched):
        batched.append(has_axis or dim is not None)
        if dim is None and not has_axis:
            wider.append(value)
            continue
        value = _in_front(size, value, dim)
        if not has_axis:
            value = jnp.broadcast_to(value[:, None], (size, layout.count, *value.shape[1:]))
        wider.append(_merged(value, 0))
    return Layout(tuple(batched), size * layout.count), wider


def lift_states(size: int, state: Sequence[Any], dims: Dims) -> list[Any]:
    return [_merged(_in_front(size, s, d), 0) for s, d in zip(state, dims)]


def lift_shared(size: int, directions: Sequence[Any], dims: Dims, has_axis: Sequence[bool], count: int = 0) -> list[Any]:
    """Directions with an axis of `size` times as many problems behind that of directions. Those without one are repeated."""
    wider = []
    for value, dim, has in zip(directions, dims, has_axis):
        value = _in_front(size, value, dim)
        if not has:
            value = jnp.broadcast_to(value[:, :, None], (*value.shape[:2], count, *value.shape[2:]))
        wider.append(_merged(jnp.swapaxes(value, 0, 1), 1))
    return wider


def out_of_problems(size: int, count: int, results: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Results with an axis of directions and one of `size` times `count` problems, as a batching rule returns them."""
    return [r.reshape((r.shape[0], size, count, *r.shape[2:])) for r in results], [1] * len(results)


# ... and one in which only directions are batched makes more of these.


def lift_directions(size: int, directions: Sequence[Any], dims: Dims) -> list[Any]:
    return lift_states(size, directions, dims)


def out_of_directions(size: int, count: int, results: Sequence[Any]) -> tuple[list[Any], list[int]]:
    return [r.reshape((size, count, *r.shape[1:])) for r in results], [0] * len(results)
