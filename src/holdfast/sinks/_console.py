"""The console sink: a look at each epoch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.sinks.write_ahead import WriteAheadSink
from holdfast.state.text import on_one_line, python_values

__all__ = ["ConsoleSink", "console"]

_WIDEST = 60


def console(limit: int = 20, stream: TextIO | None = None) -> ConsoleSink:
    """Print the first ``limit`` rows of each epoch, after its checkpoint, to stdout or ``stream``.

    In a terminal the table is drawn with ``rich`` where that is installed. An epoch may be printed
    again after a restart; it says so.

    >>> sink = console(limit=2)
    >>> sink.deliver(7, pa.table({"word": ["kelp", None, "rock"], "n": [3, 1, 2]}),
    ...              maybe_repeated=False)
    epoch 7: 3 rows
    word | n
    -----+--
    kelp | 3
    NULL | 1
    … 1 more
    """
    return ConsoleSink(limit, stream)


class ConsoleSink(WriteAheadSink):
    """What :func:`console` makes."""

    def __init__(self, limit: int = 20, stream: TextIO | None = None) -> None:
        if limit < 0:
            raise InputError(f"can't print {limit} rows", hint="give a limit of 0 or more")
        self.limit = limit
        self._stream = stream

    def __repr__(self) -> str:
        return f"hf.sinks.console(limit={self.limit})"

    def describe(self) -> str:
        """How much it prints."""
        return f"console, up to {self.limit} rows per epoch"

    def deliver(self, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Print one epoch."""
        note = ", maybe printed before" if maybe_repeated else ""
        rows = "row" if table.num_rows == 1 else "rows"
        title = f"epoch {epoch}: {table.num_rows:,} {rows}{note}"
        first = table.slice(0, self.limit)
        stream = self._stream or sys.stdout  # looked up now: tests and notebooks replace it
        names = [_taken_by(stream, on_one_line(name)) for name in table.column_names]
        cells = [
            [_taken_by(stream, _text(value)) for value in python_values(column)]
            for column in first.columns
        ]
        more = table.num_rows - first.num_rows
        if not (stream.isatty() and _print_rich(stream, title, names, cells)):
            stream.write(_plain(title, names, cells))
        if more:
            stream.write(_taken_by(stream, f"… {more:,} more\n"))
        stream.flush()


def _text(value: Any) -> str:
    text = "NULL" if value is None else on_one_line(str(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _taken_by(stream: TextIO, text: str) -> str:
    """The text as a stream of any encoding takes it: one that refuses a row would be tried for ever."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _plain(title: str, names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, (name, *column))) for name, column in zip(names, cells, strict=True)]
    lines = [names, *zip(*cells, strict=True)]
    padded = [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    rule = "-+-".join("-" * width for width in widths)
    return "\n".join([title, padded[0], rule, *padded[1:]]) + "\n"


def _print_rich(
    stream: TextIO, title: str, names: Sequence[str], cells: Sequence[Sequence[str]]
) -> bool:
    """Draw the table in colour; False if rich isn't installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    drawn = Table(title=title, title_justify="left")
    for name in names:
        drawn.add_column(Text(name))
    for row in zip(*cells, strict=True):
        drawn.add_row(*map(Text, row))  # as they are: data may look like markup
    Console(file=stream).print(drawn)
    return True
