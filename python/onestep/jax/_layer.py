"""A solver of onestep, whose function is NumPy, inside of JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onestep import _core
from onestep._core import Certificate
from onestep._errors import MisuseError
from onestep.jax._arrays import Dtype, as_double, check_x64, checked_dtype, converted, dtype_of, is_traced
from onestep.jax._primitives import solve_p
from onestep.jax._problem import Layout, Problem, Shape
from onestep.jax._solver import Solved, certified, check_choices


_RUNS_JAX = (
    "its step is a JAX function that is not traced, and a compiled function would wait for the step, which needs the threads "
    "that wait: call the layer outside of jit, scan and while_loop (grad, vmap and hessian need none of them), or use "
    "onestep.jax.fixed_point, which traces the step"
)


class Layer:
    """A solver as a function of its parameters, made by `layer`. It may be called inside of any transformation of JAX."""

    def __init__(
        self,
        solver: _core.Solver | Callable[[], _core.Solver],
        axes: Sequence[int] | None = None,
        *,
        start: Any = None,
        estimator: Any = None,
        on_error: str = "raise",
        dtype: Dtype = np.float64,
        name: str = "layer",
    ) -> None:
        made = solver if isinstance(solver, _core.Solver) or not callable(solver) else solver()
        if not isinstance(made, _core.Solver):
            raise MisuseError(f"[{name}] a Solver, or a function that returns one, is needed, not {made!r}")
        check_choices(name, estimator, on_error)
        if axes is not None and not all(isinstance(a, int) and 0 <= a <= 2 for a in axes):
            raise MisuseError(
                f"[{name}] axes says how many axes each parameter of one problem has, 0, 1 or 2; it is {axes!r}"
            )
        self.name = name
        self.solver: _core.Solver = made if start is None else made.from_(_numpy(start))  # type: ignore[attr-defined]
        self.axes = None if axes is None else tuple(axes)
        self.estimator = estimator
        self.on_error = on_error
        self.dtype = checked_dtype(name, dtype)

    def __call__(self, *theta: Any) -> jax.Array:
        """The first part of the state: x."""
        return self.solve(*theta).x  # type: ignore[no-any-return]

    def solve(self, *theta: Any) -> Solved:
        """All parts of the state, and the status of each problem."""
        return self.solve_like(theta, theta)

    def solve_like(self, theta: Sequence[Any], like: Sequence[Any]) -> Solved:
        """The same, where dtype="input" means that of the arrays among `like`."""
        problem, inputs, layout, batch = self._prepared(theta)
        *state, status = solve_p.bind(*inputs, problem=problem, layout=layout)
        dtype = dtype_of(like, self.dtype)
        parts = tuple(converted(part.reshape((*batch, *part.shape[1:])), dtype) for part in state)
        return Solved(parts[0], parts, status.reshape(batch))

    def certificate(self, *theta: Any, cotangent: Any = None, tangent: Any = None) -> Certificate:
        """How wrong the derivative of one problem can be that reverse mode returns for this cotangent of x (a tuple: of the
        parts of the state), or that forward mode returns for this tangent of the parameters (a tuple where there are several).
        It solves again, outside of jit."""
        if is_traced(jax.tree.leaves((theta, cotangent, tangent))):
            raise MisuseError(f"[{self.name}] a certificate needs numbers: ask for it outside of jit and of transformations")
        problem, inputs, _, batch = self._prepared(theta)
        if batch:
            raise MisuseError(f"[{self.name}] a certificate is of one problem, not of a batch of shape {batch}")
        return certified(problem, inputs, cotangent, tangent)

    def _prepared(self, theta: Sequence[Any]) -> tuple[Problem, list[Any], Layout, Shape]:
        check_x64(self.name)
        if not theta:
            raise MisuseError(f"[{self.name}] a layer is called with the parameters of its problem")
        inputs = [as_double(self.name, f"parameter {i}", t, self.dtype) for i, t in enumerate(theta)]
        axes = self.axes if self.axes is not None else tuple(t.ndim for t in inputs)
        if len(inputs) != len(axes):
            raise MisuseError(f"[{self.name}] {len(inputs)} parameters given, axes={axes} are for {len(axes)}")
        for i, (t, a) in enumerate(zip(inputs, axes)):
            if t.ndim < a or a > 2:
                needed = f"one problem's has {a} axes" if t.ndim < a else "parameters have at most two axes; see axes="
                raise MisuseError(f"[{self.name}] parameter {i} has shape {tuple(t.shape)}, {needed}")
        extra = [t.ndim - a for t, a in zip(inputs, axes)]
        try:
            batch = tuple(int(n) for n in np.broadcast_shapes(*(t.shape[:e] for t, e in zip(inputs, extra))))
        except ValueError as error:
            shapes = ", ".join(str(tuple(t.shape[:e])) for t, e in zip(inputs, extra))
            raise MisuseError(f"[{self.name}] the parameters' batches do not fit each other: {shapes}") from error
        count = math.prod(batch)
        of_one: list[Shape] = [tuple(t.shape[e:]) for t, e in zip(inputs, extra)]
        whole = [
            jnp.broadcast_to(t, (*batch, *s)).reshape((count, *s)) if e else t for t, e, s in zip(inputs, extra, of_one)
        ]
        return self._problem(of_one), whole, Layout(tuple(e > 0 for e in extra), count), batch

    def _problem(self, theta: list[Shape]) -> Problem:
        """Made anew: the solver's function is asked for its data in each trace."""
        state = self._state(theta)
        core = _core.prepared_problems(self.name, self.solver, self.estimator, self.on_error, [], theta, state)
        why = _RUNS_JAX if _core.runs_jax(self.solver) else ""
        return Problem(
            self.name, self.solver, self.on_error, [], theta, state, core, self.estimator, lambda: self.solver, why
        )

    def _state(self, theta: list[Shape]) -> list[Shape]:
        trial = self.solver.with_options(max_iterations=1, callback=None)
        return [part.shape for part in trial.solve(*(np.ones(shape) for shape in theta)).state]

    def __repr__(self) -> str:
        text = "".join(f", {k}={v}" for k, v in (("axes", self.axes), ("estimator", self.estimator)) if v is not None)
        return f"<onestep.jax.{self.name}({self.solver!r}{text})>"


def _numpy(start: Any) -> Any:
    return tuple(_numpy(part) for part in start) if isinstance(start, tuple) else np.asarray(start, np.float64)


def layer(
    solver: _core.Solver | Callable[[], _core.Solver],
    axes: Sequence[int] | None = None,
    *,
    start: Any = None,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
) -> Layer:
    """A solver whose function is NumPy as a function of its parameters that JAX transforms and differentiates.

    >>> simplex = lambda c: {"Q": onestep.eye(3), "q": -c, "A": np.ones((1, 3)), "b": np.ones(1), "lo": 0.0}
    >>> project = onestep.jax.layer(onestep.quadratic_program(simplex), axes=(1,))
    >>> jax.grad(lambda c: project(c).sum())(jnp.ones((64, 3)))

    `axes` says how many axes each parameter of one problem has: whatever it has in front of these is a batch. Without it a call
    is one problem, and batches are made by jax.vmap. `start` is where solves begin, where the solver needs a start and has
    none. `estimator`, `on_error` and `dtype` are those of `newton`.

    What the solver's function closes over is read when the layer is traced: a compiled function keeps it.
    """
    return Layer(solver, axes, start=start, estimator=estimator, on_error=on_error, dtype=dtype)
