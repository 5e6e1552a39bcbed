"""The autograd.Functions of fixed_point: the solve, the derivative of its solution by the linear system I - A, and that of the
last step. All is made of products of the map's derivatives, so that Implicit has derivatives of any order.

Their tensors are states as matrices with a row for each item, and the tensors the map depends on; a level of vmap makes more
items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onestep._core import Auto, DerivativeReport, Implicit, KStep, OneStep, Status
from onestep._errors import MisuseError, NoDerivativeError
from onestep.torch._ends import Once
from onestep.torch._iterate import Options, Run, iterate, not_converged
from onestep.torch._lengths import row_norms
from onestep.torch._point import Point
from onestep.torch._products import differentiable, jvp_of, merged, placed, pullback, pushforward, transposed_times
from onestep.torch._step import Dims, Step, is_transformed
from onestep.torch._systems import Answer, growth, report_of, solve

@dataclass
class Seen:
    """What a forward pass and its derivatives tell: they belong to that pass alone."""

    run: Run | None = None
    step: Step | None = None  # that the run was made with
    report: DerivativeReport | None = None
    no_contraction: str = ""


@dataclass(frozen=True)
class Call:
    """What the functions of one forward pass share."""

    step: Step
    estimator: OneStep | KStep | Implicit | Auto
    options: Options
    carries: bool  # a derivative, where a tensor of it does
    seen: Seen

    def wider(self, number: int, dims: Dims) -> Call:
        """With `number` times as many items."""
        return replace(self, step=self.step.batched(number, dims))

    def answer(self, z: Tensor, theta: Sequence[Tensor], needed: Sequence[bool], b: Tensor, transposed: bool) -> Tensor:
        """The solution of the linear system of derivatives at z."""
        return self.solved(Point(self.step, z, theta, needed), b, transposed).x

    def solved(self, point: Point, b: Tensor, transposed: bool) -> Answer:
        """The same, with how it was found."""
        if torch._C._functorch.is_legacy_batchedtensor(b):
            raise MisuseError(
                "[fixed_point] torch.autograd's own batches of directions (is_grads_batched, vectorize=True) are not "
                "supported: use torch.func.jacrev, jacfwd or vmap"
            )
        assert isinstance(self.estimator, (Implicit, Auto))
        self.refuse_a_changed_map(point)
        slowness = self.seen.run.slowness if self.seen.run is not None else 0.0
        answer = solve(point, transposed, b, self.estimator, slowness)
        self.seen.report = answer.report()
        bad = np.isin(answer.status, (Status.singular.value, Status.iteration_limit.value))
        if bad.any() and self.options.on_error == "raise":
            raise _no_derivative(answer, bad)
        if bad.any() and self.options.on_error == "nan":
            answer.x = torch.where(torch.from_numpy(bad).to(b.device)[:, None], torch.nan, answer.x)
        return answer

    def refuse_a_changed_map(self, point: Point) -> None:
        """Raises MisuseError where the last step of the forward pass is another one now."""
        run = self.seen.run
        if run is None or run.scale is None or self.seen.step is not point.step:
            return
        with torch.no_grad():
            again = point.step(run.states[-1], point.theta)
        (moved,) = row_norms(again - run.z)
        allowed = (self.options.tolerance + 100 * point.step.eps * float(np.sqrt(run.z.shape[1]))) * run.scale
        if bool(np.any(~run.failed & ~(moved <= allowed))):
            raise MisuseError(
                "[fixed_point] f returns another state than in the forward pass: what it closes over has changed since, or it "
                "draws random numbers. Pass what changes between two calls in params"
            )

    def of_steps(self, direction: Tensor) -> Tensor:
        """The direction in which steps are differentiated. Derivatives of steps do not converge to that of the solution where
        steps do not contract."""
        why = self.seen.no_contraction
        if why and self.options.on_error == "raise":
            raise NoDerivativeError(
                f"[fixed_point] {why}; Implicit() needs no contraction, and on_error='keep' returns what was computed",
                why,
                Status.diverged,
            )
        return torch.full_like(direction, torch.nan) if why and self.options.on_error == "nan" else direction


def _no_derivative(answer: Answer, bad: npt.NDArray[np.bool_]) -> NoDerivativeError:
    first = int(np.flatnonzero(bad)[0])
    which = f" of item {first}" if len(bad) > 1 else ""
    status = Status(int(answer.status[first]))
    if status is Status.singular:
        reason = f"the linear system of the derivative{which} is singular, or nearly so"
        way = "The solution may not be unique there"
    else:
        reason = f"the linear system of the derivative{which} was not solved within {answer.products} products"
        way = "Allow more of them, as Implicit(max_iterations=5000), or ask for a larger tolerance"
    reason += f": relative residual {answer.residual:.1e}"
    return NoDerivativeError(
        f"[fixed_point] {reason}. {way}; on_error='nan' or 'keep' goes on", reason, status, answer.residual
    )


class Iterate(torch.autograd.Function):
    """(z0, theta) -> z, the state that steps are differentiated from, and statuses. It carries no derivative."""

    @staticmethod
    def forward(call: Call, z0: Tensor, *theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            run = iterate(call.step, z0, theta, call.options)
        call.seen.run, call.seen.step = run, call.step
        if run.failed.any() and call.options.on_error == "raise":
            raise not_converged(run, call.options)
        if call.carries and isinstance(call.estimator, (OneStep, KStep)):
            call.seen.no_contraction = _no_contraction(call, run, theta)
        start = run.states[0] if call.options.is_plain or isinstance(call.estimator, OneStep) else run.z
        return run.z.clone(), start.clone(), torch.from_numpy(run.status).to(z0.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * (1 + len(ctx.needs_input_grad))

    @staticmethod
    def vmap(info: Any, in_dims: Dims, call: Call, z0: Tensor, *theta: Tensor) -> tuple[Any, Any]:
        wider, rows, moved = _wider(info.batch_size, call, in_dims[1:], [z0], theta)
        return _split(info.batch_size, call.step.items, Iterate.apply(wider, *rows, *moved))


def _no_contraction(call: Call, run: Run, theta: Sequence[Tensor]) -> str:
    """A few iterations that converged are evidence enough; a solve that began at its solution, and a loop that is damped or
    accelerated, have none: there growth is measured."""
    few = 3
    if (call.options.is_plain and run.fewest >= few) or run.failed.any() or run.z.numel() == 0:
        return ""
    rate = growth(Point(call.step, run.z, theta, [False] * len(theta)))
    if rate < 1 - max(1e-7, 1e3 * torch.finfo(run.z.dtype).eps):
        return ""
    return (
        f"the step does not contract at the solution (differences are multiplied by {rate:.10g}), so derivatives of steps do "
        "not converge to that of the solution"
    )


class Attach(torch.autograd.Function):
    """z, with the derivative of the solution: (I - A)^-1 B at z."""

    @staticmethod
    def forward(call: Call, z: Tensor, *theta: Tensor) -> Tensor:
        return z.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.call, _, *theta = inputs
        ctx.save_for_backward(output, *theta)
        ctx.save_for_forward(output, *theta)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        z, *theta = ctx.saved_tensors
        call: Call = ctx.call
        needed = differentiable(theta, ctx.needs_input_grad[2:])
        if not torch.is_grad_enabled() and not any(is_transformed(t) for t in (z, c, *theta)):
            point = Point(call.step, z, theta, needed)
            answer = call.solved(point, c, True)
            found = point.vjp_theta(answer.x)
        else:
            u = Linear.apply(call, True, needed, z, c, *theta)
            found = pullback(call.step, z, theta, needed, u)
        return (None, None, *placed(found, needed))

    @staticmethod
    def jvp(ctx: Any, _0: None, _1: Any, *tangents: Tensor | None) -> Any:
        z, *theta = ctx.saved_tensors
        call: Call = ctx.call
        b = pushforward(call.step, z, theta, tangents)
        if b is None:
            return torch.zeros_like(z)
        return Linear.apply(call, False, (False,) * len(theta), z, b, *theta)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, call: Call, z: Tensor, *theta: Tensor) -> tuple[Any, Any]:
        wider, rows, moved = _wider(info.batch_size, call, in_dims[1:], [z], theta)
        return Attach.apply(wider, *rows, *moved).unflatten(0, (info.batch_size, call.step.items)), 0


class Linear(torch.autograd.Function):
    """(z, b, theta) -> x with (I - A) x = b, or (I - A)^T x = b, where A = dF/dz at z."""

    @staticmethod
    def forward(call: Call, transposed: bool, needed: tuple[bool, ...], z: Tensor, b: Tensor, *theta: Tensor) -> Tensor:
        return call.answer(z, theta, needed, b, transposed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.call, ctx.transposed, ctx.needed, z, _, *theta = inputs
        ctx.save_for_backward(output, z, *theta)
        ctx.save_for_forward(output, z, *theta)

    # From M x = b: M dx = db + dA x, so that <w, dx> = <y, db> + <y, dA x> with M^T y = w; and the same transposed.
    @staticmethod
    def backward(ctx: Any, w: Tensor) -> Any:
        x, z, *theta = ctx.saved_tensors
        call: Call = ctx.call
        y = Linear.apply(call, not ctx.transposed, ctx.needed, z, w, *theta)
        left, right = (x, y) if ctx.transposed else (y, x)
        of_z, of_theta = ctx.needs_input_grad[3], differentiable(theta, ctx.needs_input_grad[5:])
        found = [None] * (1 + len(theta))
        if of_z or any(of_theta):
            wanted = [t for t, n in zip((z, *theta), (of_z, *of_theta)) if n]

            def product(*values: Tensor) -> Tensor:
                z_there, *theta_there = merged((z, *theta), (of_z, *of_theta), values)
                return transposed_times(call.step, z_there, theta_there, left)

            pull: Any = torch.func.vjp(product, *wanted)[1]
            found = placed(pull(right), (of_z, *of_theta))
        return (None, None, None, found[0], y, *found[1:])

    @staticmethod
    def jvp(ctx: Any, _0: None, _1: None, _2: None, z_moves: Tensor | None, b_moves: Tensor | None, *moves: Any) -> Any:
        x, z, *theta = ctx.saved_tensors
        call: Call = ctx.call
        given = (z_moves is not None, *(m is not None for m in moves))
        total = torch.zeros_like(x) if b_moves is None else b_moves
        if any(given):
            values = [t for t, g in zip((z, *theta), given) if g]

            def product(*values: Tensor) -> Tensor:
                z_there, *theta_there = merged((z, *theta), given, values)
                if ctx.transposed:
                    return transposed_times(call.step, z_there, theta_there, x)
                return jvp_of(lambda at: call.step(at, theta_there), (z_there,), (x,), x)

            total = total + jvp_of(product, tuple(values), tuple(m for m in (z_moves, *moves) if m is not None), x)
        return Linear.apply(call, ctx.transposed, ctx.needed, z, total, *theta)

    @staticmethod
    def vmap(
        info: Any, in_dims: Dims, call: Call, transposed: bool, needed: tuple[bool, ...], z: Tensor, b: Tensor, *theta: Tensor
    ) -> tuple[Any, Any]:
        wider, rows, moved = _wider(info.batch_size, call, in_dims[3:], [z, b], theta)
        return Linear.apply(wider, transposed, needed, *rows, *moved).unflatten(0, (info.batch_size, call.step.items)), 0


class LastStep(torch.autograd.Function):
    """z = F(previous), with the derivative of this step alone: B at `previous`."""

    @staticmethod
    def forward(call: Call, z: Tensor, previous: Tensor, *theta: Tensor) -> Tensor:
        return z.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.call, _, previous, *theta = inputs
        ctx.save_for_backward(previous, *theta)
        ctx.save_for_forward(previous, *theta)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        previous, *theta = ctx.saved_tensors
        call: Call = ctx.call
        c = call.of_steps(c)
        needed = differentiable(theta, ctx.needs_input_grad[3:])
        if not torch.is_grad_enabled() and not any(is_transformed(t) for t in (c, *theta)):
            point = Point(call.step, previous, theta, needed)
            call.refuse_a_changed_map(point)
            found: Sequence[Tensor] = point.vjp_theta(c)
        else:
            found = [Once.apply(g, *theta) for g in pullback(call.step, previous, theta, needed, c)]
        call.seen.report = report_of("one step", Status.converged, 0.0, 1, 0, 0, 0, 0, 0.0, True)
        return (None, None, None, *placed(found, needed))

    @staticmethod
    def jvp(ctx: Any, _0: None, _1: Any, _2: Any, *tangents: Tensor | None) -> Any:
        previous, *theta = ctx.saved_tensors
        call: Call = ctx.call
        b = pushforward(call.step, previous, theta, tangents)
        return torch.zeros_like(previous) if b is None else Once.apply(call.of_steps(b), *theta)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, call: Call, z: Tensor, previous: Tensor, *theta: Tensor) -> tuple[Any, Any]:
        wider, rows, moved = _wider(info.batch_size, call, in_dims[1:], [z, previous], theta)
        return LastStep.apply(wider, *rows, *moved).unflatten(0, (info.batch_size, call.step.items)), 0


class Guard(torch.autograd.Function):
    """z by K steps, whose derivative is that of these steps; refused where steps do not contract."""

    @staticmethod
    def forward(call: Call, z: Tensor) -> Tensor:
        return z.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.call = inputs[0]

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        return None, _of_steps(ctx.call, c)

    @staticmethod
    def jvp(ctx: Any, _: None, moved: Tensor) -> Any:
        return _of_steps(ctx.call, moved.clone())

    @staticmethod
    def vmap(info: Any, in_dims: Dims, call: Call, z: Tensor) -> tuple[Any, Any]:
        return Guard.apply(call, z), in_dims[1]


def _of_steps(call: Call, direction: Tensor) -> Tensor:
    assert isinstance(call.estimator, KStep)
    K = call.estimator.K
    call.seen.report = report_of("K steps", Status.converged, 0.0, K, 0, K, 0, 0, 0.0, True)
    return call.of_steps(direction)


def _wider(
    size: int, call: Call, in_dims: Dims, rows: Sequence[Tensor], theta: Sequence[Tensor]
) -> tuple[Call, list[Tensor], list[Tensor]]:
    """A level of vmap as more items: the call for them, states of all items, and what the map depends on."""
    of_rows, of_theta = in_dims[: len(rows)], in_dims[len(rows) :]
    wider = [
        (r.unsqueeze(0).expand(size, *r.shape) if d is None else r.movedim(d, 0)).flatten(0, 1)
        for r, d in zip(rows, of_rows)
    ]
    moved = [t if d is None else t.movedim(d, 0) for t, d in zip(theta, of_theta)]
    return call.wider(size, of_theta), wider, moved


def _split(size: int, items: int, results: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    return tuple(r.unflatten(0, (size, items)) for r in results), (0,) * len(results)
