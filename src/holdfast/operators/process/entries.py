"""Lists and maps of the keys of a chunk, while user code runs on them.

They are looked up for the whole chunk when user code first reads one: who only appends reads nothing.
A key with many rows is read entry by entry instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import ProcessingError
from holdfast.operators.process.chunk import ChunkState, typed
from holdfast.operators.process.convert import to_arrow, to_python
from holdfast.operators.process.declare import Ttl
from holdfast.operators.process.entry import as_stored, entry_low, entry_name, name_type
from holdfast.operators.process.tables import MAP_KEY
from holdfast.state.columns import take_all
from holdfast.state.hashing import entry_hashes, marker_hashes
from holdfast.state.keys import sort_rows
from holdfast.state.schema import TableSchema

__all__ = ["EntriesCell", "ListCell", "MapCell"]

# A key with more entries than this is read entry by entry.
LARGE = 256
_REMOVED = object()
_SEQUENCE_BITS = 24


class EntriesCell:
    """What lists and maps share: rows under a key, fetched for a whole chunk or one by one."""

    def __init__(self, chunk: ChunkState, schema: TableSchema, ttl: Ttl | None) -> None:
        self._chunk, self.schema, self.ttl = chunk, schema, ttl
        self.cursor = chunk.cursor
        self.kind = schema.values[0].type
        self.entry = schema.keys[-1]
        self._ranges: list[tuple[int, int]] | None = None
        self._large: set[int] = set()
        self._names: list[Any] = []
        self._values: list[Any] = []
        self.cleared: set[int] = set()

    def begin(self) -> None:
        """Forget the chunk before."""
        self._ranges = None
        self.cleared = set()

    def finish(self, first: int) -> pa.Table | None:
        """The rows to write, if any; ``first`` is a number behind those of the epoch's earlier items."""
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

    def changes(self, rows: _ChangedEntries) -> pa.Table | None:
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
            typed(chunk, schema.table, rows.names + blank, self.entry.type, owners),
        ]
        columns.append(typed(chunk, schema.table, values, self.kind, owners))
        if self.ttl is not None:
            expiry = chunk.expiry(self.ttl)
            columns.append(pa.array([None if g else expiry for g in gone.tolist()], pa.int64()))
        arrow = schema.arrow
        if gone.any():
            columns.append(pa.array(gone))
            arrow = schema.arrow_with_tombstones
        table = pa.Table.from_arrays(columns, schema=arrow)
        return sort_rows(table, len(schema.keys)).table


@dataclass(slots=True)
class _ChangedEntries:
    """Changed entries: whose, what, and the lower half of their hash."""

    owners: list[int] = field(default_factory=list)
    names: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    low: list[int] = field(default_factory=list)


class ListCell(EntriesCell):
    """A list per key."""

    def __init__(self, chunk: ChunkState, schema: TableSchema, ttl: Ttl | None) -> None:
        super().__init__(chunk, schema, ttl)
        self._appended: dict[int, list[Any]] = {}

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

    @property
    def most(self) -> int:
        """How many items were appended to the list that got most."""
        return max(map(len, self._appended.values()), default=0)

    def items(self) -> Iterator[Any]:
        """The items of the key in hand, oldest first."""
        i = self.cursor.i
        for _, value in self.stored(i):
            yield value
        yield from tuple(self._appended.get(i, ()))

    def finish(self, first: int) -> pa.Table | None:
        """The rows to write."""
        epoch, rows = self._chunk.clock.epoch, _ChangedEntries()
        base = (epoch << _SEQUENCE_BITS) + first
        for i, values in self._appended.items():
            if (first + len(values)) >> _SEQUENCE_BITS:
                raise ProcessingError(
                    f"{len(values)} items were appended to {self.schema.table} of key "
                    f"({self._chunk.words(i)}) in one epoch",
                    hint=f"append fewer than {1 << _SEQUENCE_BITS} items to a list per epoch",
                )
            rows.owners += [i] * len(values)
            rows.names += range(base, base + len(values))
            rows.values += values
        rows.low = [(epoch + 1) & 0xFFFFFFFF] * len(rows.owners)
        return self.changes(rows)


class MapCell(EntriesCell):
    """A map per key."""

    def __init__(self, chunk: ChunkState, schema: TableSchema, ttl: Ttl | None) -> None:
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
        if where is None:
            found = self._look_up(i, name)
        else:
            found = self._index(i, where).get(name, _REMOVED)
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
        rows = _ChangedEntries()
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
        hashes = entry_hashes(chunk.hashes[i : i + 1], np.array([self._low(name)], np.uint32))
        keys = chunk.key(i).append_column(MAP_KEY, to_arrow([name], self.entry.type))
        found = chunk.state.lookup(self.schema.table, hashes, keys)
        if not len(found.query):
            return _REMOVED
        return to_python(found.rows.column(self.schema.values[0].name))[0]

    def _low(self, name: Any) -> int:
        return entry_low(name, self.entry.type)
