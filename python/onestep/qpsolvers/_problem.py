"""Problems of qpsolvers as the arrays that the library takes, and what is refused on the way."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import qpsolvers

from onestep._errors import MisuseError

Floats = npt.NDArray[np.float64]

# Entries of P, G and A together that sparse matrices may have once they are written out: 200 MB, such as 3,500 variables
# with as many rows. The solver keeps several copies, and an iteration then takes half a second.
DENSE_LIMIT = 25_000_000


class ProblemError(MisuseError, qpsolvers.ProblemError):
    """Data that are no quadratic program: an error of both packages."""


class ParamError(MisuseError, qpsolvers.ParamError):
    """An option that does not exist, or whose value cannot be used: an error of both packages."""


class Program:
    """The data of min x'Px/2 + q'x subject to Gx <= h, Ax = b, lb <= x <= ub, all of them there, as arrays of doubles."""

    def __init__(self, problem: qpsolvers.Problem, dense_limit: int = DENSE_LIMIT) -> None:
        _check_size(problem, dense_limit)
        self.q = _vector("q", problem.q)
        n = self.q.size
        if n == 0:
            raise ProblemError("[qpsolvers] q is empty: a program has at least one variable")
        self.P = np.zeros((n, n)) if problem.P is None else _matrix("P", problem.P, n)
        if self.P.shape != (n, n):
            raise ProblemError(
                f"[qpsolvers] P has shape {self.P.shape}; q has {n} entries, so that it must be ({n}, {n})"
            )
        self.G, self.h = _rows("G", problem.G, "h", problem.h, n)
        self.A, self.b = _rows("A", problem.A, "b", problem.b, n)
        self.lb, self.ub = _bound("lb", problem.lb, n, -np.inf), _bound("ub", problem.ub, n, np.inf)

    def data(self) -> tuple[Floats, ...]:
        """As a quadratic_program takes them whose data are its parameters."""
        return (self.P, self.q, self.A, self.b, self.G, np.full(self.h.shape, -np.inf), self.h, self.lb, self.ub)

    def parts(self) -> dict[str, Any]:
        """As solve_qp takes them."""
        names = ("Q", "q", "A", "b", "G", "u", "lo", "hi")
        return dict(zip(names, (self.P, self.q, self.A, self.b, self.G, self.h, self.lb, self.ub)))

    def kept(self) -> Program:
        """A copy, which does not change when the arrays do that the problem was made of."""
        copied = copy.copy(self)
        for name, part in vars(self).items():
            setattr(copied, name, part.copy())
        return copied

    def objective(self, x: Floats) -> float:
        return float(0.5 * x @ self.P @ x + self.q @ x)


def _check_size(problem: qpsolvers.Problem, limit: int) -> None:
    """Sparse matrices become dense ones, where that is what a solver of dense programs can solve at all."""
    matrices = {name: M for name, M in (("P", problem.P), ("G", problem.G), ("A", problem.A)) if M is not None}
    sparse = [name for name, M in matrices.items() if hasattr(M, "toarray")]
    entries = sum(int(np.prod(M.shape)) for M in matrices.values() if hasattr(M, "shape"))
    if sparse and entries > limit:
        raise ProblemError(
            f"[qpsolvers] {' and '.join(sparse)} of this problem {'is' if len(sparse) == 1 else 'are'} sparse, and "
            f"onestep computes with dense matrices: P, G and A would have {entries:,} entries, more than dense_limit="
            f"{limit:,}. Take a solver of qpsolvers.sparse_solvers, or give a larger dense_limit"
        )


def _numbers(name: str, value: Any) -> Floats:
    dense = value.toarray() if hasattr(value, "toarray") else value
    try:
        array = np.asarray(dense)
    except ValueError as error:
        raise ProblemError(f"[qpsolvers] {name} is no array: {error}") from error
    if array.dtype.kind not in "fiu":
        raise ProblemError(f"[qpsolvers] {name} has entries of type {array.dtype}; real numbers are needed")
    return np.asarray(array, dtype=np.float64)


def _vector(name: str, value: Any) -> Floats:
    if value is None:
        raise ProblemError(f"[qpsolvers] {name} is missing")
    array = _numbers(name, value)
    if array.ndim == 2 and 1 in array.shape:
        array = array.ravel()
    if array.ndim != 1:
        raise ProblemError(f"[qpsolvers] {name} has shape {array.shape}; a vector is needed")
    return array


def _matrix(name: str, value: Any, columns: int) -> Floats:
    array = _numbers(name, value)
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != columns:
        raise ProblemError(
            f"[qpsolvers] {name} has shape {array.shape}; a matrix with {columns} columns is needed, as q has entries"
        )
    return array


def _rows(matrix: str, M: Any, vector: str, v: Any, n: int) -> tuple[Floats, Floats]:
    if M is None and v is None:
        return np.zeros((0, n)), np.zeros(0)
    if M is None or v is None:
        raise ProblemError(f"[qpsolvers] {matrix} and {vector} belong together: only one of them is given")
    rows, right = _matrix(matrix, M, n), _vector(vector, v)
    if rows.shape[0] != right.size:
        raise ProblemError(f"[qpsolvers] {matrix} has {rows.shape[0]} rows, {vector} has {right.size} entries")
    return rows, right


def _bound(name: str, value: Any, n: int, without: float) -> Floats:
    if value is None:
        return np.full(n, without)
    bound = _vector(name, value)
    if bound.size != n:
        raise ProblemError(f"[qpsolvers] {name} has {bound.size} entries, q has {n}")
    return bound
