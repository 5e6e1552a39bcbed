"""A progress bar for solves that take long: tqdm's where that is installed, else a line of text."""

from __future__ import annotations

import importlib
import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from onestep._core import Iteration, OuterIteration


class Progress:
    """A callback that shows how far an iteration has come, for solvers and for `minimise`.

    >>> fit = onestep.newton_cg(f, callback=onestep.Progress("fit"))
    >>> with onestep.Progress("penalties") as progress:
    ...     onestep.minimise(inner, parameters, callback=progress)

    Nothing is shown of what takes less than `delay` seconds, nor where `file` (standard error) is neither a terminal nor a
    notebook's. The bar ends with the next solve, with `close`, or with the `with` statement.
    """

    def __init__(self, description: str = "", *, delay: float = 2.0, file: TextIO | None = None) -> None:
        self.description = description
        self.delay = delay
        self._file = file
        self._show: _Bar | _Line | None = None
        self._last = math.inf

    def __call__(self, iteration: Iteration | OuterIteration) -> None:
        if iteration.number <= self._last:
            self.close()
        self._last = iteration.number
        if self._show is None and iteration.seconds >= self.delay:
            file = sys.stderr if self._file is None else self._file
            if _is_watched(file):
                self._show = _display(self.description, file, iteration)
        if self._show is not None:
            self._show.update(iteration.number, _figures(iteration))

    def close(self) -> None:
        """Ends the bar, which stays where it is."""
        show, self._show, self._last = self._show, None, math.inf
        if show is not None:
            show.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Progress({self.description!r})" if self.description else "Progress()"

    # A bar belongs to the process that draws it.
    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.description, self.delay)


def _again(description: str, delay: float) -> Progress:
    return Progress(description, delay=delay)


def _figures(iteration: Iteration | OuterIteration) -> str:
    """The objective, and what the tolerance is compared with."""
    step = getattr(iteration, "step", None)
    if step is None:
        named = {"objective": iteration.value, "criticality": iteration.critical}  # type: ignore[union-attr]
    else:
        scale: float = iteration.scale  # type: ignore[union-attr]
        named = {"objective": iteration.value, "step": step / scale if scale > 0 else step}
    return ", ".join(f"{name} {value:.6g}" for name, value in named.items() if not math.isnan(value))


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _is_watched(file: TextIO) -> bool:
    return file.isatty() or (file is sys.stderr and _in_notebook())


def _display(description: str, file: TextIO, iteration: Iteration | OuterIteration) -> _Bar | _Line:
    try:
        module = importlib.import_module("tqdm.auto" if _in_notebook() else "tqdm")
    except ImportError:
        return _Line(description, file)
    return _Bar(module.tqdm, description, file, iteration)


class _Bar:
    """tqdm's, which counts iterations; how many there will be nobody knows."""

    def __init__(self, tqdm: Any, description: str, file: TextIO, iteration: Iteration | OuterIteration) -> None:
        self.bar = tqdm(desc=description or None, file=file, unit=" iterations", initial=iteration.number)
        self.bar.start_t -= iteration.seconds

    def update(self, number: int, figures: str) -> None:
        self.bar.set_postfix_str(figures, refresh=False)
        self.bar.update(number - self.bar.n)

    def close(self) -> None:
        self.bar.close()


class _Line:
    """A line of text that is written over."""

    interval = 0.1  # seconds between two of them

    def __init__(self, description: str, file: TextIO) -> None:
        self.title = f"{description}: " if description else ""
        self.file = file
        self.text = ""
        self.shown = -math.inf

    def update(self, number: int, figures: str) -> None:
        self.text = f"{self.title}{number} iteration{'' if number == 1 else 's'}, {figures}"
        if time.monotonic() - self.shown >= self.interval:
            self._write()

    def _write(self) -> None:
        self.shown = time.monotonic()
        self.file.write(f"\r{self.text}\x1b[K")
        self.file.flush()

    def close(self) -> None:
        self._write()
        self.file.write("\n")
        self.file.flush()
