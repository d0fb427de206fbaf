"""The windows that an epoch looks at: those with rows, and those whose time has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.aggregates.buffers import rows_of
from holdfast.operators.base import StateReader
from holdfast.operators.columns import Bits, NDArray, column, numbers
from holdfast.operators.groups import RowGroups
from holdfast.operators.window.spec import COUNT, WINDOW_START
from holdfast.operators.window.tables import CLOSED, EARLY, FIRED, WAITING, WindowTables
from holdfast.state.columns import concat, hash_values, one_array, take_all
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import HASH

__all__ = ["FoldedWindows", "gather"]

Indices = npt.NDArray[np.int64]
_GROUP = "_holdfast_group"


@dataclass(frozen=True)
class FoldedWindows:
    """Windows sorted by (hash, key, start), with the rows of this epoch folded in."""

    tables: WindowTables
    names: pa.Table
    """Hash, keys and start of each."""
    buffers: Sequence[pa.Array]
    touched: Bits
    """Which have rows in this epoch."""
    rows: Indices
    """How many input rows each has in this epoch, if rows are counted."""
    before: Indices
    """For each window its place in ``found``; -1 if the state didn't have it."""
    found: pa.Table
    """Windows as they were before this epoch."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.before)

    @cached_property
    def known(self) -> Bits:
        """Which were in state before."""
        return self.before >= 0

    @property
    def keys(self) -> pa.Table:
        """The keys alone."""
        return self.names.select([name for name, _ in self.tables.keys])

    @cached_property
    def starts(self) -> Indices:
        """The start of each in µs."""
        return numbers(one_array(self.names.column(WINDOW_START)))

    @property
    def was_closed(self) -> Bits:
        """Of those known: which had closed before this epoch."""
        return self._was(CLOSED, np.bool_) if self.tables.closed else np.zeros(self.count, np.bool_)

    @property
    def was_fired(self) -> Bits:
        """Which had fired before this epoch."""
        return self._was(FIRED, np.bool_)

    @property
    def were_waiting(self) -> Indices:
        """How many rows of earlier epochs wait for a firing."""
        return self._was(WAITING, np.int64)

    @property
    def early_ms(self) -> Indices:
        """Of those known: from when on they may fire early."""
        return self._was(EARLY, np.int64)

    def before_at(self, names: Sequence[str], places: Indices) -> list[pa.Array]:
        """Columns as they were before this epoch, of windows that were known then."""
        return take_all([one_array(self.found.column(n)) for n in names], self.before[places])

    def _was(self, name: str, dtype: type[np.generic]) -> NDArray:
        values = np.zeros(self.count, dtype)
        stored = numbers(one_array(self.found.column(name))).astype(dtype, copy=False)
        values[self.known] = stored[self.before[self.known]]
        return values


def gather(
    tables: WindowTables, rows: SortedRows, due: Sequence[pa.Table], state: StateReader
) -> FoldedWindows:
    """Find the windows of these rows, and those that are due and exist, and fold the rows in."""
    schema = tables.windows
    names = _names(tables, rows)
    asked, group = (names, np.arange(len(rows.starts))) if not due else _together(names, due)
    if asked.num_rows:
        query, found = state.lookup(schema.table, hash_values(asked), asked.drop_columns([HASH]))
    else:
        query, found = np.empty(0, np.int64), schema.arrow.empty_table()
    before = np.full(asked.num_rows, -1, np.int64)
    before[query] = np.arange(len(query))
    # A hint is never the truth: what neither has rows nor is in state isn't there.
    there = np.flatnonzero((group >= 0) | (before >= 0))
    if len(there) < asked.num_rows:
        asked, group, before = _at(asked, there), group[there], before[there]
    touched = group >= 0
    buffers = _fold(tables, rows, names, (group, before, found))
    counts = np.zeros(asked.num_rows, np.int64)
    if tables.waiting and rows.table.num_rows:
        groups = RowGroups(rows.starts, rows.table.num_rows)
        counts[touched] = groups.sum_ints(numbers(column(rows.table, COUNT, pa.int64())))
    return FoldedWindows(tables, asked, buffers, touched, counts, before, found)


def _names(tables: WindowTables, rows: SortedRows) -> pa.Table:
    """Hash, keys and start of the windows that have rows."""
    keys = tables.windows.keys
    arrays = [column(rows.table, HASH, pa.uint64())]
    arrays += [column(rows.table, c.name, c.type) for c in keys]
    if len(rows.starts) < rows.table.num_rows:
        arrays = take_all(arrays, rows.starts, ascending=True)
    return pa.Table.from_arrays(arrays, names=[HASH, *tables.windows.key_names])


def _together(names: pa.Table, due: Sequence[pa.Table]) -> tuple[pa.Table, Indices]:
    """Windows with rows and those due, sorted, each once; and which group of rows each has, or -1."""
    others = sum(table.num_rows for table in due)
    group = np.concatenate([np.arange(names.num_rows), np.full(others, -1)])
    both = pa.concat_tables([names, *due]).append_column(_GROUP, pa.array(group))
    ordered = sort_rows(both.combine_chunks(), names.num_columns - 1)
    # Equal keys keep their order: of each window the first is the one with rows.
    first = _at(ordered.table, ordered.starts)
    groups: Indices = numbers(one_array(first.column(_GROUP)))
    return first.drop_columns([_GROUP]), groups


def _fold(
    tables: WindowTables,
    rows: SortedRows,
    names: pa.Table,
    place: tuple[Indices, Indices, pa.Table],
) -> list[pa.Array]:
    """The buffers of all windows after this epoch."""
    group, before, found = place
    fields = tables.buffers.fields
    fresh = [column(rows.table, name, kind) for name, kind in fields]
    stored = [column(found, name, kind) for name, kind in fields]
    touched = group >= 0
    both = np.flatnonzero(touched & (before >= 0))
    if len(both):
        earlier = stored
        if len(both) < found.num_rows:
            earlier = take_all(stored, before[both], ascending=True)
        fresh = [concat([a, b], a.type) for a, b in zip(fresh, earlier, strict=True)]
    if names.num_rows:
        groups = RowGroups(rows.starts, rows.table.num_rows, extra=group[both])
        keys = names.select([name for name, _ in tables.keys])
        fresh = tables.buffers.merge(fresh, groups, rows_of(keys))
    if touched.all():
        return fresh
    places = np.where(touched, group, names.num_rows + before)
    joined = [concat([a, b], a.type) for a, b in zip(fresh, stored, strict=True)]
    return take_all(joined, places, ascending=True)


def _at(table: pa.Table, places: Indices) -> pa.Table:
    columns = take_all([one_array(c) for c in table.columns], places, ascending=True)
    return pa.Table.from_arrays(columns, schema=table.schema)
