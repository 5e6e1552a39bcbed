"""The user's map of an equilibrium model: what it closes over is found, and it becomes a function of one matrix, whose rows
are the items of the batch, and of all tensors that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from onestep._errors import MisuseError

Dims = Sequence[int | None]


@dataclass(frozen=True)
class Layout:
    """How the parts of a state lie in a matrix with a row for each item."""

    batch: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the parts of one item
    is_tuple: bool

    @property
    def items(self) -> int:
        return torch.Size(self.batch).numel()

    def flat(self, state: Any) -> Tensor:
        parts = list(state) if self.is_tuple else [state]
        rows = [p.reshape((self.items, torch.Size(s).numel())) for p, s in zip(parts, self.shapes)]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    def state(self, flat: Tensor) -> Any:
        if not self.is_tuple:
            return flat.reshape((*self.batch, *self.shapes[0]))
        sizes = [torch.Size(s).numel() for s in self.shapes]
        return tuple(p.reshape((*self.batch, *s)) for p, s in zip(flat.split(sizes, dim=1), self.shapes))


def layout_of(z0: Any, batch_axes: int | None) -> Layout:
    """Of a start; without `batch_axes` the first axis is the batch, where all parts have two axes or more."""
    parts = z0 if isinstance(z0, tuple) else (z0,)
    if not parts:
        raise MisuseError("[fixed_point] z0 is an empty tuple; a state has at least one part")
    for i, part in enumerate(parts):
        name = f"part {i} of z0" if isinstance(z0, tuple) else "z0"
        if not isinstance(part, Tensor):
            raise MisuseError(f"[fixed_point] {name} is a {type(part).__name__}; a tensor is needed, or a tuple of them")
        if part.layout is not torch.strided:
            raise MisuseError(f"[fixed_point] {name} is a sparse tensor, which is not supported: use .to_dense()")
        if not part.is_floating_point():
            raise MisuseError(f"[fixed_point] {name} is a tensor of {part.dtype}; one of real floating numbers is needed")
        if part.dtype is not parts[0].dtype or part.device != parts[0].device:
            raise MisuseError("[fixed_point] the parts of z0 have different dtypes or devices; they have to be the same")
    fewest = min(part.ndim for part in parts)
    axes = (1 if fewest >= 2 else 0) if batch_axes is None else batch_axes
    if isinstance(axes, bool) or not isinstance(axes, int) or not 0 <= axes <= fewest:
        raise MisuseError(f"[fixed_point] batch_axes = {axes!r}: z0 has {fewest} axes, that many at most are a batch")
    if any(part.shape[:axes] != parts[0].shape[:axes] for part in parts):
        shapes = ", ".join(str(tuple(part.shape)) for part in parts)
        raise MisuseError(f"[fixed_point] the first {axes} axes of the parts of z0 are the batch and differ: {shapes}")
    return Layout(tuple(parts[0].shape[:axes]), tuple(tuple(p.shape[axes:]) for p in parts), isinstance(z0, tuple))


class _Finds(TorchFunctionMode):
    """Notes the tensors that a function uses and that carry a derivative. It runs without gradients on inputs without any:
    such a tensor was made elsewhere."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.known = {id(t) for t in inputs}
        self.kept: list[Tensor] = list(inputs)  # so that no other tensor gets the id of one of them
        self.found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for t in _tensors_in((args, kwargs)):
            if id(t) not in self.known and _carries_a_derivative(t):
                self.found.append(t)
                self._note(t)
        result = func(*args, **(kwargs or {}))
        for t in _tensors_in(result):
            self._note(t)
        return result

    def _note(self, t: Tensor) -> None:
        if id(t) not in self.known:
            self.known.add(id(t))
            self.kept.append(t)


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors_in(one)
    elif isinstance(value, dict):
        yield from _tensors_in(tuple(value.values()))


def _carries_a_derivative(t: Tensor) -> bool:
    if not t.is_floating_point():
        return False
    if t.requires_grad or is_transformed(t):
        return True
    return torch.autograd.forward_ad.unpack_dual(t).tangent is not None if _in_dual_level() else False


def _in_dual_level() -> bool:
    return torch.autograd.forward_ad._current_level >= 0


def is_transformed(t: Tensor) -> bool:
    """Whether it belongs to a transform of torch.func."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(t))


class _Replaces(TorchFunctionMode):
    """Puts other tensors in the place of those that a function closes over."""

    def __init__(self, old: Sequence[Tensor], new: Sequence[Tensor]) -> None:
        super().__init__()
        self.new = {id(o): n for o, n in zip(old, new)}
        self.seen: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(self._replaced(a) for a in args), **{k: self._replaced(v) for k, v in (kwargs or {}).items()})

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in self.new:
                return value
            self.seen.add(id(value))
            return self.new[id(value)]
        if type(value) in (tuple, list):  # of what torch takes, no other container holds tensors
            return type(value)(self._replaced(one) for one in value)
        return value

    def refuse_what_was_not_seen(self) -> None:
        """Raises MisuseError where f uses other tensors now than when they were found."""
        if len(self.seen) < len(self.new):
            raise MisuseError(
                "[fixed_point] f does not use a tensor any more that it closed over in the forward pass, as after "
                "torch.func.functional_call: pass it in params and let f take it from there"
            )


@dataclass(frozen=True)
class Step:
    """F(z, theta): a matrix with a row for each item, and all tensors that the map depends on."""

    call: Callable[[Tensor, Sequence[Tensor]], Tensor]
    items: int
    size: int  # of an item
    eps: float  # unit of rounding of what the map computes

    def __call__(self, z: Tensor, theta: Sequence[Tensor]) -> Tensor:
        return self.call(z, theta)

    def batched(self, number: int, dims: Dims) -> Step:
        """With `number` times as many items, as a level of vmap makes them: `dims` says which tensors it batches."""

        def call(z: Tensor, theta: Sequence[Tensor]) -> Tensor:
            over = torch.func.vmap(
                lambda z, *theta: self.call(z, theta), in_dims=(0, *(None if d is None else 0 for d in dims))
            )
            return over(z.unflatten(0, (number, self.items)), *theta).flatten(0, 1)

        return replace(self, call=call, items=number * self.items)


def make_step(f: Callable[..., Any], z0: Any, params: Sequence[Any], layout: Layout) -> tuple[Step, list[Tensor]]:
    """The step, and the tensors it depends on: those among `params`, and those that f closes over."""
    leaves, spec = tree_flatten(list(params))
    places = [i for i, p in enumerate(leaves) if isinstance(p, Tensor)]
    given = [leaves[i] for i in places]

    def arguments(theta: Sequence[Tensor]) -> list[Any]:
        filled = list(leaves)
        for i, t in zip(places, theta):
            filled[i] = t
        return list(tree_unflatten(filled, spec))

    first = z0[0] if isinstance(z0, tuple) else z0
    parts = [p.detach().clone() for p in (z0 if isinstance(z0, tuple) else (z0,))]
    inputs = [p.detach() for p in given]
    finds = _Finds([*parts, *inputs])
    with torch.no_grad(), finds:
        checked(f(tuple(parts) if layout.is_tuple else parts[0], *arguments(inputs)), layout, first)
    if any(p._version > 0 for p in parts):
        raise MisuseError("[fixed_point] f changes the state it is given in place; let it work on a copy, as z.clone()")
    closed = finds.found
    device = first.device.type  # a backward pass evaluates the map in another thread, where autocast may be another
    was_cast, cast_to = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def call(z: Tensor, theta: Sequence[Tensor]) -> Tensor:
        inside = theta[len(places) :]
        replaces = _Replaces(closed, inside)
        moved = any(new is not old for new, old in zip(inside, closed))
        with ExitStack() as stack:
            if was_cast or torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, dtype=cast_to, enabled=was_cast))
            if moved:
                stack.enter_context(replaces)
            following = layout.flat(checked(f(layout.state(z), *arguments(theta)), layout, first))
        if moved:
            replaces.refuse_what_was_not_seen()
        return following

    size = sum(torch.Size(s).numel() for s in layout.shapes)
    eps = max(torch.finfo(first.dtype).eps, torch.finfo(cast_to).eps if was_cast else 0.0)
    return Step(call, layout.items, size, eps), [*given, *closed]


def checked(result: Any, layout: Layout, like: Tensor) -> Any:
    """What f returned, where it is a state like the start."""
    if layout.is_tuple and (not isinstance(result, tuple) or len(result) != len(layout.shapes)):
        raise MisuseError(f"[fixed_point] the state has {len(layout.shapes)} parts, so f returns a tuple of as many")
    for part, shape in zip(result if layout.is_tuple else (result,), layout.shapes):
        wanted = (*layout.batch, *shape)
        if not isinstance(part, Tensor):
            raise MisuseError(f"[fixed_point] f returned a {type(part).__name__}; a tensor of shape {wanted} is needed")
        if tuple(part.shape) != wanted:
            raise MisuseError(f"[fixed_point] f returned shape {tuple(part.shape)} for a state of shape {wanted}")
        if part.dtype is not like.dtype or part.device != like.device:
            raise MisuseError(
                f"[fixed_point] f returned {part.dtype} on {part.device} for a state of {like.dtype} on {like.device}: give "
                "z0 the dtype and the device of the parameters, or convert what f returns (under autocast as well)"
            )
    return result


def refuse_hidden(y: Tensor, known: Sequence[Tensor]) -> None:
    """Raises MisuseError where a tensor that requires a gradient took part in y without being found: as an argument of an
    autograd.Function, or in a module that is scripted or compiled."""
    if y.grad_fn is None:
        return
    ours = {id(t) for t in known}
    seen, todo = {y.grad_fn}, [y.grad_fn]
    while todo:
        node: Any = todo.pop()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and id(leaf) not in ours:
            raise MisuseError(
                f"[fixed_point] f depends on a tensor of shape {tuple(leaf.shape)} that requires a gradient and is neither in "
                "params nor found by looking at what f calls (it is used inside an autograd.Function or by a scripted module, "
                "or it stands where another tensor stood in the forward pass, as after torch.func.functional_call): pass it in "
                "params and let f take it from there, or detach it"
            )
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
