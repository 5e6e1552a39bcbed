"""Equations of a jaxpr as the rules of the table see them, and what is said of those that have no rule."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onestep._errors import TracingError
from onestep.jax._values import checked

_CHOOSES = (
    "the value of an expression is not known while the function is traced, so nothing can branch or loop on it: "
    "jnp.where(condition, a, b) chooses"
)
INSTEAD = {
    "cond": _CHOOSES,
    "while": _CHOOSES,
    "scan": "loops of JAX are not traced: write the loop in Python, or with sums along an axis",
    "sort": "the order is a kink at every tie",
    "argmax": "an index has no derivative",
    "argmin": "an index has no derivative",
    "top_k": "the order is a kink at every tie",
    "erfc": "1 - jax.scipy.special.erf(x) where that is precise enough",
    "cholesky": "onestep has no triangular factor as an array: jnp.linalg.solve, jnp.linalg.slogdet",
    "lu": "jnp.linalg.solve, jnp.linalg.slogdet and jnp.linalg.det, called as they are",
    "triangular_solve": "jnp.linalg.solve(A, b)",
    "custom_linear_solve": "jnp.linalg.solve(A, b)",
    "eigh": "a problem without eigenvalues",
    "svd": "a problem without singular values",
    "qr": "jnp.linalg.solve(A.T @ A, A.T @ b)",
    "random_bits": "draw the numbers outside of the function, and close over them",
    "onestep_vjp": "a derivative of a solver inside of another one: onestep takes it by itself where it is needed",
    "onestep_jvp": "a derivative of a solver inside of another one: onestep takes it by itself where it is needed",
    "pure_callback": "the function of NumPy by itself, for a solver of onestep",
}
_FOREIGN = "any JAX function can be used as a foreign step: onestep.fixed_point(onestep.jax.foreign_step(F))"


def refusal(name: str, why: str = "") -> TracingError:
    """What cannot be traced, and what to do instead."""
    instead = why or INSTEAD.get(name, "")
    return TracingError(
        f"the primitive {name} of JAX is not traced" + (f": {instead}" if instead else "") + f"; {_FOREIGN}, and "
        "onestep.jax.traced_primitives() lists what is traced"
    )


class Equation(NamedTuple):
    """Of an equation what the rules look at. `out` is the first result's abstract value."""

    name: str
    params: dict[str, Any]
    out: Any
    of: Any = None  # the dtype of the first operand

    @property
    def shape(self) -> tuple[int, ...]:
        return checked(self.out.shape, self.name)


def check_dtype(eqn: Equation) -> None:
    kind = eqn.out.dtype.kind
    if kind in "iu":
        raise TracingError(
            f"[{eqn.name}] whole numbers that depend on the variables or the parameters are not traced: .astype(jnp.float64)"
        )
    if kind != "b" and eqn.out.dtype != np.float64:
        raise TracingError(f"[{eqn.name}] gives {eqn.out.dtype}: expressions are computed in float64, .astype(jnp.float64)")
