"""The deduplicate operator: of each key the first row goes on, and later ones don't."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.base import Clock, FoundRows, Operator, Received, StateReader, Update
from holdfast.operators.columns import column
from holdfast.operators.event_time import LATE, EventTime, milliseconds
from holdfast.operators.input_rows import Fields, input_row_schema, receive_timed
from holdfast.state.columns import Indices, hash_values, one_array, take_all
from holdfast.state.keys import SortedRows
from holdfast.state.schema import HASH, Column, TableSchema

__all__ = ["DeduplicateOperator"]


class DeduplicateOperator(Operator):
    """Puts out the first row of every key that it has not seen.

    Of a key's rows in one epoch the first is the one that comes first in its source. A key is
    remembered for ever; with ``expires_after_ms`` until the watermark reaches the event time of its
    first row and that much more: for the delay of the watermark that is what Spark's
    ``dropDuplicatesWithinWatermark`` does, and for 0 what its ``dropDuplicates`` does when the event
    time is part of the key. Then late rows go to the side output ``late``.

    >>> operator = DeduplicateOperator("deduplicate", [("id", pa.int64())], [("id", pa.int64())])
    >>> print(operator.describe())
    deduplicate by id: int64
    >>> operator.tables[0].arrow.names
    ['_holdfast_hash', 'id']
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        columns: Fields,
        *,
        event_time: EventTime | None = None,
        expires_after_ms: int | None = None,
    ) -> None:
        if expires_after_ms is not None and event_time is None:
            raise ValueError("what expires needs an event time")
        self.id = id
        self.columns = tuple(columns)
        self.event_time = event_time
        self.expires_after_ms = expires_after_ms
        self._keys = tuple(keys)
        numbered = tuple(Column(i, name, kind) for i, (name, kind) in enumerate(keys, 1))
        values: tuple[Column, ...] = ()
        if expires_after_ms is not None:
            seen, expires = len(keys) + 1, len(keys) + 2
            values = (
                Column(seen, "seen", pa.bool_(), expires=expires, clock="event"),
                Column(expires, "expires", pa.int64()),
            )
        self._table = TableSchema(f"{id}.seen", numbered, values)
        if event_time is not None:
            self.side_schemas = {LATE: pa.schema(self.columns)}

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """One table: a row per key that has been seen."""
        return (self._table,)

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, order, source, then the other columns."""
        return input_row_schema(self._keys, self.columns)

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of the input."""
        return pa.schema(self.columns)

    def describe(self) -> str:
        """The keys, and how long they are remembered; equal words mean equal state."""
        keys = ", ".join(f"{name}: {kind}" for name, kind in self._keys)
        if self.expires_after_ms is None:
            return f"deduplicate by {keys}"
        return f"deduplicate by {keys}\nuntil {self.expires_after_ms} ms after the event"

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time, and set late rows apart."""
        return receive_timed(rows, self.event_time, clock.late_ms, self.columns)

    def combine(self, rows: SortedRows) -> SortedRows:
        """Only the first row of each key."""
        if len(rows.starts) == rows.table.num_rows:
            return rows
        return SortedRows(_at(rows.table, rows.starts), np.arange(len(rows.starts)), rows.keys)

    def update(self, rows: SortedRows, state: StateReader, clock: Clock) -> Update:
        """Put out the first row of each key that the state doesn't know, and remember it."""
        del clock
        first = self.combine(rows).table
        fresh = np.ones(first.num_rows, np.bool_)
        fresh[self._find(first, state).query] = False
        if not fresh.all():
            first = _at(first, np.flatnonzero(fresh))
        changes = {self._table.table: self._remembered(first)}
        return Update(changes, self._columns(first), first.num_rows)

    def _find(self, first: pa.Table, state: StateReader) -> FoundRows:
        if not first.num_rows:
            return FoundRows(np.empty(0, np.int64), self._table.arrow.empty_table())
        keys = [column(first, c.name, c.type) for c in self._table.keys]
        named = pa.Table.from_arrays(keys, names=self._table.key_names)
        return state.lookup(self._table.table, hash_values(first), named)

    def _remembered(self, first: pa.Table) -> pa.Table:
        arrays = [column(first, HASH, pa.uint64())]
        arrays += [column(first, c.name, c.type) for c in self._table.keys]
        if self.expires_after_ms is not None:
            assert self.event_time is not None
            arrays.append(pa.array(np.ones(first.num_rows, np.bool_)))
            times = milliseconds(first.column(self.event_time.column), up=True)
            arrays.append(pc.add(times, self.expires_after_ms))
        return pa.Table.from_arrays(arrays, schema=self._table.arrow)

    def _columns(self, rows: pa.Table) -> pa.Table:
        arrays = [column(rows, name, kind) for name, kind in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.output_schema)


def _at(table: pa.Table, places: Indices) -> pa.Table:
    columns = take_all([one_array(c) for c in table.columns], places, ascending=True)
    return pa.Table.from_arrays(columns, schema=table.schema)
