"""Primitives that take or set entries of arrays, by indices that are known while tracing."""

from __future__ import annotations

import math

import jax
import numpy as np

from onestep import _core
from onestep._core import Expr
from onestep._errors import TracingError
from onestep.jax._equation import Equation, check_dtype, refusal
from onestep.jax._values import Known, Value, as_expr, is_known, number_in, picked, placed


def by_numbers(eqn: Equation, a: Value, *indices: Value) -> Expr:
    """What only takes entries: which ones is found by taking from their numbers, by JAX."""
    if not all(is_known(i) for i in indices):
        raise refusal(eqn.name, "an index must be known while tracing")
    primitive = getattr(jax.lax, f"{eqn.name}_p")
    shape = a.shape
    numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    parameters = dict(eqn.params)
    if eqn.name == "gather":
        parameters["fill_value"] = -1
    with jax.ensure_compile_time_eval():
        index = np.asarray(primitive.bind(numbers, *(np.asarray(i) for i in indices), **parameters))
    if index.size and index.min() < 0:
        raise TracingError(f"[{eqn.name}] an index is out of bounds for an array of shape {shape}")
    return picked(a, index, eqn.name)


def _targets(eqn: Equation, shape: tuple[int, ...], indices: Value, updates: Value) -> Known:
    """Where the entries of an update go."""
    if not is_known(indices):
        raise refusal(eqn.name, "an index must be known while tracing")
    dims = eqn.params["dimension_numbers"]
    window = iter([updates.shape[d] for d in dims.update_window_dims])
    left_out = {*dims.inserted_window_dims, *dims.operand_batching_dims}
    sizes = tuple(1 if d in left_out else next(window) for d in range(len(shape)))
    gather = jax.lax.GatherDimensionNumbers(
        offset_dims=dims.update_window_dims,
        collapsed_slice_dims=dims.inserted_window_dims,
        start_index_map=dims.scatter_dims_to_operand_dims,
        operand_batching_dims=dims.operand_batching_dims,
        start_indices_batching_dims=dims.scatter_indices_batching_dims,
    )
    numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    mode = eqn.params["mode"]
    with jax.ensure_compile_time_eval():
        found = jax.lax.gather(numbers, np.asarray(indices), gather, sizes, mode=mode, fill_value=-1)
    index = np.asarray(found)
    if index.size and index.min() < 0:
        raise TracingError(f"[{eqn.name}] an index is out of bounds for an array of shape {shape}")
    return index


def scatter(eqn: Equation, a: Value, indices: Value, updates: Value) -> Expr:
    check_dtype(eqn)
    shape = a.shape
    size = math.prod(shape)
    index = _targets(eqn, shape, indices, updates)
    moved = placed(updates, index, size, eqn.name)
    if moved.shape != eqn.shape:
        moved = _core.reshape(moved, list(eqn.shape))
    if eqn.name == "scatter-add":
        return moved if number_in(a) == 0 else _core.add(as_expr(a, eqn.name), moved)
    if len(np.unique(index)) != index.size:
        raise refusal(eqn.name, "an entry is set twice")
    is_set = np.zeros(size)
    is_set[index.ravel()] = 1.0
    return _core.where(_core.constant(is_set.reshape(shape)), moved, as_expr(a, eqn.name))


def dynamic_update_slice(eqn: Equation, a: Value, update: Value, *starts: Value) -> Expr:
    if not all(is_known(s) for s in starts):
        raise refusal(eqn.name, "an index must be known while tracing")
    shape = a.shape
    first = [int(np.clip(int(np.asarray(s)), 0, n - m)) for s, n, m in zip(starts, shape, update.shape)]
    numbers = np.arange(math.prod(shape)).reshape(shape)
    index = numbers[tuple(slice(f, f + m) for f, m in zip(first, update.shape))]
    moved = placed(update, index, numbers.size, eqn.name)
    is_set = np.zeros(numbers.size)
    is_set[index.ravel()] = 1.0
    moved = moved if moved.shape == shape else _core.reshape(moved, list(shape))
    return _core.where(_core.constant(is_set.reshape(shape)), moved, as_expr(a, eqn.name))
