"""The aggregate operator: one row of state per key, holding the buffers of every aggregate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.buffers import Buffers, Overflow, Whose, rows_of
from holdfast.operators.aggregates.kinds import AggregateSpec
from holdfast.operators.base import Clock, FoundRows, KeyReader, Operator, Update
from holdfast.operators.columns import column
from holdfast.operators.groups import RowGroups
from holdfast.state.columns import concat, hash_values, take
from holdfast.state.keys import SortedRows
from holdfast.state.schema import HASH, Column, TableSchema

__all__ = ["AggregateOperator"]


class AggregateOperator(Operator):
    """Folds buffer rows into one state row per key and finishes it into results.

    >>> from holdfast.operators.aggregates.kinds import Input
    >>> operator = AggregateOperator("totals", [("user", pa.string())], [
    ...     AggregateSpec("n", "count"), AggregateSpec("mean", "avg", (Input("x", pa.int32()),))])
    >>> operator.tables[0].value_names
    ['n.count', 'mean.sum', 'mean.count']
    >>> print(operator.describe())
    aggregate by user: string
    n: count() -> int64
    mean: avg(int32) -> double
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Sequence[tuple[str, pa.DataType]],
        aggregates: Sequence[AggregateSpec],
    ) -> None:
        self.id = id
        self.aggregates = tuple(aggregates)
        self._buffers = Buffers(aggregates)
        columns = [*keys, *self._buffers.fields]
        numbered = [Column(i, name, kind) for i, (name, kind) in enumerate(columns, 1)]
        self._table = TableSchema(
            f"{id}.groups", tuple(numbered[: len(keys)]), tuple(numbered[len(keys) :])
        )

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """One table: a row per key."""
        return (self._table,)

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys and buffers: what the table holds, without the ids of its columns."""
        return self._table.arrow.remove_metadata()

    @cached_property
    def output_schema(self) -> pa.Schema:
        """Keys and results."""
        fields = [pa.field(c.name, c.type) for c in self._table.keys]
        fields += [pa.field(name, kind) for name, kind in self._buffers.results]
        return pa.schema(fields)

    def describe(self) -> str:
        """Keys, aggregates, types and options in words; equal words mean equal state."""
        keys = ", ".join(f"{c.name}: {c.type}" for c in self._table.keys)
        return "\n".join([f"aggregate by {keys}", *map(str, self.aggregates)])

    def combine(self, rows: SortedRows) -> SortedRows:
        """Merge the buffers of equal keys."""
        groups = RowGroups(rows.starts, rows.table.num_rows)
        if groups.count == groups.rows:
            return rows
        keys = self._keys(rows)
        try:
            buffers = self._buffers.merge(self._buffers.of(rows.table), groups, self._whose(keys))
        except Overflow:  # Together with the state, rows of both signs may fit all the same.
            return rows
        table = pa.Table.from_arrays([*keys.columns, *buffers], schema=self.input_schema)
        return SortedRows(table, np.arange(groups.count), rows.keys)

    def update(self, rows: SortedRows, state: KeyReader, clock: Clock) -> Update:
        """Fold rows into state; output the new results of every key that has rows."""
        del clock  # results depend on rows alone
        keys = self._keys(rows)
        found = self._find(keys, state)
        columns = self._buffers.of(rows.table)
        if len(found.query):
            both = zip(columns, self._buffers.of(found.rows), strict=True)
            columns = [concat(pair, pair[0].type) for pair in both]
        groups = RowGroups(rows.starts, rows.table.num_rows, extra=found.query)
        buffers = self._buffers.merge(columns, groups, self._whose(keys))
        changes = pa.Table.from_arrays([*keys.columns, *buffers], schema=self._table.arrow)
        results = self._buffers.finish(buffers, self._whose(keys))
        output = pa.Table.from_arrays([*keys.columns[1:], *results], schema=self.output_schema)
        return Update({self._table.table: changes}, output, groups.count - len(found.query))

    def _keys(self, rows: SortedRows) -> pa.Table:
        """Hash and keys of each group."""
        columns = [column(rows.table, HASH, pa.uint64())]
        columns += [column(rows.table, c.name, c.type) for c in self._table.keys]
        if len(rows.starts) < rows.table.num_rows:
            columns = [take(c, rows.starts, ascending=True) for c in columns]
        return pa.Table.from_arrays(columns, names=[HASH, *self._table.key_names])

    def _find(self, keys: pa.Table, state: KeyReader) -> FoundRows:
        if not keys.num_rows:
            return FoundRows(np.empty(0, np.int64), self._table.arrow.empty_table())
        return state.lookup(
            self._table.table, hash_values(keys), keys.select(self._table.key_names)
        )

    def _whose(self, keys: pa.Table) -> Whose:
        return rows_of(keys.select(self._table.key_names))
