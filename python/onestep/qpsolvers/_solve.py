"""What qpsolvers calls, and the tables in which it finds it."""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import qpsolvers
from qpsolvers import solvers as _tables

import onestep
from onestep._core import Iteration, Solver, Status
from onestep._errors import MisuseError
from onestep.qpsolvers._problem import DENSE_LIMIT, Floats, ParamError, Program
from onestep.qpsolvers._solution import Ended, Solution

NAME = "onestep"
_NAMES = {"Q": "P", "u": "h", "lo": "lb", "hi": "ub"}
_OPTIONS = ("tolerance", "max_iterations", "time_limit")
_TOLERANCE = 1e-9
# Of a solve that waits for short steps: residuals may be small, or may become small where nothing else is asked for.
_UNDECIDED = (Status.cancelled, Status.iteration_limit, Status.line_search_failed, Status.singular)
_PATIENCE = 20  # iterations whose residuals are small enough before it is given up that steps become short


def solve_problem(
    problem: qpsolvers.Problem,
    initvals: Any = None,
    verbose: bool = False,
    *,
    short_steps: bool = True,
    estimator: Any = None,
    certificate: Any = None,
    dense_limit: int = DENSE_LIMIT,
    **options: Any,
) -> Solution:
    """Solves a problem of qpsolvers by the interior point method of `onestep.quadratic_program`.

    >>> solution = onestep.qpsolvers.solve_problem(problem, tolerance=1e-6)
    >>> solution.found, solution.extras["status"], solution.x

    P is read as (P + P')/2, which has the same objective. `initvals` is where to start: x, or a tuple of x, y, z and z_box
    as an earlier solution has them. `options` are tolerance, max_iterations and time_limit. Sparse matrices are written
    out, up to `dense_limit` entries of P, G and A together. `estimator` is how the solution is differentiated, implicitly by
    default.

    The tolerance is of the residuals and the duality gap, which say little of x where strict complementarity fails or its
    entries differ in size. So the solve goes on until its last step is short in every entry of x, as far as that can be had.
    With short_steps=False it does not, as solvers in general do not: it takes fewer iterations.

    What is found has x, y, z, z_box and obj; of a problem that was not solved these are None. `extras` has the status, its
    message and the number of iterations; the certificate of vjp(c), where `certificate=c` asks for it; the "proof" that a
    problem is infeasible (multipliers of its constraints that contradict each other) or unbounded (a direction), where it
    has one; and "last", the last point of a solve that ran into a limit.
    """
    begin = time.perf_counter()
    program = Program(problem, dense_limit)
    _check_options(options)
    start = None if initvals is None else _start(initvals, program)
    ready = time.perf_counter()
    try:
        ended = _solved(program, start, estimator, short_steps, options)
    except (MisuseError, TypeError) as error:
        raise ParamError(str(error)) from error
    end = time.perf_counter()

    solution = Solution(problem)
    solution.build_time, solution.solve_time = ready - begin, end - ready
    solution.found = ended.status.is_solution
    solution.extras = {"status": ended.status, "message": ended.message, "iterations": ended.iterations}
    if solution.found:
        solution.x, solution.y, solution.z, box = ended.state
        solution.z_box = box if problem.lb is not None or problem.ub is not None else np.zeros(0)
        solution.obj = program.objective(solution.x)
    elif ended.status in (Status.iteration_limit, Status.time_limit):
        solution.extras["last"] = dict(zip(("x", "y", "z", "z_box"), ended.state))
    elif proof := _proof(ended):
        solution.extras["proof"] = proof
    solution._ended = ended
    if verbose:
        how = f"{ended.status.name} in {ended.iterations} iterations"
        print(f"onestep: {how}, objective {solution.obj}: {ended.message}")
    if certificate is not None and solution.found:
        solution.extras["certificate"] = solution.certificate(certificate)
    return solution


def solve_qp(
    P: Any,
    q: Any,
    G: Any = None,
    h: Any = None,
    A: Any = None,
    b: Any = None,
    lb: Any = None,
    ub: Any = None,
    initvals: Any = None,
    verbose: bool = False,
    **options: Any,
) -> Floats | None:
    """The x of `solve_problem`, or None where there is none. Arrays may be lists.

    >>> x = onestep.qpsolvers.solve_qp(P, q, G, h)
    """
    parts: list[Any] = [
        part if part is None or hasattr(part, "ndim") else np.asarray(part) for part in (P, q, G, h, A, b, lb, ub)
    ]
    solution = solve_problem(qpsolvers.Problem(*parts), initvals, verbose, **options)
    return solution.x if solution.found else None


def register() -> None:
    """Makes "onestep" a name that qpsolvers knows, among its solvers of dense problems; importing this package does it.

    >>> qpsolvers.solve_qp(P, q, G, h, solver="onestep")
    """
    _tables.solve_function[NAME] = solve_problem
    for table in (_tables.available_solvers, _tables.dense_solvers):
        if NAME not in table:
            table.append(NAME)


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ParamError(
                f"[qpsolvers] onestep has no option {name!r}; there are {known}, short_steps, estimator, certificate and "
                "dense_limit"
            )


def _solved(
    program: Program, start: tuple[Floats, ...] | None, estimator: Any, short_steps: bool, options: dict[str, Any]
) -> Ended:
    """Until the last step is short; where steps do not become short, as they need not where the solution is not unique,
    small residuals are enough."""
    solver = _solver(estimator, options)
    iterations = 0
    if short_steps or start is not None:
        ended = _with_short_steps(program, start, solver)
        if ended.status not in _UNDECIDED:
            return ended
        iterations = ended.iterations
    r = onestep.solve_qp(**program.parts(), **options)
    if r.status in (Status.infeasible, Status.unbounded):  # which has a proof there
        again = _with_short_steps(program, None, solver)
        if again.status is r.status:
            return again
    message = _message(r.status, f"{r.status.explanation} [{r.about}]" if r.about else r.status.explanation)
    state = (r.x, r.y, r.z, r.bound_multipliers)
    return Ended(r.status, message, iterations + r.iterations, state, None, program.kept(), solver)


def _with_short_steps(program: Program, start: tuple[Floats, ...] | None, solver: Solver) -> Ended:
    s = solver.solve(*program.data(), start=start)
    x, y, z, z_box = s.state
    return Ended(s.status, _message(s.status, s.message), s.statistics.iterations, (x, y, z, z_box), s, None, solver)


def _solver(estimator: Any, options: dict[str, Any]) -> Solver:
    if estimator is None and all(type(value) in (float, int) for value in options.values()):
        return _solver_of_numbers(**options)
    return _new_solver(estimator, options)


@functools.lru_cache(maxsize=16)
def _solver_of_numbers(**options: float) -> Solver:
    return _new_solver(onestep.Implicit(), options)


def _new_solver(estimator: Any, options: dict[str, Any]) -> Solver:
    return onestep.quadratic_program(
        estimator=estimator, callback=_patient(options.get("tolerance", _TOLERANCE)), **options
    )


def _patient(tolerance: float) -> Callable[[Iteration], bool]:
    """A callback that stops a solve whose residuals are small enough while its steps stay long."""
    small = threading.local()

    def goes_on(i: Iteration) -> bool:
        before = 0 if i.number <= 1 else getattr(small, "count", 0)
        small.count = before + (i.step <= tolerance)
        return bool(small.count <= _PATIENCE)

    return goes_on


def _start(initvals: Any, program: Program) -> tuple[Floats, ...]:
    sizes = (program.q.size, program.b.size, program.h.size, program.q.size)
    given = initvals if isinstance(initvals, tuple) else (initvals,)
    if len(given) not in (1, 4):
        raise ParamError(f"[qpsolvers] initvals has {len(given)} parts; it is x, or a tuple of x, y, z and z_box")
    parts = [np.zeros(size) for size in sizes]
    for i, (value, name) in enumerate(zip(given, ("x", "y", "z", "z_box"))):
        part = np.asarray(value, dtype=np.float64).ravel()
        if part.size == 0 and name == "z_box":
            continue  # of a problem without bounds
        if part.size != sizes[i] or not np.isfinite(part).all():
            raise ParamError(f"[qpsolvers] initvals: {name} needs {sizes[i]} finite entries, it is {value!r}")
        parts[i] = part
    return tuple(parts)


def _proof(ended: Ended) -> dict[str, Floats]:
    if ended.status not in (Status.infeasible, Status.unbounded) or ended.solved is None:
        return {}
    try:
        proof = ended.solved.proof
    except MisuseError:  # a bound above another, a row of zeros: the message names it
        return {}
    if ended.status is Status.unbounded:
        return {"direction": proof[0]}
    return dict(zip(("y", "z", "z_box"), proof[1:]))


def _message(status: Status, text: str) -> str:
    """With the names of qpsolvers."""
    if status is Status.infeasible and text.endswith("]"):
        about = text[text.rindex("[") :]
        text = f"No point satisfies all constraints: bounds cross, or a row of zeros has to be another number {about}"
    text = text.replace("the solution's proof", 'extras["proof"]')
    return re.sub(r"\[(Q|u|lo|hi)\b", lambda found: f"[{_NAMES[found[1]]}", text)
