"""A solver as a module of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from onestep._core import Auto, Certificate, Implicit, KStep, OneStep, Solver, Status, Unrolled
from onestep._errors import MisuseError
from onestep.torch import _operators as _operators
from onestep.torch._functions import Solve
from onestep.torch._layout import Call
from onestep.torch._problems import Kept, OnError, Problems, one_of
from onestep.torch._tensors import Dtype, as_tensor, checked_dtype, device_of, dtype_of, to_host

if TYPE_CHECKING:
    from onestep._core import Estimator


class Solved(NamedTuple):
    """What a layer solved.

    >>> solved = project.solve(c)
    >>> solved.x, solved.state, solved.converged
    """

    x: Tensor
    """The first part of the state. Of a quadratic program the minimiser."""
    state: tuple[Tensor, ...]
    """All parts of the state. Of a quadratic program x and the multipliers of equalities, rows and bounds."""
    status: Tensor
    """How each solve ended: `onestep.Status(int(status))`."""

    @property
    def converged(self) -> Tensor:
        """Which problems ended at a solution."""
        good = [status.value for status in Status if status.is_solution]
        return torch.isin(self.status, torch.tensor(good, device=self.status.device))


class Layer(torch.nn.Module):
    """A solver as a module: parameters in, solutions out, differentiated by an estimator. Made by `layer`.

    It has no state: whatever derivatives need is kept by the graph of the call. It can be copied, used by several threads, and
    called again before a backward pass.
    """

    def __init__(
        self,
        solver: Solver | Callable[[], Solver],
        axes: Sequence[int] | None = None,
        *,
        start: Any = None,
        estimator: Estimator | None = None,
        on_error: OnError = "raise",
        dtype: Dtype = torch.float64,
    ) -> None:
        super().__init__()
        if on_error not in ("raise", "nan", "keep"):
            raise MisuseError(f"[layer] on_error is 'raise', 'nan' or 'keep', not {on_error!r}")
        if estimator is not None and not isinstance(estimator, (OneStep, KStep, Implicit, Unrolled, Auto)):
            raise MisuseError(f"[layer] estimator must be one of onestep's, as onestep.Implicit(), not {estimator!r}")
        if axes is not None and not all(isinstance(a, int) and 0 <= a <= 2 for a in axes):
            raise MisuseError(
                f"[layer] axes says how many axes each parameter of one problem has, 0, 1 or 2; it is {axes!r}"
            )
        self.axes = None if axes is None else tuple(axes)
        self.dtype = checked_dtype(dtype)
        self.on_error: OnError = on_error
        self._problems = Problems(solver, start, estimator, on_error)

    def forward(self, *theta: Any) -> Tensor:
        """The first part of the state: x."""
        return self.solve(*theta).x

    def solve(self, *theta: Any) -> Solved:
        """All parts of the state, and the status of each problem."""
        return self.solve_like(theta, theta)

    def solve_like(self, theta: Sequence[Any], like: Sequence[Any]) -> Solved:
        """The same, where dtype="input" means that of the tensors among `like`."""
        inputs, batch, call, on_host = self._prepared(theta)
        if torch.compiler.is_compiling():  # compilers see the operator, which has a backward pass of its own
            *state, status = torch.ops.onestep.solve(on_host, call.layer, call.batched, call.count)
        else:
            *state, status = Solve.apply(call, *on_host)
        device, dtype = device_of(inputs), dtype_of(like, self.dtype)
        shaped = [part.reshape((*batch, *part.shape[1:])).to(device=device, dtype=dtype) for part in state]
        return Solved(shaped[0], tuple(shaped), status.reshape(batch).to(device))

    def certificate(self, *theta: Any, cotangent: Any = None, tangent: Any = None) -> Certificate | list[Certificate]:
        """How wrong the derivative can be that a backward pass returns for this cotangent of x (a tuple: of the parts of the
        state), or that a forward derivative returns for this tangent of the parameters (a tuple where there are several). A
        list of certificates, one for each problem, where there is a batch. It solves again. Certificates are about the
        derivative in double precision.

        >>> layer.certificate(c, cotangent=torch.ones(3))
        """
        if (cotangent is None) == (tangent is None):
            raise MisuseError("[layer] a certificate is for a cotangent or for a tangent: give one of them")
        _, batch, call, on_host = self._prepared(theta)
        if call.count == 0:
            return []
        solutions = self._problems.solved([t.detach().numpy() for t in on_host], call.batched, call.count)
        direction = cotangent if tangent is None else tangent
        parts = direction if isinstance(direction, tuple) else (direction,)
        directions = [to_host(as_tensor(part, "the direction")).detach() for part in parts]
        found = []
        for i in range(call.count):
            s = one_of(solutions, i)
            shapes = (
                [part.shape for part in s.state]
                if tangent is None
                else [t.shape[b:] for t, b in zip(on_host, call.batched)]
            )
            of_one = tuple(_of_problem(part, shape, batch, i) for part, shape in zip(directions, shapes))
            found.append(s.certificate(of_one) if tangent is None else s.certificate_jvp(of_one))
        return found if batch else found[0]

    def _prepared(self, theta: Sequence[Any]) -> tuple[list[Tensor], tuple[int, ...], Call, list[Tensor]]:
        """The parameters as they were given, the shape of the batch, what is to be solved, and the parameters for that."""
        inputs = [as_tensor(t, f"parameter {i}") for i, t in enumerate(theta)]
        if not inputs:
            raise MisuseError("[layer] a layer is called with the parameters of its problem")
        if self.axes is None:
            self._check_single(inputs)
            return (
                inputs,
                (),
                Call(self._problems, (False,) * len(inputs), 1, Kept()),
                [to_host(t) for t in inputs],
            )
        if len(inputs) != len(self.axes):
            raise MisuseError(f"[layer] {len(inputs)} parameters given, axes={self.axes} are for {len(self.axes)}")
        extra = [t.ndim - a for t, a in zip(inputs, self.axes)]
        if min(extra) < 0:
            i = next(i for i, e in enumerate(extra) if e < 0)
            raise MisuseError(
                f"[layer] parameter {i} has shape {tuple(inputs[i].shape)}, one problem's has {self.axes[i]} axes"
            )
        try:
            batch = tuple(torch.broadcast_shapes(*(t.shape[:e] for t, e in zip(inputs, extra))))
        except RuntimeError as error:
            shapes = ", ".join(str(tuple(t.shape[:e])) for t, e in zip(inputs, extra))
            raise MisuseError(f"[layer] the parameters' batches do not fit each other: {shapes}") from error
        count = 1
        for size in batch:
            count *= size
        on_host = [
            to_host(t).expand(*batch, *t.shape[e:]).reshape((count, *t.shape[e:])) if e > 0 else to_host(t)
            for t, e in zip(inputs, extra)
        ]
        return inputs, batch, Call(self._problems, tuple(e > 0 for e in extra), count, Kept()), on_host

    def _check_single(self, inputs: Sequence[Tensor]) -> None:
        for i, t in enumerate(inputs):
            if t.ndim > 2:
                raise MisuseError(
                    f"[layer] parameter {i} has shape {tuple(t.shape)}; parameters have at most two axes. For a batch say "
                    "how many axes each parameter of one problem has, as in layer(solver, axes=(1, 0)), or use torch.vmap"
                )

    def extra_repr(self) -> str:
        """For repr."""
        text = repr(self._problems.solver)
        for name, value in (("axes", self.axes), ("estimator", self._problems.estimator)):
            text += f", {name}={value}" if value is not None else ""
        return text + (f", on_error={self.on_error!r}" if self.on_error != "raise" else "")


def _of_problem(direction: Tensor, shape: tuple[int, ...], batch: tuple[int, ...], i: int) -> Any:
    """That of one problem, of a direction which all share or which has the axes of the batch."""
    if tuple(direction.shape) == tuple(shape):
        return direction.numpy()
    try:
        return direction.expand(*batch, *shape).reshape((-1, *shape))[i].numpy()
    except RuntimeError as error:
        raise MisuseError(
            f"[layer] a direction has shape {tuple(direction.shape)}, one of {(*batch, *shape)} is needed"
        ) from error


def layer(
    solver: Solver | Callable[[], Solver],
    axes: Sequence[int] | None = None,
    *,
    start: Any = None,
    estimator: Estimator | None = None,
    on_error: OnError = "raise",
    dtype: Dtype = torch.float64,
) -> Layer:
    """A solver as a module of PyTorch, which is called with the parameters and returns x.

    >>> simplex = lambda c: {"Q": onestep.eye(3), "q": -c, "A": np.ones((1, 3)), "b": np.ones(1), "lo": 0.0}
    >>> project = onestep.torch.layer(onestep.quadratic_program(simplex), axes=(1,))
    >>> project(torch.randn(64, 3, requires_grad=True)).sum().backward()

    `solver` is a Solver, whose function is NumPy, or a function without arguments that returns one; a layer of a function of a
    module can be pickled.

    `axes` says how many axes each parameter of one problem has: whatever it has in front of these is a batch, which is solved
    on all threads. Batches are broadcast against each other; a parameter without one is shared and gets the sum of the
    gradients. Without `axes` a call is one problem, and batches are made by torch.vmap.

    `start` is where solves begin, where the solver needs a start and has none. `estimator` is how solutions are differentiated.

    `on_error` says what happens to problems that do not end at a solution: "raise" raises NotConvergedError, with "nan" their
    solutions and derivatives are NaN, and "keep" keeps whatever there is. With the last two a problem whose cotangent is zero
    adds nothing to the gradient of a shared parameter. `solve` returns a status for each.

    Computation is in double precision in the memory of the host. Results have the dtype `dtype`: double precision, or that of
    the inputs where it is "input".
    """
    return Layer(solver, axes, start=start, estimator=estimator, on_error=on_error, dtype=dtype)
