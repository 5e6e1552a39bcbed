"""What qpsolvers calls, and the tables in which it finds it."""

from __future__ import annotations

import functools
import re
import time
from typing import Any

import numpy as np
import qpsolvers
from qpsolvers import solvers as _tables

import onestep
from onestep._core import ProgramSolution, Solver, Status
from onestep._errors import MisuseError
from onestep.qpsolvers._problem import DENSE_LIMIT, Floats, ParamError, Program
from onestep.qpsolvers._solution import Ended, Solution

NAME = "onestep"
_NAMES = {"Q": "P", "u": "h", "lo": "lb", "hi": "ub"}
_OPTIONS = ("tolerance", "max_iterations", "time_limit")


def solve_problem(
    problem: qpsolvers.Problem,
    initvals: Any = None,
    verbose: bool = False,
    *,
    estimator: Any = None,
    certificate: Any = None,
    dense_limit: int = DENSE_LIMIT,
    **options: Any,
) -> Solution:
    """Solves a problem of qpsolvers by the interior point method of `onestep.solve_qp`.

    >>> solution = onestep.qpsolvers.solve_problem(problem, tolerance=1e-6)
    >>> solution.found, solution.extras["status"], solution.x

    P is read as (P + P')/2, which has the same objective. `initvals` is where to start: x, or a tuple of x, y, z and z_box
    as an earlier solution has them. `options` are those of `onestep.solve_qp`: tolerance, max_iterations, time_limit. Sparse
    matrices are written out, up to `dense_limit` entries of P, G and A together. `estimator` is how the solution is
    differentiated, implicitly by default.

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
        solver = differentiable_solver(estimator)
        ended = (start and _solved_from(start, solver.with_options(**options), program)) or _solved(program, options)
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
    else:
        solution.extras |= _about_failure(ended, solver, program)
    solution._ended, solution._program, solution._solver = ended, program.kept(), solver
    if verbose:
        print(
            f"onestep: {ended.status.name} in {ended.iterations} iterations, objective {solution.obj}. {ended.message}"
        )
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
                f"[qpsolvers] onestep has no option {name!r}; there are {known}, estimator, certificate and dense_limit"
            )


@functools.cache
def _implicit() -> Solver:
    return onestep.quadratic_program(estimator=onestep.Implicit())


def differentiable_solver(estimator: Any) -> Solver:
    return _implicit() if estimator is None else onestep.quadratic_program(estimator=estimator)


def _solved(program: Program, options: dict[str, Any]) -> Ended:
    """Residuals and the gap are what the tolerance is about. A solve that can be differentiated at its last step also waits
    for that step to be short, which it need not become where the solution is not unique."""
    s: ProgramSolution = onestep.solve_qp(**program.parts(), **options)
    return Ended(s.status, _message(s.status, s.about), s.iterations, (s.x, s.y, s.z, s.bound_multipliers))


def _solved_from(start: tuple[Floats, ...], solver: Solver, program: Program) -> Ended | None:
    """None where that did not end at a solution: the start is then no good."""
    s = solver.solve(*program.data(), start=start)
    if not s.status.is_solution:
        return None
    x, y, z, z_box = s.state
    return Ended(s.status, _message(s.status, ""), s.statistics.iterations, (x, y, z, z_box))


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


def _about_failure(ended: Ended, solver: Solver, program: Program) -> dict[str, Any]:
    if ended.status in (Status.iteration_limit, Status.time_limit):
        return {"last": dict(zip(("x", "y", "z", "z_box"), ended.state))}
    if ended.status not in (Status.infeasible, Status.unbounded):
        return {}
    again = solver.solve(*program.data())
    try:
        proof = again.proof if again.status is ended.status else ()
    except MisuseError:  # a bound above another, a row of zeros: the message names it
        proof = ()
    if not proof:
        return {}
    if ended.status is Status.unbounded:
        return {"proof": {"direction": proof[0]}}
    return {"proof": dict(zip(("y", "z", "z_box"), proof[1:]))}


def _message(status: Status, about: str) -> str:
    """With the names of qpsolvers."""
    text = status.explanation.replace("Solution::proof()", 'extras["proof"]')
    if status is Status.infeasible and about:
        text = "No point satisfies all constraints: bounds cross, or a row of zeros has to be another number"
    about = re.sub(r"^(Q|u|lo|hi)\b", lambda found: _NAMES[found[0]], about)
    return f"{text.rstrip('.')}: {about}" if about else text
