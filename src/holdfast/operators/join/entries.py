"""Rows of a join that wait in state: a prefixed table of them, and hints when to look at which key.

A row is found under its key by its time and by when it arrived (epoch and place in it). What tells
the hashes of a key's rows apart is their arrival too: rows of an epoch that are sorted by key are
so sorted by hash already, and those of different epochs don't share hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.base import Clock, StateReader
from holdfast.operators.columns import Bits, numbers
from holdfast.operators.input_rows import Fields
from holdfast.operators.join.matching import Micros, order_by_time
from holdfast.operators.join.rows import KeySpace, SideRows, take_rows
from holdfast.state.columns import Indices, hash_values, one_array
from holdfast.state.hashing import Hashes, HashRange, entry_hashes
from holdfast.state.keys import SortedRows, merge_sorted, sort_rows
from holdfast.state.schema import (
    HASH,
    Column,
    TableSchema,
    order_to_time,
    time_to_order,
)

__all__ = ["EntryTable", "JoinHints", "StoredSideRows"]

_AT = "_holdfast_at"
_ARRIVAL = "_holdfast_arrival"
_MATCHED = "_holdfast_matched"
_EXPIRES = "_holdfast_expires"
# A key with more rows than this is read for itself.
LARGE = 1 << 17
# Of the 32 bits that tell a key's rows apart: the row's place in its epoch; the rest is the epoch.
_PLACE_BITS = 16
_NONE: Indices = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class StoredSideRows(SideRows):
    """Rows of one side that came in epochs before."""

    entries: pa.Table
    """The same rows as the state has them; ``places`` are places in it too."""
    matched: Bits
    """Which of them had a match before, where that is kept."""


@dataclass(frozen=True)
class EntryTable:
    """The state table of one side's rows.

    >>> fields = [("k", pa.string()), ("ts", pa.timestamp("us")), ("x", pa.int64())]
    >>> EntryTable("join.left", fields[:1], fields, "ts", marks=True).schema.arrow.names
    ['_holdfast_hash', 'k', '_holdfast_at', '_holdfast_arrival', 'x', '_holdfast_matched']
    """

    name: str
    on: Fields
    fields: Fields
    time: str
    marks: bool = False
    """Whether it is kept that a row had a match."""
    expires: bool = False
    """Whether rows expire by event time."""

    @cached_property
    def schema(self) -> TableSchema:
        """Keys, time and arrival, then the side's other columns."""
        keys = [*self.on, (_AT, pa.int64()), (_ARRIVAL, pa.int64())]
        values = list(self._others)
        if self.marks:
            values.append((_MATCHED, pa.bool_()))
        if self.expires:
            values.append((_EXPIRES, pa.int64()))
        last = len(keys) + len(values)
        # A row is gone when its last value has expired: so all of them do, the time itself as well.
        expiry = {"expires": last, "clock": "event"} if self.expires else {}
        return TableSchema(
            self.name,
            tuple(Column(i, name, kind) for i, (name, kind) in enumerate(keys, 1)),
            tuple(
                Column(i, name, kind, **expiry)  # type: ignore[arg-type]
                for i, (name, kind) in enumerate(values, len(keys) + 1)
            ),
            prefix=len(self.on),
        )

    @cached_property
    def _others(self) -> Fields:
        known = {self.time, *(name for name, _ in self.on)}
        return [(name, kind) for name, kind in self.fields if name not in known]

    def find(self, state: StateReader, space: KeySpace, wanted: Bits) -> StoredSideRows:
        """All rows of the keys that are wanted."""
        asked = np.flatnonzero(wanted)
        entries, groups = self.schema.arrow.empty_table(), np.empty(0, np.int64)
        large: list[int] = []
        if len(asked):
            keys = pa.Table.from_arrays(
                take_rows([one_array(c) for c in space.keys.columns], asked),
                names=space.keys.column_names,
            )
            found = state.lookup_prefix(self.name, space.hashes[asked], keys, LARGE)
            entries, groups = found.rows, asked[found.query]
            large = asked[found.large].tolist()
        for number in large:
            pieces = list(
                state.scan_prefix(self.name, int(space.hashes[number]), space.keys.slice(number, 1))
            )
            count = sum(piece.num_rows for piece in pieces)
            entries = pa.concat_tables([entries, *pieces])
            groups = np.concatenate([groups, np.full(count, number)])
        return self._stored(entries.combine_chunks() if large else entries, groups)

    def _stored(self, entries: pa.Table, groups: Indices) -> StoredSideRows:
        micros = numbers(one_array(entries.column(_AT)))
        arrivals = numbers(one_array(entries.column(_ARRIVAL)))
        if (groups[1:] >= groups[:-1]).all():
            order = order_by_time(groups, micros, arrivals)
        else:
            order = np.lexsort((arrivals, micros, groups))
        places = np.arange(len(groups)) if order is None else order
        matched = np.zeros(len(groups), np.bool_)
        if self.marks:
            marks = one_array(entries.column(_MATCHED)).to_numpy(zero_copy_only=False)
            matched = marks.astype(np.bool_)[places]
        return StoredSideRows(
            self._columns(entries), places, groups[places], micros[places], entries, matched
        )

    def _columns(self, entries: pa.Table) -> pa.Table:
        keys = {name for name, _ in self.on}
        arrays = []
        for name, kind in self.fields:
            if name == self.time and name not in keys:
                arrays.append(one_array(entries.column(_AT)).view(kind))
            else:
                arrays.append(one_array(entries.column(name)))
        return pa.Table.from_arrays(arrays, schema=pa.schema(self.fields))

    def new(
        self,
        rows: SideRows,
        kept: Indices,
        space: KeySpace,
        epoch: int,
        *,
        matched: Bits | None = None,
        expires: Micros | None = None,
    ) -> pa.Table:
        """The table's rows for those of this epoch that are ``kept``; sorted."""
        hashes = space.hashes[rows.groups[kept]]
        places = _places(hashes)
        low = (epoch << _PLACE_BITS) + np.minimum(places + 1, (1 << _PLACE_BITS) - 1)
        arrays = [pa.array(entry_hashes(hashes, (low & 0xFFFFFFFF).astype(np.uint32)))]
        arrays += rows.at(kept, [name for name, _ in self.on])
        arrays += [pa.array(rows.micros[kept]), pa.array((epoch << 32) + places)]
        arrays += rows.at(kept, [name for name, _ in self._others])
        if matched is not None:
            arrays.append(pa.array(matched))
        if expires is not None:
            arrays.append(pa.array(expires))
        table = pa.Table.from_arrays(arrays, schema=self.schema.arrow)
        if int(places.max(initial=0)) + 1 >= 1 << _PLACE_BITS:
            return sort_rows(table, len(self.schema.keys)).table
        return table

    def changes(
        self, new: pa.Table, stored: StoredSideRows, gone: Indices, matched: Indices
    ) -> pa.Table:
        """New rows, and of those stored some that are gone and some that now have a match."""
        if not len(gone) and not len(matched):
            return new
        arrow = self.schema.arrow_with_tombstones
        parts = [new.append_column(arrow[-1], pa.array(np.zeros(new.num_rows, np.bool_)))]
        if len(gone):
            arrays = _entries(stored, gone, [HASH, *self.schema.key_names])
            arrays += [pa.nulls(len(gone), column.type) for column in self.schema.values]
            arrays.append(pa.array(np.ones(len(gone), np.bool_)))
            parts.append(pa.Table.from_arrays(arrays, schema=arrow))
        if len(matched):
            arrays = _entries(stored, matched, self.schema.arrow.names[:-1])
            arrays.append(pa.array(np.ones(len(matched), np.bool_)))
            arrays.append(pa.array(np.zeros(len(matched), np.bool_)))
            parts.append(pa.Table.from_arrays(arrays, schema=arrow))
        # Each part is sorted but for keys that share half a hash; the merge puts those right too.
        keys = len(self.schema.keys)
        return merge_sorted([SortedRows(part, _NONE, keys) for part in parts]).table


@dataclass(frozen=True)
class JoinHints:
    """The timed table that says when to look at which key."""

    name: str
    on: Fields

    @cached_property
    def schema(self) -> TableSchema:
        """Keys by event time."""
        keys = tuple(Column(i, name, kind) for i, (name, kind) in enumerate(self.on, 1))
        return TableSchema(self.name, keys, (), timed="event")

    def due(self, state: StateReader, clock: Clock, within: HashRange) -> pa.Table:
        """The hints that the watermark has reached in this epoch."""
        if clock.watermark_ms is None:
            return self.schema.arrow.empty_table()
        hints = state.due(self.name, clock.watermark_ms, within)
        if clock.previous_watermark_ms is None or not hints.num_rows:
            return hints
        # Older ones have done their work; they may be there or not, as merges go.
        fresh = order_to_time(hash_values(hints)) > clock.previous_watermark_ms
        return hints if fresh.all() else hints.filter(pa.array(fresh))

    def new(self, groups: Indices, times_ms: Micros, space: KeySpace) -> pa.Table:
        """Hints for rows that are sorted by key and time."""
        first = np.ones(len(groups), np.bool_)
        first[1:] = (groups[1:] != groups[:-1]) | (times_ms[1:] != times_ms[:-1])
        groups, times_ms = groups[first], times_ms[first]
        arrays = [pa.array(time_to_order(times_ms)), pa.array(space.hashes[groups])]
        arrays += take_rows([one_array(c) for c in space.keys.columns], groups)
        return pa.Table.from_arrays(arrays, schema=self.schema.arrow)


def _places(hashes: Hashes) -> Indices:
    """The place of each row among those whose hashes have the same upper half; they are sorted."""
    upper = hashes >> np.uint64(32)
    starts = np.flatnonzero(np.concatenate(([len(upper) > 0], upper[1:] != upper[:-1])))
    sizes = np.diff(starts, append=len(upper))
    places: Indices = np.arange(len(upper)) - np.repeat(starts, sizes)
    return places


def _entries(stored: StoredSideRows, picked: Indices, names: Sequence[str]) -> list[pa.Array]:
    """Columns of stored rows, in the order of the state table."""
    columns = [one_array(stored.entries.column(name)) for name in names]
    return take_rows(columns, np.sort(stored.places[picked]))
