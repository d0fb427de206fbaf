"""The state of the keys of one chunk, as Python values, while user code runs on it.

A *chunk* is a few thousand keys. The values of all of them are looked up at once when the chunk
begins. Lists and maps are looked up for the whole chunk too, but only when user code first reads
one: who only appends reads nothing. Lists and maps with many rows are read entry by entry instead.
What was changed becomes Arrow rows when the chunk ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import ProcessingError
from holdfast.operators.base import Clock, StateReader
from holdfast.operators.process.convert import first_misfit, to_arrow, to_python
from holdfast.operators.process.declare import TimeKind, Ttl
from holdfast.operators.process.entry import as_stored, entry_low, entry_name, name_type
from holdfast.operators.process.tables import MAP_KEY, ProcessTables
from holdfast.state.columns import take_all
from holdfast.state.hashing import Hashes, entry_hashes, marker_hashes
from holdfast.state.keys import sort_rows
from holdfast.state.schema import TableSchema, time_to_order
from holdfast.types import type_words

if TYPE_CHECKING:
    from holdfast.operators.process.broadcast import BroadcastCell

__all__ = ["Cells", "Cursor", "ListCell", "MapCell", "TimerCell", "ValueCell"]

# A key with more entries than this is read entry by entry.
LARGE = 256
_REMOVED = object()
_SEQUENCE_BITS = 24


class Cursor:
    """Which key of the chunk user code is working on."""

    __slots__ = ("i",)

    def __init__(self) -> None:
        self.i = 0


@dataclass(slots=True)
class _Chunk:
    """What cells share: the keys in hand, and where to find their state."""

    cursor: Cursor
    state: StateReader
    clock: Clock
    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    keys: pa.Table | None = None
    dirty: bytearray = field(default_factory=bytearray)
    """Per key whether its row of values changed."""

    def key(self, i: int) -> pa.Table:
        assert self.keys is not None
        return self.keys.slice(i, 1)

    def now_ms(self, clock: TimeKind) -> int | None:
        return self.clock.processing_time_ms if clock == "processing" else self.clock.watermark_ms

    def expiry(self, ttl: Ttl) -> int | None:
        """When something written now expires; before the first watermark event time stands still."""
        now = self.now_ms(ttl.clock)
        return None if now is None else now + ttl.ms

    def words(self, i: int) -> str:
        row = self.key(i).to_pylist()[0]
        return ", ".join(f"{name}={value!r}" for name, value in row.items())


class ValueCell:
    """One value column."""

    __slots__ = ("_chunk", "column", "cursor", "dirty", "expires", "kind", "name", "ttl")

    def __init__(self, chunk: _Chunk, name: str, kind: pa.DataType, ttl: Ttl | None) -> None:
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

    def __init__(self, chunk: _Chunk, kind: TimeKind) -> None:
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


class _EntriesCell:
    """What lists and maps share: rows under a key, fetched for a whole chunk or one by one."""

    def __init__(self, chunk: _Chunk, schema: TableSchema, ttl: Ttl | None) -> None:
        self._chunk, self.schema, self.ttl = chunk, schema, ttl
        self.cursor = chunk.cursor
        self.prefix = schema.prefix
        self.kind = schema.values[0].type
        self.entry = schema.keys[-1]
        self._ranges: list[tuple[int, int]] | None = None
        self._large: set[int] = set()
        self._names: list[Any] = []
        self._values: list[Any] = []
        self._expires: list[Any] = []
        self.cleared: set[int] = set()

    def begin(self) -> None:
        """Forget the chunk before."""
        self._ranges = None
        self.cleared = set()

    def finish(self, first: int) -> pa.Table | None:
        """The rows to write, if any; ``first`` is the place of the pass in its epoch."""
        raise NotImplementedError

    def fetched(self, i: int) -> tuple[int, int] | None:
        """Where key i's rows lie among those fetched; None if it has too many to be fetched."""
        if self._ranges is None:
            self._fetch()
        assert self._ranges is not None
        return None if i in self._large else self._ranges[i]

    def _fetch(self) -> None:
        chunk = self._chunk
        assert chunk.keys is not None
        found = chunk.state.lookup_prefix(self.schema.table, chunk.hashes, chunk.keys, LARGE)
        count = len(chunk.hashes)
        starts = found.query.searchsorted(np.arange(count)).tolist()
        ends = found.query.searchsorted(np.arange(count), side="right").tolist()
        self._ranges = list(zip(starts, ends, strict=True))
        self._large = set(found.large.tolist())
        self._take(found.rows)

    def _take(self, rows: pa.Table) -> None:
        self._names = to_python(rows.column(self.entry.name))
        self._values = to_python(rows.column(self.schema.values[0].name))
        if self.ttl is not None:
            self._expires = to_python(rows.column(self.schema.values[1].name))

    def stored(self, i: int) -> Iterator[tuple[Any, Any]]:
        """The entries of key i before this epoch, however many there are."""
        if i in self.cleared:
            return
        where = self.fetched(i)
        if where is not None:
            for at in range(*where):
                yield self._names[at], self._values[at]
            return
        chunk = self._chunk
        value = self.schema.values[0].name
        pieces = chunk.state.scan_prefix(self.schema.table, int(chunk.hashes[i]), chunk.key(i))
        for piece in pieces:
            names, values = to_python(piece.column(self.entry.name)), to_python(piece.column(value))
            yield from zip(names, values, strict=True)

    def changes(self, rows: _Rows) -> pa.Table | None:
        """Rows for the table, sorted, or None if nothing changed."""
        markers = sorted(self.cleared)
        if not rows.owners and not markers:
            return None
        chunk, schema = self._chunk, self.schema
        assert chunk.keys is not None
        owners = np.array(rows.owners + markers, np.int64)
        low = np.array(rows.low, np.uint32)
        hashes = np.concatenate(
            [
                entry_hashes(chunk.hashes[owners[: len(low)]], low),
                marker_hashes(chunk.hashes[markers]),
            ]
        )
        keys = take_all([column.combine_chunks() for column in chunk.keys.columns], owners)
        blank = [None] * len(markers)
        gone = np.array([v is _REMOVED for v in rows.values] + [True] * len(markers), np.bool_)
        values = [None if v is _REMOVED else v for v in rows.values] + blank
        columns = [
            pa.array(hashes),
            *keys,
            self._typed(rows.names + blank, self.entry.type, owners),
        ]
        columns.append(self._typed(values, self.kind, owners))
        if self.ttl is not None:
            expiry = chunk.expiry(self.ttl)
            columns.append(pa.array([None if g else expiry for g in gone.tolist()], pa.int64()))
        arrow = schema.arrow
        if gone.any():
            columns.append(pa.array(gone))
            arrow = schema.arrow_with_tombstones
        table = pa.Table.from_arrays(columns, schema=arrow)
        return sort_rows(table, len(schema.keys)).table

    def _typed(self, values: list[Any], kind: pa.DataType, owners: Any) -> pa.Array:
        try:
            return to_arrow(values, kind)
        except Exception as error:
            misfit = first_misfit(values, kind)
            if misfit is None:
                raise
            raise _misfit(self._chunk, self.schema.table, kind, values, misfit, owners) from error


@dataclass(slots=True)
class _Rows:
    """Changed entries: whose, what, and the lower half of their hash."""

    owners: list[int] = field(default_factory=list)
    names: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    low: list[int] = field(default_factory=list)


class ListCell(_EntriesCell):
    """A list per key."""

    def __init__(self, chunk: _Chunk, schema: TableSchema, ttl: Ttl | None) -> None:
        super().__init__(chunk, schema, ttl)
        self._appended: dict[int, list[Any]] = {}
        self._offset: dict[int, int] = {}

    def begin(self) -> None:
        """Forget the chunk before."""
        super().begin()
        self._appended = {}

    def append(self, value: Any) -> None:
        """Add an item to the list of the key in hand."""
        self._appended.setdefault(self.cursor.i, []).append(value)

    def clear(self) -> None:
        """Remove all items of the key in hand."""
        i = self.cursor.i
        self.cleared.add(i)
        self._appended.pop(i, None)

    def items(self) -> Iterator[Any]:
        """The items of the key in hand, oldest first."""
        i = self.cursor.i
        for _, value in self.stored(i):
            yield value
        yield from tuple(self._appended.get(i, ()))

    def finish(self, first: int) -> pa.Table | None:
        """The rows to write."""
        epoch, rows = self._chunk.clock.epoch, _Rows()
        base = (epoch << _SEQUENCE_BITS) + (first << (_SEQUENCE_BITS - 2))
        for i, values in self._appended.items():
            if len(values) >> (_SEQUENCE_BITS - 2):
                raise ProcessingError(
                    f"{len(values)} items were appended to {self.schema.table} of key "
                    f"({self._chunk.words(i)}) in one epoch",
                    hint=f"append fewer than {1 << (_SEQUENCE_BITS - 2)} items to a list per epoch",
                )
            rows.owners += [i] * len(values)
            rows.names += range(base, base + len(values))
            rows.values += values
        rows.low = [(epoch + 1) & 0xFFFFFFFF] * len(rows.owners)
        return self.changes(rows)


class MapCell(_EntriesCell):
    """A map per key."""

    def __init__(self, chunk: _Chunk, schema: TableSchema, ttl: Ttl | None) -> None:
        super().__init__(chunk, schema, ttl)
        self._written: dict[int, dict[Any, Any]] = {}
        self._indexes: dict[int, dict[Any, Any]] = {}
        self._plain = name_type(self.entry.type)

    def begin(self) -> None:
        """Forget the chunk before."""
        super().begin()
        self._written, self._indexes = {}, {}

    def get(self, name: Any, default: Any = None) -> Any:
        """The value of an entry of the key in hand."""
        if type(name) is not self._plain:
            name = entry_name(name, self.entry.type)
        i = self.cursor.i
        written = self._written.get(i)
        if written is not None and name in written:
            value = written[name]
            return default if value is _REMOVED else value
        if i in self.cleared:
            return default
        where = self.fetched(i)
        found = self._index(i, where).get(name, _REMOVED) if where else self._look_up(i, name)
        if found is _REMOVED:
            return default
        if self.ttl is not None and self.ttl.on_read:
            self.set(name, found)
        return found

    def contains(self, name: Any) -> bool:
        """Whether there is such an entry."""
        return self.get(name, _REMOVED) is not _REMOVED

    def set(self, name: Any, value: Any) -> None:
        """Set an entry."""
        if type(name) is not self._plain:
            name = entry_name(name, self.entry.type)
        self._written.setdefault(self.cursor.i, {})[name] = value

    def remove(self, name: Any) -> None:
        """Remove an entry, if it is there."""
        if type(name) is not self._plain:
            name = entry_name(name, self.entry.type)
        self._written.setdefault(self.cursor.i, {})[name] = _REMOVED

    def clear(self) -> None:
        """Remove all entries of the key in hand."""
        i = self.cursor.i
        self.cleared.add(i)
        self._written.pop(i, None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The entries of the key in hand."""
        i = self.cursor.i
        written = dict(self._written.get(i, ()))
        for stored, value in self.stored(i):
            name = as_stored(stored)
            if name not in written:
                yield name, value
        yield from ((name, value) for name, value in written.items() if value is not _REMOVED)

    def finish(self, first: int) -> pa.Table | None:
        """The rows to write."""
        del first
        rows = _Rows()
        for i, entries in self._written.items():
            rows.owners += [i] * len(entries)
            rows.names += entries
            rows.values += entries.values()
        rows.low = [self._low(name) for name in rows.names]
        return self.changes(rows)

    def _index(self, i: int, where: tuple[int, int]) -> dict[Any, Any]:
        index = self._indexes.get(i)
        if index is None:
            names, values = self._names, self._values
            index = {as_stored(names[at]): values[at] for at in range(*where)}
            self._indexes[i] = index
        return index

    def _look_up(self, i: int, name: Any) -> Any:
        chunk = self._chunk
        if i not in self._large:
            return _REMOVED
        hashes = entry_hashes(chunk.hashes[i : i + 1], np.array([self._low(name)], np.uint32))
        keys = chunk.key(i).append_column(MAP_KEY, to_arrow([name], self.entry.type))
        found = chunk.state.lookup(self.schema.table, hashes, keys)
        if not len(found.query):
            return _REMOVED
        return to_python(found.rows.column(self.schema.values[0].name))[0]

    def _low(self, name: Any) -> int:
        return entry_low(name, self.entry.type)


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
        self._chunk = _Chunk(self.cursor, state, clock)
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

    def finish(self, first: int = 0) -> tuple[dict[str, pa.Table], int]:
        """What changed, per table, and how many keys are new (less those gone)."""
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
            columns[name] = self._typed(cell, values, which)
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

    def _typed(self, cell: ValueCell, values: Sequence[Any], owners: Any) -> pa.Array:
        try:
            return to_arrow(values, cell.kind)
        except Exception as error:
            misfit = first_misfit(values, cell.kind)
            if misfit is None:
                raise
            raise _misfit(self._chunk, cell.name, cell.kind, values, misfit, owners) from error

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


def _misfit(
    chunk: _Chunk,
    state: str,
    kind: pa.DataType,
    values: Sequence[Any],
    misfit: tuple[int, Exception],
    owners: Any,
) -> ProcessingError:
    index, error = misfit
    value = values[index]
    return ProcessingError(
        f"state {state!r} of key ({chunk.words(int(owners[index]))}) was given {value!r} "
        f"({type(value).__name__}), which is no {type_words(kind)}: {error}",
        hint="convert it in the process, or declare the state with another type",
    )
