"""Batches of dense quadratic programs whose data are tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import onestep
from onestep._core import Certificate, Solver
from onestep._program_data import AXES, completed
from onestep.torch._layer import Layer, Solved
from onestep.torch._problems import OnError
from onestep.torch._tensors import Dtype, as_tensor

if TYPE_CHECKING:
    from onestep._core import Estimator


class _Program:
    """Makes the solver; pickled instead of it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def __call__(self) -> Solver:
        return onestep.quadratic_program(**self.options)


class QP(torch.nn.Module):
    """min x'Qx/2 + q'x subject to Ax = b, l <= Gx <= u, lo <= x <= hi, whose data are tensors: dense, and in batches.

    >>> qp = onestep.torch.QP()
    >>> x = qp(Q=Q, q=q, G=G, u=u)    # Q (n, n), q (64, n), G (m, n), u (64, m)  ->  x (64, n)

    Whatever the data have in front of the axes of one program is a batch, which is solved on all threads. Batches are
    broadcast against each other; data without one are shared and get the sum of the gradients. What a program does not have is
    left out; a number stands for a vector of it. Q is read as (Q + Q')/2, and its gradient is symmetric.

    `estimator` is one of onestep's. `on_error` and `dtype` are those of `layer`; `options` are those of
    `onestep.quadratic_program`, as tolerance and max_iterations.
    """

    def __init__(
        self,
        *,
        estimator: Estimator | None = None,
        on_error: OnError = "raise",
        dtype: Dtype = torch.float64,
        **options: Any,
    ) -> None:
        super().__init__()
        make = _Program(options)
        self.programs = Layer(make, tuple(AXES.values()), estimator=estimator, on_error=on_error, dtype=dtype)

    def forward(
        self,
        Q: Any = None,
        q: Any = None,
        A: Any = None,
        b: Any = None,
        G: Any = None,
        l: Any = None,  # noqa: E741
        u: Any = None,
        lo: Any = None,
        hi: Any = None,
    ) -> Tensor:
        """The minimisers x."""
        return self.solve(Q, q, A, b, G, l, u, lo, hi).x

    def solve(
        self,
        Q: Any = None,
        q: Any = None,
        A: Any = None,
        b: Any = None,
        G: Any = None,
        l: Any = None,  # noqa: E741
        u: Any = None,
        lo: Any = None,
        hi: Any = None,
    ) -> Solved:
        """x and the multipliers of equalities, rows and bounds, as parts of the state; and a status for each program."""
        data = (Q, q, A, b, G, l, u, lo, hi)
        return self.programs.solve_like(_completed(data), data)

    def certificate(
        self,
        Q: Any = None,
        q: Any = None,
        A: Any = None,
        b: Any = None,
        G: Any = None,
        l: Any = None,  # noqa: E741
        u: Any = None,
        lo: Any = None,
        hi: Any = None,
        *,
        cotangent: Any,
    ) -> Certificate | list[Certificate]:
        """How wrong the gradients of a backward pass with this cotangent of x can be, see Layer.certificate."""
        return self.programs.certificate(*_completed((Q, q, A, b, G, l, u, lo, hi)), cotangent=cotangent)


def _completed(data: tuple[Any, ...]) -> list[Tensor]:
    given = {name: as_tensor(value, name) for name, value in zip(AXES, data) if value is not None}
    return completed(given, lambda shape, value: torch.full(shape, value, dtype=torch.float64), Tensor.expand)
