"""The state tables of windows: the windows themselves, and when to look at which.

- ``<id>.windows``: a row per key and window: buffers, then what must be known of its firings;
- ``<id>.ends``: when windows close, and when they are deleted (a *timed* table, event time);
- ``<id>.early``: when windows may fire before they close (a *timed* table, processing time).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from holdfast.operators.aggregates.buffers import Buffers
from holdfast.operators.input_rows import Fields
from holdfast.operators.window.spec import WINDOW_START
from holdfast.state.schema import Column, TableSchema

__all__ = ["CLOSED", "EARLY", "FIRED", "WAITING", "WindowTables"]

CLOSED = "_holdfast_closed"
"""Whether the watermark had reached the window's end."""
WAITING = "_holdfast_waiting"
"""How many rows have come since the window last fired."""
EARLY = "_holdfast_early"
"""From which processing time on (ms) the window may fire early."""
FIRED = "_holdfast_fired"
"""Whether the window has fired; its buffers as they were then have names that begin with this."""


@dataclass(frozen=True)
class WindowTables:
    """The tables of one window operator, and which bookkeeping its windows need."""

    id: str
    keys: Fields
    buffers: Buffers
    ends_by_time: bool
    """Whether windows end."""
    closed: bool
    """Whether windows stay after they have closed, and it must be known that they have."""
    waiting: bool
    """Whether rows that wait for a firing are counted."""
    early: bool
    """Whether windows fire early by processing time."""
    fired: bool
    """Whether the buffers of the last firing are kept."""

    @cached_property
    def windows(self) -> TableSchema:
        """A row per key and window."""
        columns = list(self.buffers.fields)
        columns += [(CLOSED, pa.bool_())] if self.closed else []
        columns += [(WAITING, pa.int64())] if self.waiting else []
        columns += [(EARLY, pa.int64())] if self.early else []
        if self.fired:
            columns.append((FIRED, pa.bool_()))
            columns += [(f"{FIRED}.{name}", kind) for name, kind in self.buffers.fields]
        names = self._names
        values = tuple(
            Column(len(names) + i, name, kind) for i, (name, kind) in enumerate(columns, 1)
        )
        # Without keys a window's start is all of its key.
        return TableSchema(f"{self.id}.windows", names, values, prefix=len(self.keys))

    @cached_property
    def ends(self) -> TableSchema:
        """When windows close or are deleted."""
        return TableSchema(f"{self.id}.ends", self._names, (), timed="event")

    @cached_property
    def early_times(self) -> TableSchema:
        """When windows may fire early."""
        return TableSchema(f"{self.id}.early", self._names, (), timed="processing")

    @property
    def all(self) -> tuple[TableSchema, ...]:
        """The tables that there are."""
        ends = (self.ends,) if self.ends_by_time else ()
        early = (self.early_times,) if self.early else ()
        return (self.windows, *ends, *early)

    @property
    def _names(self) -> tuple[Column, ...]:
        fields = [*self.keys, (WINDOW_START, pa.int64())]
        return tuple(Column(i, name, kind) for i, (name, kind) in enumerate(fields, 1))
