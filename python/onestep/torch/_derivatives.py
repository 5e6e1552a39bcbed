"""First and second derivatives of a layer, on NumPy's arrays in the layout of _problems."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import onestep
from onestep._core import Expr, KStep, ManySolutions, Solution, Solver, Status
from onestep._errors import MisuseError, NoDerivativeError, NotConvergedError
from onestep.torch._problems import Array, Problems, failed_of, one_of


def vjp(
    problems: Problems,
    c: Sequence[Array],
    theta: Sequence[Array],
    state: Sequence[Array],
    batched: tuple[bool, ...],
    needed: Sequence[bool],
    each: Sequence[bool],
) -> list[Array]:
    """(dx/dtheta)^T c for the parameters that are `needed`: for each problem where `each` or `batched`, else the sum."""
    directions, count = c[0].shape[:2]
    apart = [e or b for e, b in zip(each, batched)]
    shapes = [(count,) * a + t.shape[b:] for t, a, b in zip(theta, apart, batched)]
    out = [np.zeros((directions, *shape)) for shape in shapes]
    if count > 0 and directions > 0:
        solutions = problems.again(theta, state, batched, count)
        one_by_one = any(n and e and not b for n, e, b in zip(needed, each, batched))
        for k in range(directions):
            gradients = _vjp(problems, solutions, [part[k] for part in c], theta, batched, one_by_one)
            for result, a, gradient in zip(out, apart, gradients):
                # A parameter that is shared comes with an axis of problems only where they were differentiated one by one.
                result[k] = gradient if a or gradient.ndim < result.ndim else gradient.sum(axis=0)
    return [result for result, n in zip(out, needed) if n]


def jvp(
    problems: Problems,
    v: Sequence[Array],
    theta: Sequence[Array],
    state: Sequence[Array],
    batched: tuple[bool, ...],
    given: Sequence[bool],
) -> list[Array]:
    """(dx/dtheta) v, where `given` says which parameters have a tangent in v; that of the others is zero."""
    directions, count = v[0].shape[:2]
    out = [np.zeros((directions, *part.shape)) for part in state]
    if count == 0 or directions == 0:
        return out
    solutions = problems.again(theta, state, batched, count)
    moved = iter(v)
    tangents = [
        next(moved) if g else np.broadcast_to(0.0, (directions, count, *t.shape[b:]))
        for t, g, b in zip(theta, given, batched)
    ]
    for k in range(directions):
        for result, part in zip(out, _jvp(problems, solutions, [t[k] for t in tangents], state)):
            result[k] = part
    return out


def second(
    problems: Problems,
    c: Sequence[Array],
    v: Sequence[Array],
    theta: Sequence[Array],
    batched: tuple[bool, ...],
    given: Sequence[bool],
    needed: Sequence[bool],
) -> list[Array]:
    """The gradient of <c, (dx/dtheta) v> by the parameters that are `needed`, for each problem. Only those that are `given`
    have a tangent in v."""

    def gradients(x: Expr, theta: Sequence[Expr], of_one: Sequence[Expr]) -> tuple[Expr, ...]:
        along = _moved(x, theta, of_one[1:], given)
        total: Any = np.sum(of_one[0] * along)
        return tuple(onestep.grad(total, t) for t, n in zip(theta, needed) if n)

    shapes = [t.shape[b:] for t, b, n in zip(theta, batched, needed) if n]
    return _traced(problems, [_joined(c), *v], 1, theta, batched, gradients, shapes)


def second_jvp(
    problems: Problems,
    v: Sequence[Array],
    w: Sequence[Array],
    theta: Sequence[Array],
    state: Sequence[Array],
    batched: tuple[bool, ...],
    given: Sequence[bool],
    given_to_w: Sequence[bool],
) -> list[Array]:
    """How (dx/dtheta) v moves when theta moves along w."""
    middle = sum(given)

    def moved_twice(x: Expr, theta: Sequence[Expr], of_one: Sequence[Expr]) -> tuple[Expr, ...]:
        along = _moved(x, theta, of_one[:middle], given)
        return (_moved(along, theta, of_one[middle:], given_to_w),)

    parts = [part.shape[1:] for part in state]
    shape = parts[0] if len(parts) == 1 else (sum(int(np.prod(part)) for part in parts),)
    (joined,) = _traced(problems, [*v, *w], middle, theta, batched, moved_twice, [shape])
    if len(parts) == 1:
        return [joined]
    cuts = np.cumsum([int(np.prod(part)) for part in parts])[:-1]
    return [p.reshape(*joined.shape[:2], *part) for p, part in zip(np.split(joined, cuts, axis=2), parts)]


def _all_parts(parts: Any) -> list[Array]:
    return list(parts) if isinstance(parts, tuple) else [parts]


def _together(
    problems: Problems, solutions: Solution | ManySolutions, of: list[Array], derive: Callable[[ManySolutions], Any]
) -> list[Array] | None:
    """The derivatives of all problems at once; None where they have to be looked at one by one."""
    if not isinstance(solutions, ManySolutions):
        return None
    if problems.on_error == "raise":
        return _all_parts(derive(solutions))
    if failed_of(solutions) or not all(np.isfinite(d).all() for d in of):
        return None
    try:
        return _all_parts(derive(solutions))
    except NoDerivativeError:
        return None


def _vjp(
    problems: Problems,
    solutions: Solution | ManySolutions,
    c: list[Array],
    theta: Sequence[Array],
    batched: tuple[bool, ...],
    one_by_one: bool,
) -> list[Array]:
    if not one_by_one:
        gradients = _together(problems, solutions, c, lambda many: many.vjp(tuple(c)))
        if gradients is not None:
            return gradients
    return _each(problems, solutions, c, lambda s, of_one: s.vjp(of_one), [t.shape[b:] for t, b in zip(theta, batched)])


def _jvp(
    problems: Problems, solutions: Solution | ManySolutions, v: list[Array], state: Sequence[Array]
) -> list[Array]:
    parts = _together(problems, solutions, v, lambda many: many.jvp(tuple(v)))
    if parts is not None:
        return parts
    return _each(problems, solutions, v, lambda s, of_one: s.jvp(of_one), [part.shape[1:] for part in state])


def _each(
    problems: Problems,
    solutions: Solution | ManySolutions,
    directions: list[Array],
    derive: Callable[[Solution, tuple[Array, ...]], Any],
    shapes: list[tuple[int, ...]],
) -> list[Array]:
    """Derivatives of the problems one by one. One that has none gives NaN, or what there is of it, and so does one in a
    direction that is not finite; in a direction that is zero, as that of a problem which a loss leaves out, it gives zero."""
    count = directions[0].shape[0]
    out = [np.zeros((count, *shape)) for shape in shapes]
    for i in range(count):
        of_one = tuple(d[i] for d in directions)
        if not any(np.any(d) for d in of_one):
            continue
        if problems.on_error != "raise" and not all(np.isfinite(d).all() for d in of_one):
            for result in out:
                result[i] = np.nan
            continue
        s = one_of(solutions, i)
        if problems.on_error == "keep":
            s = s.even_if_unconverged()
        try:
            parts = _all_parts(derive(s, of_one))
        except (NotConvergedError, NoDerivativeError):
            if problems.on_error == "raise":
                raise
            parts = [np.full(shape, np.nan) for shape in shapes]
        for result, part in zip(out, parts):
            result[i] = part
    return out


def _joined(parts: Sequence[Array]) -> Array:
    """Of a state with several parts all entries in a row, as a solve inside a traced function returns it."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([part.reshape(*part.shape[:2], int(np.prod(part.shape[2:]))) for part in parts], axis=2)


def _moved(y: Expr, theta: Sequence[Expr], v: Sequence[Expr], given: Sequence[bool]) -> Expr:
    moving = [t for t, g in zip(theta, given) if g]
    total = onestep.jvp(y, moving[0], v[0])
    for t, of_t in zip(moving[1:], v[1:]):
        total = total + onestep.jvp(y, t, of_t)
    return total


def _traced(
    problems: Problems,
    directions: Sequence[Array],
    first: int,
    theta: Sequence[Array],
    batched: tuple[bool, ...],
    of: Callable[[Expr, Sequence[Expr], Sequence[Expr]], tuple[Expr, ...]],
    shapes: Sequence[tuple[int, ...]],
) -> list[Array]:
    """`of`(x, theta, directions), traced with the solve inside it, for each direction of each problem. It is linear in the
    `first` of the directions and in the others: where either are zero, as for a problem which a loss leaves out, it is zero."""
    many, count = directions[0].shape[:2]
    out = [np.zeros((many, count, *shape)) for shape in shapes]
    solver = _twice_differentiable(problems)
    number = len(directions)

    def body(*arguments: Expr) -> tuple[Expr, ...]:
        given, parameters = arguments[:number], arguments[number:]
        return of(solver(*parameters), parameters, given)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = [inspect.Parameter(f"a{i}", kind) for i in range(number + len(theta))]
    body.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    try:
        function = onestep.traced(
            body, *(d.shape[2:] for d in directions), *(t.shape[b:] for t, b in zip(theta, batched))
        )
    except MisuseError as error:
        raise MisuseError(f"[layer] no second derivative: {error}") from error
    for k in range(many):
        for i in range(count):
            of_one = [d[k, i] for d in directions]
            if not any(np.any(d) for d in of_one[:first]) or not any(np.any(d) for d in of_one[first:]):
                continue
            results = function(*of_one, *(t[i] if b else t for t, b in zip(theta, batched)))
            for result, value in zip(out, _all_parts(results)):
                result[k, i] = value
    if problems.on_error == "raise" and not all(np.isfinite(result).all() for result in out):
        raise NoDerivativeError(
            "[layer] the second derivative is not finite: the solution may be degenerate",
            "not finite",
            Status.not_finite,
        )
    return out


def _twice_differentiable(problems: Problems) -> Solver:
    """One step of Newton's method gives first derivatives only; by default a solve inside a traced function makes two."""
    estimator = problems.estimator if isinstance(problems.estimator, KStep) else None
    return problems.solver.with_options(estimator=estimator)
