"""What qpsolvers calls, and the tables in which it finds it."""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import qpsolvers
from qpsolvers import solvers as _tables

import onestep
from onestep._core import Iteration, Solver, Status
from onestep._errors import MisuseError
from onestep.qpsolvers._problem import DENSE_LIMIT, Floats, ParamError, Program
from onestep.qpsolvers._solution import Solution

if TYPE_CHECKING:
    from onestep._core import Estimator

NAME = "onestep"
_NAMES = {"Q": "P", "u": "h", "lo": "lb", "hi": "ub"}
_OPTIONS = ("tolerance", "max_iterations", "time_limit", "callback", "estimator")


def solve_problem(
    problem: qpsolvers.Problem,
    initvals: Any = None,
    verbose: bool = False,
    *,
    certificate: Any = None,
    dense_limit: int = DENSE_LIMIT,
    **options: Any,
) -> Solution:
    """Solves a problem of qpsolvers by the interior point method of `onestep.quadratic_program`.

    >>> solution = onestep.qpsolvers.solve_problem(problem, tolerance=1e-6)
    >>> solution.found, solution.extras["status"], solution.x

    P is read as (P + P')/2, which has the same objective. `initvals` is where to start: x, or a tuple of x, y, z and z_box
    as an earlier solution has them. `options` are those of `onestep.quadratic_program`: tolerance, max_iterations,
    time_limit, callback and estimator, which is Implicit() by default: derivatives are then as accurate after a warm start
    as after any other solve. Sparse matrices are written out, up to `dense_limit` entries of P, G and A together.

    What is found has x, y, z, z_box and obj; of a problem that was not solved these are None. `extras` has the status, its
    message and the number of iterations; the certificate of vjp(c), where `certificate=c` asks for it; the "proof" that a
    problem is infeasible (multipliers of its constraints that contradict each other) or unbounded (a direction), where it
    has one; and "last", the last point of a solve that ran into a limit.
    """
    begin = time.perf_counter()
    program = Program(problem, dense_limit)
    solver = _solver(verbose, options)
    start = None if initvals is None else _start(initvals, program)
    ready = time.perf_counter()
    solved = solver.solve(*program.data(), start=start)
    end = time.perf_counter()

    solution = Solution(problem)
    solution.build_time, solution.solve_time = ready - begin, end - ready
    solution.found = solved.status.is_solution
    solution.extras = {"status": solved.status, "message": _message(solved), "iterations": solved.statistics.iterations}
    if solution.found:
        solution.x, solution.y, solution.z, box = solved.state
        solution.z_box = box if problem.lb is not None or problem.ub is not None else np.zeros(0)
        solution.obj = program.objective(solution.x)
    else:
        solution.extras |= _about_failure(solved)
    solution._solved, solution._shapes = solved, tuple(part.shape for part in program.data())
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


def _solver(verbose: bool, options: dict[str, Any]) -> Solver:
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ParamError(
                f"[qpsolvers] onestep has no option {name!r}; there are {known}, certificate and dense_limit"
            )
    if verbose:
        options = {**options, "callback": _printing(options.get("callback"))}
    try:
        if all(type(value) in (float, int) for value in options.values()):
            return _solver_of_numbers(**options)
        return onestep.quadratic_program(**{"estimator": onestep.Implicit(), **options})
    except (MisuseError, TypeError) as error:
        raise ParamError(str(error)) from error


@functools.lru_cache(maxsize=16)
def _solver_of_numbers(**options: float) -> Solver:
    return onestep.quadratic_program(estimator=onestep.Implicit(), **options)


def _printing(callback: Any) -> Any:
    def print_and_ask(i: Iteration) -> Any:
        print(f"onestep {i.number:4d}: objective {i.value:.9e}, largest relative residual {i.step:.2e}")
        return True if callback is None else callback(i)

    return print_and_ask


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


def _about_failure(solved: onestep.Solution) -> dict[str, Any]:
    x, y, z, z_box = solved.state
    if solved.status in (Status.iteration_limit, Status.time_limit, Status.cancelled):
        return {"last": {"x": x, "y": y, "z": z, "z_box": z_box}}
    if solved.status not in (Status.infeasible, Status.unbounded):
        return {}
    try:
        proof = solved.proof
    except MisuseError:  # a bound above another, a row of zeros: the message names it
        return {}
    if solved.status is Status.unbounded:
        return {"proof": {"direction": proof[0]}}
    return {"proof": dict(zip(("y", "z", "z_box"), proof[1:]))}


def _message(solved: onestep.Solution) -> str:
    """With the names of qpsolvers."""
    text = solved.message
    if solved.status is Status.infeasible and text.endswith("]"):
        about = text[text.rindex("[") :]
        text = f"No point satisfies all constraints: bounds cross, or a row of zeros has to be another number {about}"
    text = text.replace("Solution::proof()", 'extras["proof"]')
    return re.sub(r"\[(Q|u|lo|hi), entry", lambda found: f"[{_NAMES[found[1]]}, entry", text)
