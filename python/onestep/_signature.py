"""How many arguments a traced function takes: those without defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onestep._errors import TracingError


def arguments_of(function: Callable[..., Any]) -> int:
    """The number of positional arguments without a default, so that `lambda x, w, A=A: ...` takes two."""
    if not callable(function):
        raise TracingError(f"a function to trace is needed here, not an object of type {type(function).__name__}")
    code = getattr(function, "__code__", None)
    is_plain = code is not None and hasattr(function, "__defaults__") and not hasattr(function, "__wrapped__")
    if code is not None and is_plain and not code.co_flags & 0x04 and not code.co_kwonlyargcount:  # 0x04: has *args
        return int(code.co_argcount) - len(function.__defaults__ or ()) - hasattr(function, "__self__")
    import inspect

    count = 0
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TracingError(f"the number of arguments must be known: name them instead of writing *{name}")
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            count += parameter.default is parameter.empty
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise TracingError(f"the keyword argument {name} has no default; expressions are passed by position")
    return count
