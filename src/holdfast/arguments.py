"""What users pass, checked where they pass it: the message is about their line, not about ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import InputError

__all__ = ["check_columns", "check_rows", "check_sinks", "once_called", "said"]

P = ParamSpec("P")
R = TypeVar("R")


def check_columns(given: Iterable[object], what: str) -> None:
    """Raise ``InputError`` unless all of these are columns, or names of some."""
    for column in given:
        if not isinstance(column, str) and not hasattr(column, "alias"):
            names = column if isinstance(column, list | tuple) else ["word"]
            words = ", ".join(f'"{name}"' for name in names)
            raise InputError(
                f"{what} takes columns, not {said(column)}", hint=f"say {what}({words})"
            )


def check_rows(given: object, what: str) -> None:
    """Raise ``InputError`` unless something is a stream."""
    from holdfast.stream import Rows

    if not isinstance(given, Rows):
        table = hasattr(given, "sparkSession")
        raise InputError(
            f"{what} takes a stream, not {said(given)}",
            hint='a table that doesn\'t change is joined in a step: transform(lambda df: df.join(table, "k")); '
            "a streaming DataFrame becomes a stream with hf.stream(df)"
            if table
            else "give what hf.stream(df) or an operator returned",
        )


def check_sinks(given: Iterable[object]) -> None:
    """Raise ``InputError`` unless all of these are sinks."""
    from holdfast.sinks.base import Sink

    for sink in given:
        if not isinstance(sink, Sink):
            raise InputError(
                f"write_to takes sinks, not {said(sink)}",
                hint='say write_to(hf.sinks.parquet("out")), for example; docs/sinks.md has all of them',
            )


def said(given: Any) -> str:
    """What was passed, in words."""
    kind = type(given).__name__
    return repr(given) if isinstance(given, str | int | float | None) else f"a {kind}"


def once_called(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function say what an argument is called now, if it is given by an earlier name.

    >>> @once_called(output="output_mode")
    ... def window(output_mode="append"):
    ...     return output_mode
    >>> window(output="update")
    Traceback (most recent call last):
    holdfast.errors.InputError: window() has no argument 'output'. What to do: it is called output_mode
    """

    def told(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in names.keys() & kwargs.keys():
                raise InputError(
                    f"{function.__qualname__.removesuffix('.__init__')}() has no argument {name!r}",
                    hint=f"it is called {names[name]}",
                )
            return function(*args, **kwargs)

        return call

    return told
