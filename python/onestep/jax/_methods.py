"""The solvers, by the names that they have everywhere in onestep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onestep._core import GradientStep, Momentum
from onestep.jax._arrays import Dtype
from onestep.jax._solver import Solver


def newton(
    objective: Callable[..., Any],
    *,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
    **options: Any,
) -> Solver:
    """Newton's method for a minimiser of f(x, *theta), a JAX function.

    >>> fit = onestep.jax.newton(lambda x, w: jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(x**2))
    >>> x = fit(jnp.zeros(13), w)

    `estimator` is how solutions are differentiated, one of onestep's. `on_error` says what happens to a problem that does not
    end at a solution: "raise" is an error, with "nan" its solution and derivatives are NaN, and "keep" keeps whatever there
    is. Computation is in double precision; arrays of less are refused unless `dtype` is another one, or "input" for that of
    the inputs. `options` are those of `onestep.newton`, as tolerance and max_iterations.
    """
    return Solver("newton", objective, options, estimator, on_error, dtype)


def newton_root(
    residual: Callable[..., Any],
    *,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
    **options: Any,
) -> Solver:
    """Newton's method for a root of G(x, *theta) = 0, with as many equations as unknowns. Arguments are those of `newton`."""
    return Solver("newton_root", residual, options, estimator, on_error, dtype)


def newton_cg(
    objective: Callable[..., Any],
    *,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
    **options: Any,
) -> Solver:
    """Newton's method for thousands of unknowns, by products with the Hessian only. Arguments are those of `newton`."""
    return Solver("newton_cg", objective, options, estimator, on_error, dtype)


def gradient_descent(
    objective: Callable[..., Any],
    step: float | GradientStep | None = None,
    momentum: Momentum | None = None,
    *,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
    **options: Any,
) -> Solver:
    """Gradient descent on f(x, *theta). A number as `step` is its fixed length. Other arguments are those of `newton`."""
    how = {"step": step, "momentum": momentum}
    options |= {name: value for name, value in how.items() if value is not None}
    return Solver("gradient_descent", objective, options, estimator, on_error, dtype)


def fixed_point(
    step: Callable[..., Any],
    *,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
    **options: Any,
) -> Solver:
    """x <- F(x, *theta) until it stands still; F returns what it takes as x. Arguments are those of `newton`.

    >>> root = onestep.jax.fixed_point(lambda x, a: 0.5 * (x + a / x))
    """
    return Solver("fixed_point", step, options, estimator, on_error, dtype)


def quadratic_program(
    program: Callable[..., Any],
    *,
    estimator: Any = None,
    on_error: str = "raise",
    dtype: Dtype = np.float64,
    **options: Any,
) -> Solver:
    """min x'Qx/2 + q'x subject to Ax = b, l <= Gx <= u, lo <= x <= hi, whose data are a dict that a JAX function of the
    parameters returns. It needs no start. Arguments are those of `newton`; see `QP` for data that are arrays.

    >>> project = onestep.jax.quadratic_program(lambda c: {"Q": jnp.eye(3), "q": -c, "A": ones, "b": jnp.ones(1), "lo": 0.0})
    >>> project(c)
    """
    return Solver("quadratic_program", program, options, estimator, on_error, dtype)
