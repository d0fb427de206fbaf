"""The state of the keys of one chunk, as Python values, while user code runs on it.

A *chunk* is a few thousand keys. The values of all of them are looked up at once when the chunk
begins; lists and maps when they are first read (:mod:`holdfast.operators.process.entries`). What was
changed becomes Arrow rows when the chunk ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.choices import TimeKind
from holdfast.operators.base import Clock, StateReader
from holdfast.operators.process.chunk import ChunkState, Cursor, typed
from holdfast.operators.process.convert import to_python
from holdfast.operators.process.declare import Ttl
from holdfast.operators.process.entries import ListCell, MapCell
from holdfast.operators.process.tables import ProcessTables
from holdfast.state.columns import take_all
from holdfast.state.hashing import Hashes
from holdfast.state.schema import time_to_order

if TYPE_CHECKING:
    from holdfast.operators.process.broadcast import BroadcastCell

__all__ = ["Cells", "Cursor", "ListCell", "MapCell", "TimerCell", "ValueCell"]


class ValueCell:
    """One value column."""

    __slots__ = ("_chunk", "column", "cursor", "dirty", "expires", "kind", "name", "ttl")

    def __init__(self, chunk: ChunkState, name: str, kind: pa.DataType, ttl: Ttl | None) -> None:
        self._chunk, self.name, self.kind, self.ttl = chunk, name, kind, ttl
        self.cursor = chunk.cursor
        self.column: list[Any] = []
        self.expires: list[Any] | None = None
        self.dirty = chunk.dirty

    def load(self, column: list[Any], expires: list[Any] | None) -> None:
        """Take the values of a new chunk."""
        self.column, self.expires = column, expires
        self.dirty = self._chunk.dirty

    def get(self) -> Any:
        """The value of the key in hand; None if there is none."""
        i = self.cursor.i
        value = self.column[i]
        if value is not None and self.ttl is not None and self.ttl.on_read:
            self._touch(i)
        return value

    def set(self, value: Any) -> None:
        """Set the value; None clears it."""
        i = self.cursor.i
        self.column[i] = value
        self.dirty[i] = 1
        if self.ttl is not None:
            self._touch(i)

    def _touch(self, i: int) -> None:
        assert self.ttl is not None
        assert self.expires is not None
        self.dirty[i] = 1
        value = self.column[i]
        self.expires[i] = None if value is None else self._chunk.expiry(self.ttl)


class TimerCell:
    """The timers of one kind of time."""

    __slots__ = ("_chunk", "column", "dirty", "hints", "kind", "past_allowed")

    def __init__(self, chunk: ChunkState, kind: TimeKind) -> None:
        self._chunk, self.kind = chunk, kind
        self.column: list[list[int] | None] = []
        self.dirty = chunk.dirty
        self.hints: list[tuple[int, int]] = []
        """(time, key) that were set in this chunk."""
        self.past_allowed = True
        """Whether a timer that is due already can fire in this epoch."""

    def load(self, column: list[list[int] | None]) -> None:
        """Take the timers of a new chunk."""
        self.column, self.hints, self.dirty = column, [], self._chunk.dirty

    def set(self, ms: int) -> bool:
        """Set a timer of the key in hand; False if it is set already."""
        i = self._chunk.cursor.i
        timers = self.column[i]
        if timers is None:
            self.column[i] = [ms]
        elif ms in timers:
            return False
        else:
            timers.append(ms)
        self.dirty[i] = 1
        now = self._chunk.now_ms(self.kind)
        # What is set while timers fire, and is due, is looked at as soon as time moves on.
        late = not self.past_allowed and now is not None and ms <= now
        self.hints.append((now + 1 if late and now is not None else ms, i))
        return True

    def delete(self, ms: int) -> bool:
        """Delete a timer of the key in hand; False if there is none."""
        return self.remove(self._chunk.cursor.i, ms)

    def remove(self, i: int, ms: int) -> bool:
        """The same for any key of the chunk."""
        timers = self.column[i]
        if timers is None or ms not in timers:
            return False
        timers.remove(ms)
        if not timers:
            self.column[i] = None
        self.dirty[i] = 1
        return True

    def list(self) -> list[int]:
        """The timers of the key in hand, in order of time."""
        return sorted(self.column[self._chunk.cursor.i] or ())


class Cells:
    """All state of one process in one task, loaded chunk by chunk."""

    def __init__(
        self,
        tables: ProcessTables,
        ttls: dict[str, Ttl | None],
        state: StateReader,
        clock: Clock,
    ) -> None:
        self.tables = tables
        self.cursor = Cursor()
        self._chunk = ChunkState(self.cursor, state, clock)
        chunk = self._chunk
        hidden = {c.expires for c in tables.values.values if c.expires is not None}
        self.values = {
            c.name: ValueCell(chunk, c.name, c.type, ttls.get(c.name))
            for c in tables.values.values
            if c.id not in hidden and not c.name.startswith("timers.")
        }
        self.timers = {kind: TimerCell(chunk, kind) for kind in tables.due}
        self.lists = {n: ListCell(chunk, s, ttls.get(n)) for n, s in tables.lists.items()}
        self.maps = {n: MapCell(chunk, s, ttls.get(n)) for n, s in tables.maps.items()}
        self.broadcast: dict[str, BroadcastCell] = {}
        """Put in by the operator, if there is a control stream."""
        self._present: Any = None

    def use(self, state: StateReader) -> None:
        """Read from here on: the state with the changes of an earlier pass."""
        self._chunk.state = state

    def begin(self, hashes: Hashes, keys: pa.Table) -> None:
        """Load the values of these keys, which are distinct and sorted."""
        chunk, schema = self._chunk, self.tables.values
        chunk.hashes, chunk.keys = hashes, keys
        chunk.dirty = bytearray(len(hashes))
        self._present = np.zeros(len(hashes), np.bool_)
        columns: dict[str, list[Any]] = {}
        if schema.values:
            found = chunk.state.lookup(schema.table, hashes, keys)
            self._present[found.query] = True
            columns = _aligned(found.rows, schema.value_names, found.query, len(hashes))
        for name, cell in self.values.items():
            cell.load(columns[name], columns.get(f"{name}.expires"))
        for kind, timer in self.timers.items():
            timer.load(columns[f"timers.{kind}"])
        for entries in (*self.lists.values(), *self.maps.values()):
            entries.begin()

    @property
    def most_appended(self) -> int:
        """How many items were appended to the list of the chunk that got most."""
        return max((cell.most for cell in self.lists.values()), default=0)

    def finish(self, first: int = 0) -> tuple[dict[str, pa.Table], int]:
        """What changed, per table, and how many keys are new (less those gone).

        ``first`` is the number of the first item that is appended to a list in this pass.
        """
        changes: dict[str, pa.Table] = {}
        rows, new = self._value_rows()
        if rows is not None:
            changes[self.tables.values.table] = rows
        for entries in (*self.lists.values(), *self.maps.values()):
            table = entries.finish(first)
            if table is not None:
                changes[entries.schema.table] = table
        for kind, timer in self.timers.items():
            if timer.hints:
                changes[self.tables.due[kind].table] = self._due_rows(timer)
        return changes, new

    def _value_rows(self) -> tuple[pa.Table | None, int]:
        chunk, schema = self._chunk, self.tables.values
        which = np.flatnonzero(np.frombuffer(chunk.dirty, np.uint8))
        if not len(which) or chunk.keys is None:
            return None, 0
        everyone = len(which) == len(chunk.hashes)
        picked = which.tolist()
        columns: dict[str, pa.Array] = {}
        empty = np.ones(len(which), np.bool_)
        for name, cell in self.values.items():
            values = cell.column if everyone else [cell.column[i] for i in picked]
            columns[name] = typed(self._chunk, name, values, cell.kind, which)
            empty &= columns[name].is_null().to_numpy(zero_copy_only=False)
            if cell.expires is not None:
                expires = cell.expires if everyone else [cell.expires[i] for i in picked]
                columns[f"{name}.expires"] = pa.array(expires, pa.int64())
        for kind, timer in self.timers.items():
            times = timer.column if everyone else [timer.column[i] for i in picked]
            columns[f"timers.{kind}"] = pa.array(times, pa.list_(pa.int64()))
            empty &= columns[f"timers.{kind}"].is_null().to_numpy(zero_copy_only=False)
        hashes = chunk.hashes if everyone else chunk.hashes[which]
        keys = [column.combine_chunks() for column in chunk.keys.columns]
        keys = keys if everyone else take_all(keys, which, ascending=True)
        present = self._present[which]
        arrays = [pa.array(hashes), *keys, *(columns[name] for name in schema.value_names)]
        new = int((~empty & ~present).sum()) - int((empty & present).sum())
        if not empty.any():
            return pa.Table.from_arrays(arrays, schema=schema.arrow), new
        # A key without any value was there before, or need not be written at all.
        table = pa.Table.from_arrays(
            [*arrays, pa.array(empty)], schema=schema.arrow_with_tombstones
        )
        return table.filter(pa.array(present | ~empty)), new

    def _due_rows(self, timer: TimerCell) -> pa.Table:
        chunk, schema = self._chunk, self.tables.due[timer.kind]
        assert chunk.keys is not None
        owners = np.array([i for _, i in timer.hints], np.int64)
        times = time_to_order(np.array([t for t, _ in timer.hints], np.int64))
        keys = take_all([column.combine_chunks() for column in chunk.keys.columns], owners)
        columns = [pa.array(times), pa.array(chunk.hashes[owners]), *keys]
        return pa.Table.from_arrays(columns, schema=schema.arrow)


def _aligned(rows: pa.Table, names: Sequence[str], query: Any, count: int) -> dict[str, list[Any]]:
    """Found values in the order of the keys asked for, None where there is no row."""
    columns = {}
    where = None if len(query) == count else query.tolist()
    for name in names:
        values = to_python(rows.column(name))
        if where is not None:
            spread: list[Any] = [None] * count
            for i, value in zip(where, values, strict=True):
                spread[i] = value
            values = spread
        columns[name] = values
    return columns
