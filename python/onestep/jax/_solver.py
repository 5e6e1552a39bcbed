"""Solvers of JAX functions: traced by JAX, solved and differentiated by onestep."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onestep import _core
from onestep._core import Auto, Certificate, Expr, Implicit, KStep, Momentum, OneStep, Status, Unrolled
from onestep._errors import MisuseError
from onestep.jax._arrays import Dtype, as_double, check_x64, checked_dtype, converted, dtype_of, is_traced
from onestep.jax._jaxpr import evaluated, with_data_of_its_own
from onestep.jax._keys import Data, key_of
from onestep.jax._primitives import solve_p
from onestep.jax._problem import Layout, Problem, Shape
from onestep.jax._second import traced
from onestep.jax._values import Value, as_expr

_GOOD = [status.value for status in Status if status.is_solution]
_ESTIMATORS = (OneStep, KStep, Implicit, Unrolled, Auto)


class Solved(NamedTuple):
    """What was solved: arrays, so that it can leave a compiled function.

    >>> solved = fit.solve(x0, w)
    >>> solved.x, solved.status, solved.converged
    """

    x: Any
    """The solution, with the structure of the start. Of a quadratic program the minimiser."""
    state: tuple[jax.Array, ...]
    """All parts of the state. Of a quadratic program x and the multipliers of equalities, rows and bounds."""
    status: jax.Array
    """How the solve ended: `onestep.Status(int(status))`."""

    @property
    def converged(self) -> jax.Array:
        """Whether it ended at a solution."""
        return jnp.isin(self.status, jnp.array(_GOOD, self.status.dtype))


@dataclass(frozen=True)
class _Trace:
    """What JAX made of the function for given shapes."""

    jaxpr: Any
    consts: list[Any]
    """Data, or tracers: None for these where the trace is kept, since they belong to the call."""
    outputs: Any
    leaves: int

    @property
    def parameters(self) -> list[Any]:
        """Of another transformation or compiled function, closed over: derivatives go through them, too."""
        return [c for c in self.consts if isinstance(c, jax.core.Tracer)]

    def evaluated(self, arguments: Sequence[Expr]) -> list[Value]:
        more = iter(arguments[self.leaves :])
        consts = [c.array if isinstance(c, Data) else next(more) for c in self.consts]
        return evaluated(self.jaxpr, consts, arguments[: self.leaves])

    @property
    def without_tracers(self) -> _Trace:
        return replace(self, consts=[c if isinstance(c, Data) else None for c in self.consts])


class Solver:
    """A solver of a JAX function, made by newton and its like. It may be called inside of any transformation of JAX.

    >>> fit = onestep.jax.newton(lambda x, w: jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(x**2))
    >>> jax.grad(lambda w: jnp.sum(fit(jnp.zeros(13), w) ** 2))(w)
    """

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        options: dict[str, Any],
        estimator: Any = None,
        on_error: str = "raise",
        dtype: Dtype = np.float64,
    ) -> None:
        if not callable(function):
            raise MisuseError(f"[{kind}] a JAX function is needed here, not an object of type {type(function).__name__}")
        check_choices(kind, estimator, on_error)
        getattr(_core, kind)(lambda x: x, **options)  # names of options are checked now
        self.kind = kind
        self.function = function
        self.options = options
        self.estimator = estimator
        self.on_error = on_error
        self.dtype = checked_dtype(kind, dtype)
        self._takes_start = kind != "quadratic_program"
        momentum = options.get("momentum")
        self._remembers = momentum is not None and momentum.kind != Momentum.Kind.none
        self._problems: OrderedDict[Any, Problem] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        """(x0, *theta) -> the solution x(theta), with the structure of x0. A quadratic program takes theta alone.

        x0 and the parameters are arrays with at most two axes, or trees of them. Where a solve begins has no derivative.
        """
        return self.solve(*arguments).x

    def solve(self, *arguments: Any) -> Solved:
        """The same with all parts of the state, and the status."""
        problem, inputs, structure = self._prepared(arguments)
        return solved_one(problem, inputs, structure, dtype_of(jax.tree.leaves(arguments), self.dtype))

    def certificate(self, *arguments: Any, cotangent: Any = None, tangent: Any = None) -> Certificate:
        """How wrong the derivative can be that reverse mode returns for this cotangent of x, or that forward mode returns for
        this tangent of the parameters (a tuple where there are several). It solves again, outside of jit.

        >>> fit.certificate(x0, w, cotangent=jnp.ones(13))
        """
        if is_traced(jax.tree.leaves((arguments, cotangent, tangent))):
            raise MisuseError(f"[{self.kind}] a certificate needs numbers: ask for it outside of jit and of transformations")
        problem, inputs, _ = self._prepared(arguments)
        return certified(problem, inputs, cotangent, tangent)

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        text = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"<onestep.jax.{self.kind}({name}{text})>"

    # ---- from a call to a problem ----

    def _prepared(self, arguments: Sequence[Any]) -> tuple[Problem, list[Any], Any]:
        """The problem, its inputs, and the structure of x."""
        check_x64(self.kind)
        if self._takes_start and not arguments:
            raise MisuseError(f"[{self.kind}] no start: call it with x0 and the parameters")
        x0, theta = (arguments[0], arguments[1:]) if self._takes_start else ((), arguments)
        leaves, structure = jax.tree.flatten(x0)
        if self._takes_start and not leaves:
            raise MisuseError(f"[{self.kind}] the start has no arrays")
        start = self._named(("x0",), (x0,))
        parameters = self._named([f"parameter {i}" for i in range(len(theta))], theta)
        trace = self._traced(start, structure, parameters, jax.tree.structure(theta))
        # Conditions and whole numbers that are closed over are 0, 1, ... here; what may be done to them the table knows.
        more = [
            c.astype(np.float64) if c.dtype == np.bool_ else as_double(self.kind, "a closed-over array", c, "input")
            for c in trace.parameters
        ]
        for c in more:
            if c.ndim > 2:
                raise MisuseError(
                    f"[{self.kind}] an array of shape {tuple(c.shape)} is closed over that depends on what is transformed or "
                    "compiled; such arrays have at most two axes here"
                )
        shapes = [tuple(v.shape) for v in (*start, *parameters, *more)]
        before = start if self._remembers else []  # the second half of a state with momentum
        return self._problem(trace, len(start), shapes), [*start, *before, *parameters, *more], structure

    def _named(self, names: Sequence[str], trees: Sequence[Any]) -> list[Any]:
        """All leaves as doubles; messages have the way to each."""
        found = []
        for name, tree in zip(names, trees):
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
                whole = name + jax.tree_util.keystr(path)
                array = as_double(self.kind, whole, leaf, self.dtype)
                if array.ndim > 2:
                    raise MisuseError(
                        f"[{self.kind}] {whole} has shape {tuple(array.shape)}; arrays have at most two axes here. A batch of "
                        "problems is made by jax.vmap"
                    )
                found.append(array)
        return found

    def _traced(self, start: Sequence[Any], structure: Any, parameters: Sequence[Any], of_theta: Any) -> _Trace:
        number = len(start)

        def flat(*leaves: Any) -> Any:
            x = (jax.tree.unflatten(structure, leaves[:number]),) if self._takes_start else ()
            return self.function(*x, *jax.tree.unflatten(of_theta, leaves[number:]))

        leaves = [*start, *parameters]
        shapes = [jax.ShapeDtypeStruct(v.shape, np.float64) for v in leaves]
        closed, outputs = jax.make_jaxpr(flat, return_shape=True)(*shapes)
        consts = [c if isinstance(c, jax.core.Tracer) else Data(c) for c in closed.consts]
        trace = _Trace(with_data_of_its_own(closed.jaxpr), consts, outputs, len(leaves))
        self._check_outputs(trace, structure)
        return trace

    def _check_outputs(self, trace: _Trace, structure: Any) -> None:
        found = trace.outputs
        if self.kind == "quadratic_program":
            if not isinstance(found, dict):
                raise MisuseError("[quadratic_program] the function returns a dict of Q, q, A, b, G, l, u, lo and hi")
        elif self.kind == "fixed_point":
            if jax.tree.structure(found) != structure:
                raise MisuseError(
                    f"[fixed_point] the step returns {jax.tree.structure(found)}, x0 is {structure}: it takes x and returns the "
                    "next x"
                )
        elif self.kind != "newton_root" and getattr(found, "shape", None) != ():
            raise MisuseError(f"[{self.kind}] the objective returns {_text_of(found)}: a number is needed, jnp.sum(...)")

    def _problem(self, trace: _Trace, number: int, shapes: list[Shape]) -> Problem:
        """That of an equal trace before, if there is one: what it has prepared serves again."""
        traced_consts = tuple(isinstance(c, jax.core.Tracer) for c in trace.consts)
        data = tuple(c for c in trace.consts if isinstance(c, Data))
        names = tuple(sorted(k for k, v in trace.outputs.items() if v is not None)) if not self._takes_start else ()
        key = (key_of(trace.jaxpr), traced_consts, data, number, tuple(shapes), names)
        with self._lock:
            problem = self._problems.get(key)
            if problem is not None:
                self._problems.move_to_end(key)
                return problem
        problem = self._made(trace.without_tracers, number, shapes, names)
        with self._lock:
            self._problems[key] = problem
            while len(self._problems) > 8:
                self._problems.popitem(last=False)
        return problem

    def _made(self, trace: _Trace, number: int, shapes: list[Shape], names: tuple[str, ...]) -> Problem:
        def body(*arguments: Expr) -> tuple[Expr, ...]:
            return tuple(as_expr(v, self.kind) for v in trace.evaluated(arguments[: len(shapes)]))

        def solver_for(more: list[Shape]) -> _core.Solver:
            function = traced(body, [*shapes, *more])
            if names:
                return _core.program_of_traced(function, list(names), **self.options)
            made: _core.Solver = getattr(_core, self.kind)(function, **self.options)
            return made

        theta = shapes[number:]
        start = shapes[:number] * (2 if self._remembers else 1)

        def renewed() -> _core.Solver:
            if not start:
                return solver_for([])
            from_these = traced(lambda *all_of_them: all_of_them[len(theta) :], [*theta, *start])
            return solver_for(list(start)).from_(from_these)  # type: ignore[attr-defined, no-any-return]

        solver = solver_for([])
        state = list(start) if start else _program_shapes(names, trace)
        core = _core.prepared_problems(self.kind, solver, self.estimator, self.on_error, start, theta, state)
        return Problem(self.kind, solver, self.on_error, start, theta, state, core, self.estimator, renewed)


def _program_shapes(names: Sequence[str], trace: _Trace) -> list[Shape]:
    """Of x and the multipliers of equalities, rows and bounds."""
    found = {name: tuple(trace.outputs[name].shape) for name in names}
    n = next((found[name][-1] for name in ("q", "Q", "lo", "hi", "A", "G") if found.get(name)), None)
    if n is None:
        raise MisuseError(
            "[quadratic_program] a program has at least Q or q, whose last axis says how many unknowns there are"
        )
    rows = [found[name][0] if len(found.get(name, ())) == 2 else 0 for name in ("A", "G")]
    return [(n,), (rows[0],), (rows[1],), (n,)]


def _text_of(found: Any) -> str:
    shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(found)]
    return f"an array of shape {shapes[0]}" if len(shapes) == 1 else f"{len(shapes)} arrays"


def check_choices(who: str, estimator: Any, on_error: str) -> None:
    if on_error not in ("raise", "nan", "keep"):
        raise MisuseError(f"[{who}] on_error is 'raise', 'nan' or 'keep', not {on_error!r}")
    if estimator is not None and not isinstance(estimator, _ESTIMATORS):
        raise MisuseError(f"[{who}] estimator must be one of onestep's, as onestep.Implicit(), not {estimator!r}")


def solved_one(problem: Problem, inputs: Sequence[Any], structure: Any, dtype: Any) -> Solved:
    layout = Layout((False,) * len(inputs), 1)
    *state, status = solve_p.bind(*inputs, problem=problem, layout=layout)
    parts = tuple(converted(jax.lax.squeeze(part, (0,)), dtype) for part in state)
    x = jax.tree.unflatten(structure, parts[: structure.num_leaves]) if problem.start else parts[0]
    return Solved(x, parts, jax.lax.squeeze(status, (0,)))


def certified(problem: Problem, inputs: Sequence[Any], cotangent: Any, tangent: Any) -> Certificate:
    if (cotangent is None) == (tangent is None):
        raise MisuseError(f"[{problem.name}] a certificate is for a cotangent or for a tangent: give one of them")
    arrays = [np.asarray(v, np.float64) for v in inputs]
    number = len(problem.start)
    start = (tuple(arrays[:number]),) if number else ()
    solution = problem.solver.solve(*start, *arrays[number:], estimator=problem.estimator)
    if cotangent is not None:
        return solution.certificate(_direction(problem, cotangent, problem.state, "cotangent"))
    return solution.certificate_jvp(_direction(problem, tangent, problem.theta, "tangent"))


def _direction(problem: Problem, tree: Any, shapes: Sequence[Shape], what: str) -> tuple[Any, ...]:
    """For each of the shapes; those that are left out are zero."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    if len(leaves) > len(shapes) or any(leaf.shape != shape for leaf, shape in zip(leaves, shapes)):
        found = ", ".join(str(leaf.shape) for leaf in leaves)
        raise MisuseError(f"[{problem.name}] a {what} of shapes {found} is given, needed are {', '.join(map(str, shapes))}")
    return (*leaves, *(np.zeros(shape) for shape in shapes[len(leaves) :]))
