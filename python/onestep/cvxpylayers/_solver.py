"""The interface through which CVXPYlayers solves and differentiates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpylayers.interfaces.base import SolverInterface

from onestep._core import Auto, Implicit, KStep, OneStep, Unrolled
from onestep._errors import MisuseError
from onestep.cvxpylayers import _programs
from onestep.cvxpylayers._canonical import DENSE_LIMIT, Canonical, Floats
from onestep.cvxpylayers._jax import JaxContext
from onestep.cvxpylayers._programs import OnError, Solved

if TYPE_CHECKING:
    from onestep._core import Estimator

_OPTIONS = ("tolerance", "max_iterations", "time_limit", "callback")


class QPSolver(SolverInterface):
    """Solves the quadratic programs of a CvxpyLayer, for PyTorch and JAX, and differentiates their solutions.

    >>> layer = CvxpyLayer(problem, parameters=[A, b], variables=[x], solver=onestep.cvxpylayers.QPSolver())
    >>> (x,) = layer(A, b)

    It takes problems whose canonical form has linear constraints and a convex quadratic objective, with any of the data as
    parameters; a layer whose problem has other cones is refused when it is made. Batches are solved on all threads.

    `estimator` is how solutions are differentiated, one of onestep's. `on_error` says what happens to problems that do not
    end at a solution: "raise" raises SolverError, with "nan" their solutions and gradients are NaN, and "keep" keeps
    whatever there is. `options` are those of onestep.quadratic_program: tolerance, max_iterations, time_limit, callback;
    all of these but dense_limit can be changed for a call of a layer by its `solver_args`. Problems are solved with dense
    matrices, of at most `dense_limit` entries for each.

    Computation is in double precision in the memory of the host. Several layers may share one solver.
    """

    canon_solver = "CLARABEL"  # whose canonical form has a quadratic objective
    supports_quad_obj = True

    def __init__(
        self,
        *,
        estimator: Estimator | None = None,
        on_error: OnError = "raise",
        dense_limit: int = DENSE_LIMIT,
        **options: Any,
    ) -> None:
        _check_on_error(on_error)
        _check_estimator(estimator)
        _check_options(options)
        self.estimator = estimator
        self.on_error: OnError = on_error
        self.dense_limit = dense_limit
        self.options = options

    def __repr__(self) -> str:
        said = {"estimator": self.estimator, **self.options}
        if self.on_error != "raise":
            said["on_error"] = self.on_error
        return f"QPSolver({', '.join(f'{name}={value!r}' for name, value in said.items() if value is not None)})"

    # What CVXPYlayers calls. P, q and A are values of the canonical form, one problem in each row.

    def setup(self, ctx: Any) -> None:
        """Of a layer, once: where the values stand. Raises MisuseError where the problem is no quadratic program."""
        canonical = Canonical(ctx, self.dense_limit)
        # The cones come back with every call for PyTorch: they say which layer it is.
        ctx.cone_dims.onestep = canonical
        ctx.solver_ctx = JaxContext(self, canonical)

    def solve_numpy_batch(
        self, P: Any, q: Any, A: Any, dims: Any, solver_args: dict[str, Any], needs_grad: bool
    ) -> tuple[Floats, Floats, Solved | None]:
        """Minimisers, multipliers, and what the backward pass needs."""
        canonical = getattr(dims, "onestep", None)
        if not isinstance(canonical, Canonical):
            raise MisuseError("[cvxpylayers] no layer has these cones: make one, CvxpyLayer(..., solver=QPSolver())")
        primal, dual, solved = self.solve_canonical(canonical, P, q, A, solver_args)
        return primal, dual, solved if needs_grad else None

    def derivative_numpy_batch(self, dprimal: Any, ddual: Any, saved_state: Any) -> tuple[Any, Floats, Floats]:
        """The gradients of the values."""
        solved = saved_state[0] if isinstance(saved_state, list) else saved_state
        if solved is None:
            raise MisuseError("[cvxpylayers] this solution was computed without needs_grad: it has no derivatives")
        return _programs.vjp(solved, _doubles(dprimal), _doubles(ddual))

    def solve_torch_batch(
        self, P: Any, q: Any, A: Any, dims: Any, solver_args: dict[str, Any], needs_grad: bool
    ) -> tuple[Any, Any, Solved | None]:
        """The same with tensors, whose dtype and device results have."""
        import torch

        values = [None if t is None else t.detach().to("cpu", torch.float64).numpy() for t in (P, q, A)]
        primal, dual, solved = self.solve_numpy_batch(values[0], values[1], values[2], dims, solver_args, needs_grad)
        return torch.from_numpy(primal).to(q), torch.from_numpy(dual).to(q), solved

    def derivative_torch_batch(self, dprimal: Any, ddual: Any, saved_state: Any) -> tuple[Any, Any, Any]:
        """The same with tensors."""
        import torch

        dx, dy = (t.detach().to("cpu", torch.float64).numpy() for t in (dprimal, ddual))
        found = self.derivative_numpy_batch(dx, dy, saved_state)
        dP, dq, dA = (None if g is None else torch.from_numpy(g).to(dprimal) for g in found)
        return dP, dq, dA

    def solve_canonical(
        self, canonical: Canonical, P: Any, q: Any, A: Any, solver_args: dict[str, Any] | None
    ) -> tuple[Floats, Floats, Solved]:
        """Of a layer that is known already."""
        options = {**self.options, **(solver_args or {})}
        estimator = options.pop("estimator", self.estimator)
        on_error = options.pop("on_error", self.on_error)
        _check_options(options)
        _check_estimator(estimator)
        _check_on_error(on_error)
        values = None if P is None else _doubles(P), _doubles(q), _doubles(A)
        return _programs.solve(canonical, values, options, estimator, on_error)


def _doubles(values: Any) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def _check_estimator(estimator: Any) -> None:
    if estimator is not None and not isinstance(estimator, (OneStep, KStep, Implicit, Unrolled, Auto)):
        raise MisuseError(f"[cvxpylayers] estimator is one of onestep's, as onestep.Implicit(), not {estimator!r}")


def _check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "nan", "keep"):
        raise MisuseError(f"[cvxpylayers] on_error is 'raise', 'nan' or 'keep', not {on_error!r}")


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise MisuseError(
                f"[cvxpylayers] onestep has no option {name!r}; there are {known}, estimator and on_error"
            )
