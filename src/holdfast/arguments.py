"""What users pass, checked where they pass it: the message is about their line, not about ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from holdfast.errors import InputError

__all__ = ["check_choice", "check_columns", "check_rows", "check_sinks", "said"]


def check_choice(what: str, given: object, choices: Collection[str]) -> None:
    """Raise ``InputError`` unless an option is one of the words that it may be.

    >>> check_choice("output", "complete", ("append", "update"))
    Traceback (most recent call last):
    holdfast.errors.InputError: output can't be 'complete'. What to do: it is "append" or "update"
    """
    if given not in choices:
        words = [f'"{choice}"' for choice in choices]
        listed = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
        raise InputError(f"{what} can't be {given!r}", hint=f"it is {listed}")


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
