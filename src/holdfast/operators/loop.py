"""The end of a loop: rows that the body feeds back are kept until the next epoch takes them in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.base import Clock, Operator, Place, Session, StateReader, Update
from holdfast.operators.columns import column
from holdfast.operators.input_rows import Fields, input_row_schema
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import HASH, TOMBSTONE, Column, TableSchema

__all__ = ["LoopOperator"]

_NUMBER = "_holdfast_number"
_NUMBER_BITS = 32


class LoopOperator(Operator):
    """Keeps the rows of one epoch for the next.

    Whatever it holds is read at the beginning of an epoch, so it is deleted in the same one: a row
    is in the version of the epoch that fed it back, and in no other.

    >>> operator = LoopOperator("loop", [("n", pa.int64())], most=1000)
    >>> operator.tables[0].arrow.names
    ['_holdfast_hash', '_holdfast_number', 'n']
    >>> print(operator.describe())
    loop of n: int64
    """

    needs_ticks = True
    deletes = True

    def __init__(self, id: str, columns: Fields, *, most: int) -> None:  # noqa: A002
        self.id = id
        self.columns = tuple(columns)
        self.most = most
        """How many rows may be in the loop."""
        numbered = tuple(Column(i, name, kind) for i, (name, kind) in enumerate(columns, 2))
        self._table = TableSchema(f"{id}.rows", (Column(1, _NUMBER, pa.int64()),), numbered)

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """One table: a row per row in the loop."""
        return (self._table,)

    @property
    def key_columns(self) -> int:
        """None: rows stay where they are."""
        return 0

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, order, source and the columns."""
        return input_row_schema((), self.columns)

    @property
    def output_schema(self) -> pa.Schema:
        """The columns; nothing is ever put out."""
        return pa.schema(self.columns)

    @property
    def records(self) -> str:
        """The metric that says how many rows are in the loop."""
        return f"{self.id}.records"

    def describe(self) -> str:
        """The columns; equal words mean equal state."""
        return "loop of " + ", ".join(f"{name}: {kind}" for name, kind in self.columns)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        return _LoopSession(self, state, clock)


@dataclass
class _LoopSession(Session):
    operator: LoopOperator
    state: StateReader
    clock: Clock

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Keep these rows, and let go of those that this epoch has read."""
        operator, schema = self.operator, self.operator.tables[0].arrow_with_tombstones
        new = self._numbered(rows.table, within, schema)
        read = [self._gone(table, schema) for table in self.state.scan_within(_table(self), within)]
        gone = sum(table.num_rows for table in read)
        changes = sort_rows(pa.concat_tables([new, *read]).combine_chunks(), 1).table
        return Update(
            {_table(self): changes},
            operator.output_schema.empty_table(),
            new.num_rows - gone,
            metrics={operator.records: new.num_rows},
            wants_epoch=new.num_rows > 0,
        )

    def _numbered(self, rows: pa.Table, within: HashRange, schema: pa.Schema) -> pa.Table:
        """Rows in their order, spread over the hashes of this range."""
        count = rows.num_rows
        order = np.arange(count, dtype=np.uint64)
        step = max(1, (within.last - within.first) // max(1, count))
        hashes = np.uint64(within.first) + order * np.uint64(step)
        numbers = (self.clock.epoch << _NUMBER_BITS) + order.astype(np.int64)
        arrays = [pa.array(hashes), pa.array(numbers)]
        arrays += [column(rows, name, kind) for name, kind in self.operator.columns]
        arrays.append(pa.array(np.zeros(count, np.bool_)))
        return pa.Table.from_arrays(arrays, schema=schema)

    def _gone(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        arrays = [column(rows, name, schema.field(name).type) for name in (HASH, _NUMBER)]
        arrays += [pa.nulls(rows.num_rows, kind) for _, kind in self.operator.columns]
        arrays.append(pa.array(np.ones(rows.num_rows, np.bool_)))
        assert schema.names[-1] == TOMBSTONE
        return pa.Table.from_arrays(arrays, schema=schema)


def _table(session: _LoopSession) -> str:
    return session.operator.tables[0].table
