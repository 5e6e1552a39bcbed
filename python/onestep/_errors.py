"""What the package raises. All derive from Error; programs decide by type and fields, never by the message."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from onestep._core import Status


class Error(Exception):
    """Everything the package raises. The message names the operation, the values and the way out."""


class MisuseError(Error, ValueError):
    """Shapes that do not fit, an option out of range, a derivative that the step does not have."""


class TracingError(MisuseError, TypeError):
    """Something was done to an expression that cannot be traced, or with an object that is no array of real numbers."""


class NotConvergedError(Error):
    """A derivative was asked of a solve that did not end at a solution; `even_if_unconverged` permits it."""

    def __init__(self, message: str, status: Status, iterations: int) -> None:
        super().__init__(message)
        self.status = status
        self.iterations = iterations

    def __reduce__(self) -> tuple[typing.Any, ...]:
        return type(self), (str(self), self.status, self.iterations)


class NoDerivativeError(Error):
    """The solution has no derivative, or none that could be computed: `reason` says why. `residual` is of the linear solve."""

    def __init__(self, message: str, reason: str, status: Status, residual: float = float("nan")) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.residual = residual

    def __reduce__(self) -> tuple[typing.Any, ...]:
        return type(self), (str(self), self.reason, self.status, self.residual)


class FileError(Error):
    """A file that cannot be read or used, or what is wrong in it. `line` and `field` count from 1; 0 is the whole of it."""

    def __init__(
        self, message: str, file: str, line: int = 0, field: int = 0, problem: str = "", remedy: str = "none"
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.field = field
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[typing.Any, ...]:
        return type(self), (str(self), self.file, self.line, self.field, self.problem, self.remedy)


class WriteError(FileError):
    """A file could not be written while a job was running. What was there before is kept."""
