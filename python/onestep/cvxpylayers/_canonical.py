"""The canonical form of a CVXPY problem as a quadratic program: which cones it may have, and where its entries stand.

CVXPYlayers hands over values: of P and q in min x'Px/2 + q'x, and of the sparse matrix [-M, r] with r - Mx in a product of
cones, zeros first and then nonnegative entries. That is Ax = b and Gx <= u here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onestep._errors import MisuseError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Entries that P and the constraints may have together once they are written out: 80 MB for each problem of a batch.
DENSE_LIMIT = 10_000_000

_CONES = {
    "soc": "second-order cones",
    "psd": "cones of positive semidefinite matrices",
    "exp": "exponential cones",
    "p3d": "power cones",
    "pnd": "power cones",
}


class Canonical:
    """Made of what CVXPYlayers knows of a layer (its LayersContext)."""

    def __init__(self, context: Any, dense_limit: int = DENSE_LIMIT) -> None:
        check_cones(context.cone_dims)
        self.variables = int(context.q.shape[0]) - 1
        self.equalities, self.inequalities = int(context.cone_dims.zero), int(context.cone_dims.nonneg)
        rows, n = self.equalities + self.inequalities, self.variables
        if n * (n + rows) > dense_limit:
            raise MisuseError(
                f"[cvxpylayers] the canonical form has {n:,} variables and {rows:,} constraints, and onestep computes with "
                f"dense matrices: they would have {n * (n + rows):,} entries, more than dense_limit={dense_limit:,}. Take a "
                "sparse solver, or give a larger dense_limit"
            )
        self._place_objective(context)
        self._place_constraints(context)
        varies = {"Q": _varies(context.reduced_P.reduced_mat), "q": _varies(context.q[:-1])}
        varies |= self._rows_that_vary(context)
        # A solver has at least one parameter.
        self.parameters = tuple(name for name, moves in varies.items() if moves) or ("q",)

    def _place_objective(self, context: Any) -> None:
        index = context.reduced_P.problem_data_index
        self.P_rows, self.P_columns = (np.zeros(0, np.int64),) * 2 if index is None else _places(index)
        pattern = set(zip(self.P_rows.tolist(), self.P_columns.tolist()))
        if any((j, i) not in pattern for i, j in pattern):
            raise MisuseError("[cvxpylayers] P has one triangle only: this version of CVXPY is not supported")

    def _place_constraints(self, context: Any) -> None:
        index = context.reduced_A.problem_data_index
        rows, columns = (np.zeros(0, np.int64),) * 2 if index is None else _places(index)
        in_matrix = columns < self.variables
        self.count = rows.size  # of values, those of the right-hand side last
        self.M_rows, self.M_columns, self.r_rows = rows[in_matrix], columns[in_matrix], rows[~in_matrix]
        if not np.all(np.diff(in_matrix.astype(int)) <= 0):
            raise MisuseError("[cvxpylayers] r is not the last column: this version of CVXPY is not supported")

    def _rows_that_vary(self, context: Any) -> dict[str, bool]:
        moving = _moving(context.reduced_A.reduced_mat, self.count)
        of_matrix, of_right = moving[: self.M_rows.size], moving[self.M_rows.size :]
        equal_M, equal_r = self.M_rows < self.equalities, self.r_rows < self.equalities
        return {
            "A": bool(of_matrix[equal_M].any()),
            "b": bool(of_right[equal_r].any()),
            "G": bool(of_matrix[~equal_M].any()),
            "u": bool(of_right[~equal_r].any()),
        }

    def programs(self, P: Floats | None, q: Floats, A: Floats) -> dict[str, Floats]:
        """The parts of the programs of a batch, each with an axis for it in front, of the values that are handed over. Of
        parts that are the same in all there is one."""
        n, m, e = self.variables, self.equalities + self.inequalities, self.equalities
        Q = np.zeros((self._distinct(q, "Q"), n, n))
        if P is not None:
            Q[:, self.P_rows, self.P_columns] = P[: len(Q)]
        M, r = np.zeros((self._distinct(q, "A", "G"), m, n)), np.zeros((self._distinct(q, "b", "u"), m))
        M[:, self.M_rows, self.M_columns] = -A[: len(M), : self.M_rows.size]
        r[:, self.r_rows] = A[: len(r), self.M_rows.size :]
        return {"Q": Q, "q": q[:, :-1].copy(), "A": M[:, :e], "b": r[:, :e], "G": M[:, e:], "u": r[:, e:]}

    def _distinct(self, q: Floats, *names: str) -> int:
        """How many of these parts a batch has."""
        return q.shape[0] if any(name in self.parameters for name in names) else 1

    def gradients(self, of: dict[str, Floats], count: int) -> tuple[Floats | None, Floats, Floats]:
        """Those of the values, of those of the parts that vary. The others do not depend on the layer's parameters."""
        n, e = self.variables, self.equalities
        dP = of["Q"][:, self.P_rows, self.P_columns] if "Q" in of else np.zeros((count, self.P_rows.size))
        dq = np.zeros((count, n + 1))
        if "q" in of:
            dq[:, :-1] = of["q"]
        dA = np.zeros((count, self.count))
        matrix, right = dA[:, : self.M_rows.size], dA[:, self.M_rows.size :]
        for name, equal in (("A", True), ("G", False)):
            if name in of:
                here = (self.M_rows < e) == equal
                matrix[:, here] = -of[name][:, self.M_rows[here] - (0 if equal else e), self.M_columns[here]]
        for name, equal in (("b", True), ("u", False)):
            if name in of:
                here = (self.r_rows < e) == equal
                right[:, here] = of[name][:, self.r_rows[here] - (0 if equal else e)]
        return (dP if self.P_rows.size else None), dq, dA


def check_cones(dims: Any) -> None:
    """Only zeros and nonnegative entries are linear constraints."""
    found = [
        f"{name} (of sizes {list(sizes)})"
        if isinstance(sizes := getattr(dims, cone, 0), Sequence)
        else f"{sizes} {name}"
        for cone, name in _CONES.items()
        if getattr(dims, cone, None)
    ]
    if found:
        raise MisuseError(
            f"[cvxpylayers] the canonical form of the problem has {' and '.join(found)}. onestep solves quadratic programs: "
            "a convex quadratic objective and linear constraints. Take another solver for this problem"
        )


def _places(index: Any) -> tuple[Indices, Indices]:
    """Rows and columns of the entries of a matrix that is given by its columns."""
    rows, pointers, _ = index
    columns = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    return np.asarray(rows, dtype=np.int64), columns.astype(np.int64)


def _moving(matrix: Any, count: int) -> npt.NDArray[np.bool_]:
    """Which rows of a map from parameters to values do more than add a constant, which is its last column."""
    if matrix is None or count == 0:
        return np.zeros(count, dtype=bool)
    entries = matrix.tocoo()
    moving = np.zeros(matrix.shape[0], dtype=bool)
    moving[entries.row[(entries.col < matrix.shape[1] - 1) & (entries.data != 0)]] = True
    return moving


def _varies(matrix: Any) -> bool:
    return matrix is not None and bool(_moving(matrix, matrix.shape[0]).any())
