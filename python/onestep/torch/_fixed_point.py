"""Fixed points of a map that is written in torch, as those of equilibrium models, with the estimators of onestep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.utils._pytree import tree_leaves

from onestep._core import Auto, Certificate, DerivativeReport, Implicit, KStep, OneStep, Status, Unrolled
from onestep._errors import MisuseError
from onestep.torch._ends import Failed
from onestep.torch._equilibrium import Attach, Call, Guard, Iterate, LastStep, Seen
from onestep.torch._iterate import Options
from onestep.torch._point import Point
from onestep.torch._problems import OnError
from onestep.torch._step import Layout, is_transformed, layout_of, make_step

if TYPE_CHECKING:
    from onestep._core import Estimator

_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_AUTO = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-1, torch.bfloat16: 3e-1}


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """What fixed_point found.

    >>> found = onestep.torch.fixed_point(f, z0, (W, x))
    >>> found.z.sum().backward()
    >>> print(found.status, found.report, found.certificate(torch.ones_like(z0)))
    """

    z: Any
    """The fixed point, with its derivative; a tuple where z0 is one."""
    status: Tensor
    """How the solve of each item ended: `onestep.Status(int(status))`. It has the axes of the batch."""
    _call: Call = field(repr=False)
    _layout: Layout = field(repr=False)
    _theta: tuple[Tensor, ...] = field(repr=False)
    _point: tuple[Tensor, Tensor] = field(repr=False)  # z and the state that steps are differentiated from, as rows

    @property
    def converged(self) -> Tensor:
        """Which items ended at a solution."""
        good = [status.value for status in Status if status.is_solution]
        return torch.isin(self.status, torch.tensor(good, device=self.status.device))

    @property
    def iterations(self) -> int:
        """That the loop made, until the last item had ended."""
        return self._call.seen.run.iterations if self._call.seen.run is not None else 0

    @property
    def report(self) -> DerivativeReport | None:
        """How the last derivative of this fixed point was computed, as `met_tolerance` of Auto; None before the first."""
        return self._call.seen.report

    def certificate(self, cotangent: Any) -> Certificate:
        """How wrong the gradient can be that a backward pass computes for this cotangent of z: by all tensors that require one
        and that f depends on, together, in the Euclidean norm. Those that f closes over belong to them.

        It goes to a point nearer to the fixed point, solves the linear system there, and compares: the bound is observed, not
        proven, or refused with a reason. It is about the map as it is written: the items of a batch are one state.

        >>> found.certificate(torch.ones_like(found.z)).bound
        """
        from onestep.torch._certificate import certify

        tensors = (*self._theta, *self._point)
        if any(is_transformed(t) for t in tensors):
            raise MisuseError("[fixed_point] a certificate is asked for outside of transforms of torch.func")
        parts = cotangent if self._layout.is_tuple else (cotangent,)
        wanted = self.z if self._layout.is_tuple else (self.z,)
        if not isinstance(parts, tuple) or len(parts) != len(wanted):
            raise MisuseError(f"[fixed_point] the state has {len(wanted)} parts; the cotangent is a tuple of as many")
        for part, like in zip(parts, wanted):
            if not isinstance(part, Tensor) or part.shape != like.shape:
                got = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                raise MisuseError(f"[fixed_point] the cotangent has shape {got}, the state {tuple(like.shape)}")
            if not bool(part.isfinite().all()):
                raise MisuseError("[fixed_point] a cotangent has to be finite")
        like = self._point[0]
        c = self._layout.flat(cotangent).detach().to(device=like.device, dtype=like.dtype)
        return certify(self._call, *self._point, self._theta, c)


def fixed_point(
    f: Callable[..., Any],
    z0: Any,
    params: Any = (),
    estimator: Estimator | None = None,
    *,
    batch_axes: int | None = None,
    tolerance: float | None = None,
    typical_z: float = 0.0,
    max_iterations: int = 1000,
    anderson: int = 0,
    damping: float = 1.0,
    on_error: OnError = "raise",
) -> FixedPoint:
    """The fixed point z = f(z, *params) of a map that is written in torch, with its derivative: an equilibrium model.

    >>> found = onestep.torch.fixed_point(lambda z, W, x: torch.tanh(z @ W + x), torch.zeros(64, 20), (W, x))
    >>> found.z.square().sum().backward()
    >>> cell = Cell()                                      # a module: its parameters get gradients, too
    >>> z = onestep.torch.fixed_point(cell, z0, (x,)).z

    f is evaluated as it is written, on the device and in the dtype of z0. Its parameters are `params`, a tensor or a sequence
    of what f takes after z (tensors, or lists and dicts of them as torch.func.functional_call takes them), and what it closes over: parameters of modules and tensors that carry a derivative are found by looking at what f
    calls, and what cannot be found so is refused. f has to return the same for the same z and parameters. The fixed point
    does not depend on z0, which may be a tuple of tensors: f then takes and returns such a tuple.

    `batch_axes` says how many of the first axes of z0 are a batch: each item then converges by itself, with a scale, a status
    and a linear system of its own. Without it the first axis is the batch, and a z0 with one axis is one state; batch_axes=0
    says that z0 is one state. Items may act on each other (as in a graph, or by batch normalisation): the derivative counts
    that.

    `estimator` is OneStep, KStep, Implicit, or Auto, the default, whose tolerance is 1e-6 in double and 1e-3 in single
    precision. They differentiate the undamped step. Memory does not grow with the number of iterations. Auto and Implicit
    have derivatives of any order in both modes, KStep(K) those of the last K steps, and OneStep first ones alone.

    The loop ends where the step f(z) - z is shorter than `tolerance` times |z| (or `typical_z`, where that is larger), and the
    steps were seen to contract: 1e-10 in double, 1e-5 in single precision. `damping` goes a part of each step; `anderson`
    accelerates by Anderson's method with a memory of so many states.

    `on_error` says what happens to items that do not end at a solution, or whose linear system is singular: "raise" raises
    NotConvergedError and NoDerivativeError, with "nan" their states and derivatives are NaN, and "keep" keeps what there is.
    With the last two an item whose cotangent is zero adds nothing to the gradient of a shared parameter.
    """
    solve = _outside_of_compiled_graphs if torch.compiler.is_compiling() else _solve
    how = (batch_axes, tolerance, typical_z, max_iterations, anderson, damping, on_error)
    found: FixedPoint = solve(f, z0, params, estimator, *how)
    return found


def _solve(
    f: Callable[..., Any],
    z0: Any,
    params: Any,
    estimator: Any,
    batch_axes: int | None,
    tolerance: float | None,
    typical_z: float,
    max_iterations: int,
    anderson: int,
    damping: float,
    on_error: OnError,
) -> FixedPoint:
    layout = layout_of(z0, batch_axes)
    first = z0[0] if layout.is_tuple else z0
    precision = _precision(first)
    how = _checked_estimator(estimator, precision)
    arguments = _arguments(params)
    options = Options(
        tolerance=_checked_tolerance(tolerance, precision),
        typical_z=_at_least("typical_z", typical_z, 0),
        max_iterations=_count("max_iterations", max_iterations, 1),
        anderson=_count("anderson", anderson, 0),
        damping=_checked_damping(damping),
        keep=how.K if isinstance(how, KStep) else 1,
        on_error=on_error,
    )
    if on_error not in ("raise", "nan", "keep"):
        raise MisuseError(f"[fixed_point] on_error is 'raise', 'nan' or 'keep', not {on_error!r}")
    step, theta = make_step(f, z0, arguments, layout)
    carries = torch.is_grad_enabled() and any(t.requires_grad for t in theta)
    call = Call(step, how, options, carries or any(is_transformed(t) for t in theta) or _has_tangent(theta), Seen())
    begin = layout.flat(z0).detach()
    z, start, status = Iterate.apply(call, begin, *(t.detach() for t in theta))
    if torch.is_grad_enabled() and not call.carries and z.numel() > 0:
        Point(step, z, theta, [False] * len(theta))  # refuses what could not be found
    there, bad = _where_to_differentiate(call, begin, z, start, status)
    result = _attached(call, *there, theta, bad)
    if bad is not None:
        result = Failed.apply(result, torch.full_like(z, torch.nan) if on_error == "nan" else z, bad)
    return FixedPoint(layout.state(result), status.reshape(layout.batch), call, layout, tuple(theta), there)


# How many steps are made is not known to a compiler.
_outside_of_compiled_graphs: Any = _disable_dynamo(_solve)


def _attached(call: Call, z: Tensor, start: Tensor, theta: Sequence[Tensor], bad: Tensor | None) -> Tensor:
    out: Tensor
    if isinstance(call.estimator, OneStep):
        out = LastStep.apply(call, z, start, *theta)
    elif isinstance(call.estimator, KStep):
        out = start
        for _ in range(call.estimator.K):
            # What an item that failed would hand on may be NaN although nothing reached it.
            out = call.step(out if bad is None else torch.where(bad[:, None], start, out), theta)
        out = Guard.apply(call, out)
    else:
        out = Attach.apply(call, z, *theta)
    return out


def _where_to_differentiate(
    call: Call, begin: Tensor, z: Tensor, start: Tensor, status: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
    """z and `start`, where the rows of items that failed are such that the others can be differentiated; and which these
    are."""
    if call.options.on_error == "raise":
        return (z, start), None
    if call.options.on_error == "nan":
        good = [s.value for s in Status if s.is_solution]
        bad = ~torch.isin(status, torch.tensor(good, device=status.device))
    else:
        bad = ~(z.isfinite() & start.isfinite()).all(dim=1)
    instead = begin.nan_to_num(0.0, 0.0, 0.0)
    return (torch.where(bad[:, None], instead, z), torch.where(bad[:, None], instead, start)), bad


def _arguments(params: Any) -> list[Any]:
    if isinstance(params, torch.nn.Module):
        raise MisuseError(
            "[fixed_point] params is a module; the parameters of modules that f calls are found by themselves: leave them out"
        )
    if isinstance(params, Tensor):
        params = (params,)
    if isinstance(params, dict) or not isinstance(params, Sequence):
        raise MisuseError(
            f"[fixed_point] params is a {type(params).__name__}; a tensor or a tuple of what f takes after z is needed"
        )
    for i, p in ((i, leaf) for i, p in enumerate(params) for leaf in tree_leaves(p)):
        if isinstance(p, Tensor) and p.layout is not torch.strided:
            raise MisuseError(f"[fixed_point] parameter {i} is a sparse tensor, which is not supported: use .to_dense()")
        if isinstance(p, Tensor) and p.is_complex():
            raise MisuseError(f"[fixed_point] parameter {i} is a tensor of {p.dtype}; one of real numbers is needed")
    return list(params)


def _precision(z: Tensor) -> torch.dtype:
    """Of what f computes: that of the state, or of autocast where that is coarser."""
    device = z.device.type
    if not torch.is_autocast_enabled(device):
        return z.dtype
    return max((z.dtype, torch.get_autocast_dtype(device)), key=lambda dtype: torch.finfo(dtype).eps)


def _has_tangent(theta: Sequence[Tensor]) -> bool:
    if torch.autograd.forward_ad._current_level < 0:
        return False
    return any(torch.autograd.forward_ad.unpack_dual(t).tangent is not None for t in theta)


def _checked_estimator(estimator: Any, dtype: torch.dtype) -> OneStep | KStep | Implicit | Auto:
    if estimator is None:
        return Auto(_AUTO.get(dtype, 1e-1))
    if isinstance(estimator, Unrolled):
        raise MisuseError(
            "[fixed_point] Unrolled keeps all iterates: write the loop and let torch differentiate it, or take KStep(K)"
        )
    if not isinstance(estimator, (OneStep, KStep, Implicit, Auto)):
        raise MisuseError(f"[fixed_point] estimator must be one of onestep's, as onestep.Implicit(), not {estimator!r}")
    if isinstance(estimator, Implicit) and estimator.how == Implicit.How.dense:
        raise MisuseError("[fixed_point] Implicit makes no matrix of a map in torch: leave out how=dense")
    if isinstance(estimator, (Implicit, Auto)) and not 0 < estimator.tolerance < 1:
        raise MisuseError(f"[fixed_point] the estimator's tolerance is {estimator.tolerance}: positive and below 1 is needed")
    if isinstance(estimator, KStep) and estimator.K < 1:
        raise MisuseError(f"[fixed_point] KStep: K = {estimator.K}, at least one step is differentiated")
    return estimator


def _checked_tolerance(tolerance: float | None, dtype: torch.dtype) -> float:
    if tolerance is None:
        return _TOLERANCE.get(dtype, 1e-1)
    if not 0 <= tolerance < 1:
        raise MisuseError(f"[fixed_point] tolerance = {tolerance}: it is relative to |z|, zero or more and below 1")
    return float(tolerance)


def _checked_damping(damping: float) -> float:
    if not 0 < damping <= 1:
        raise MisuseError(f"[fixed_point] damping = {damping}: the part of a step to go is positive and at most 1")
    return float(damping)


def _at_least(name: str, value: float, least: float) -> float:
    if not (value >= least and math.isfinite(value)):
        raise MisuseError(f"[fixed_point] {name} = {value}: it must be finite and at least {least:g}")
    return float(value)


def _count(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MisuseError(f"[fixed_point] {name} = {value!r}: a whole number of at least {least} is needed")
    return value
