"""Batches of dense quadratic programs whose data are tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import onestep
from onestep._core import Certificate, Solver
from onestep._errors import MisuseError
from onestep.torch._layer import Layer, Solved
from onestep.torch._problems import OnError
from onestep.torch._tensors import Dtype, as_tensor

if TYPE_CHECKING:
    from onestep._core import Estimator

_PARTS = {"Q": 2, "q": 1, "A": 2, "b": 1, "G": 2, "l": 1, "u": 1, "lo": 1, "hi": 1}


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
        self.programs = Layer(make, tuple(_PARTS.values()), estimator=estimator, on_error=on_error, dtype=dtype)

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
    """All parts as tensors: those that were left out have no rows, or no effect."""
    given = {name: as_tensor(value, name) for name, value in zip(_PARTS, data) if value is not None}
    for matrix, vectors in (("A", ("b",)), ("G", ("l", "u"))):
        if (matrix in given) != any(v in given for v in vectors):
            raise MisuseError(f"[QP] {matrix} and {' or '.join(vectors)} belong together: only one of them is given")
    n = _last_size(given, ("q", "Q", "lo", "hi", "A", "G"))
    equalities, rows = _rows(given, "A"), _rows(given, "G")
    shapes = {"Q": (n, n), "q": (n,), "A": (equalities, n), "b": (equalities,), "G": (rows, n)}
    shapes |= {"l": (rows,), "u": (rows,), "lo": (n,), "hi": (n,)}
    without = {"l": -torch.inf, "u": torch.inf, "lo": -torch.inf, "hi": torch.inf}
    return [_whole(name, given.get(name), shape, without.get(name, 0.0)) for name, shape in shapes.items()]


def _whole(name: str, t: Tensor | None, shape: tuple[int, ...], without: float) -> Tensor:
    if t is None:
        return torch.full(shape, without, dtype=torch.float64)
    if t.ndim == 0 and len(shape) == 1:
        return t.expand(shape)
    if tuple(t.shape[-len(shape) :]) != shape:
        raise MisuseError(f"[QP] {name} has shape {tuple(t.shape)}; the last axes of it must be {shape}")
    return t


def _last_size(given: dict[str, Tensor], names: tuple[str, ...]) -> int:
    for name in names:
        if name in given and given[name].ndim > 0:
            return int(given[name].shape[-1])
    raise MisuseError("[QP] a program has at least Q or q, whose last axis says how many unknowns there are")


def _rows(given: dict[str, Tensor], name: str) -> int:
    if name not in given:
        return 0
    if given[name].ndim < 2:
        raise MisuseError(f"[QP] {name} has shape {tuple(given[name].shape)}; a matrix is needed, or a batch of them")
    return int(given[name].shape[-2])
