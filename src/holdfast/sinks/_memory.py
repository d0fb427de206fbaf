"""The memory sink: output kept in this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast import runtime
from holdfast.errors import ConfigurationError, InputError
from holdfast.sinks.base import SinkContext
from holdfast.sinks.write_ahead import WriteAheadSink
from holdfast.state.text import python_rows

__all__ = ["MemorySink", "forget", "memory", "memory_table"]


def memory(name: str) -> MemorySink:
    """Keep the output in this process, under a name; for tests and notebooks.

    Each epoch is kept once, however often it is delivered. All of it is lost with the process: what
    was published before a restart is gone after it. Starting another pipeline, or the same one on a
    new checkpoint directory, under the same name begins anew.

    >>> sink = memory("example")
    >>> sink.describe()
    "rows in memory as 'example'"
    >>> sink.rows()
    []
    """
    return MemorySink(name)


def memory_table(name: str) -> pa.Table:
    """Everything published so far to the memory sink of that name, oldest epoch first.

    >>> memory_table("nowhere")
    Traceback (most recent call last):
    holdfast.errors.InputError: there is no memory sink named 'nowhere' in this process. What to do: ...
    """
    with _lock:
        if (kept := _kept.get(name)) is not None:
            tables = [kept.schema.empty_table(), *kept.epochs.values()]
            return pa.concat_tables(tables, promote_options="permissive")
        known = ", ".join(sorted(_kept)) or "none"
    raise InputError(
        f"there is no memory sink named {name!r} in this process",
        hint=f"start a pipeline that writes to it first; known names: {known}",
    )


def forget(name: str) -> None:
    """Keep nothing under a name any more."""
    with _lock:
        _kept.pop(name, None)


@dataclass(slots=True)
class _Kept:
    """The rows under one name."""

    owner: tuple[str, str, str]
    claim: int
    schema: pa.Schema
    epochs: dict[int, pa.Table] = field(default_factory=dict)


_lock = runtime.lock()
_kept: dict[str, _Kept] = {}


class MemorySink(WriteAheadSink):
    """What :func:`memory` makes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._mine: _Kept | None = None

    def __repr__(self) -> str:
        return f"hf.sinks.memory({self.name!r})"

    def describe(self) -> str:
        """The name under which rows are kept."""
        return f"rows in memory as {self.name!r}"

    def open(self, context: SinkContext) -> None:
        """Take the name over."""
        super().open(context)
        owner = (context.pipeline, context.sink, context.storage.url)
        now = _Kept(owner, context.claim, context.schema.remove_metadata())
        with _lock:
            before = _kept.get(self.name)
            # A claim that isn't higher means that the log has begun anew, and epochs with it.
            if before is not None and before.owner == owner and before.claim < now.claim:
                now.epochs = before.epochs
            _kept[self.name] = self._mine = now

    def deliver(self, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Keep the rows, unless this epoch's are kept already."""
        del maybe_repeated
        with _lock:
            kept = _kept.get(self.name)
            if kept is None or kept is not self._mine:
                # Epochs of both have the same numbers: each would leave out rows of the other.
                by = "nobody" if kept is None else f"{kept.owner[1]} of pipeline {kept.owner[0]!r}"
                raise ConfigurationError(
                    f"the memory sink {self.name!r} now belongs to {by}",
                    hint="stop one of them, or give each its own name",
                )
            kept.epochs.setdefault(epoch, table)

    @property
    def epochs(self) -> Mapping[int, pa.Table]:
        """The rows of each published epoch, oldest first."""
        with _lock:
            return dict(_kept[self.name].epochs) if self.name in _kept else {}

    def table(self) -> pa.Table:
        """Everything published so far, oldest epoch first."""
        return memory_table(self.name)

    def rows(self) -> list[dict[str, Any]]:
        """Everything published so far as Python rows, oldest epoch first."""
        return [row for table in self.epochs.values() for row in python_rows(table)]
