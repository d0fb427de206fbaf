"""Epochs without Spark: state in a dictionary, and plain Python as the oracle of every aggregate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from holdfast.operators.aggregates.kinds import AggregateSpec, Input, make_merger
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.aggregates.sums import sum_type
from holdfast.operators.base import Clock, FoundRows
from holdfast.state.hashing import Hashes, partition_of
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import HASH, TableSchema

Key = tuple[Any, ...]
Row = Mapping[str, Any]


def plain(value: Any) -> Any:
    """A value that equals itself: one NaN, no negative zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def ordered(value: Any) -> tuple[Any, ...]:
    """Spark's ascending order: nulls, then numbers, then NaN; text by its bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


@dataclass
class DictState:
    """The state reader of these tests; keys of equal hash are told apart by the keys alone."""

    schema: TableSchema
    table: pa.Table = field(init=False)
    index: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = self.schema.arrow.empty_table()

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        assert table == self.schema.table
        assert keys.column_names == self.schema.key_names
        places = [self.index.get(key) for key in keys_of(keys, self.schema)]
        assert len(places) == len(hashes)
        query = [i for i, place in enumerate(places) if place is not None]
        rows = self.table.take(pa.array([p for p in places if p is not None], pa.int64()))
        return FoundRows(np.array(query, np.int64), rows)

    def apply(self, changes: pa.Table) -> None:
        assert changes.schema.equals(self.schema.arrow, check_metadata=True)
        changed = keys_of(changes, self.schema)
        assert len(set(changed)) == len(changed)
        kept = [place for key, place in self.index.items() if key not in set(changed)]
        self.table = pa.concat_tables([self.table.take(pa.array(kept, pa.int64())), changes])
        self.index = {key: i for i, key in enumerate(keys_of(self.table, self.schema))}


def keys_of(table: pa.Table, schema: TableSchema) -> list[Key]:
    columns = [table.column(name).to_pylist() for name in schema.key_names]
    return [tuple(map(plain, key)) for key in zip(*columns, strict=True)]


def run_epoch(
    operator: AggregateOperator,
    state: DictState,
    rows: pa.Table,
    partitions: int,
    results: dict[Key, Row],
    *,
    combine: bool = False,
) -> None:
    """One epoch of buffer rows, a task per partition, each reading the state before the epoch."""
    updates = []
    parts = partition_of(rows.column(0).to_numpy(), partitions)
    for partition in range(partitions):
        part = rows.filter(pa.array(parts == partition)).combine_chunks()
        work: SortedRows = sort_rows(part, len(operator.tables[0].keys))
        if combine:
            work = operator.combine(work)
        updates.append(operator.update(work, state, Clock(0, 0)))
    before = len(state.index)
    for update in updates:
        assert update.output.schema.equals(operator.output_schema)
        state.apply(update.changes[operator.tables[0].table])
        keys = keys_of(update.output, operator.tables[0])
        results.update(zip(keys, update.output.to_pylist(), strict=True))
    assert len(state.index) - before == sum(u.new_keys for u in updates)


# One aggregate over (key, value, order) rows, the key a whole number.

Triple = tuple[int, Any, Any]


def lift(kind: str, types: Sequence[pa.DataType], value: Any, order: Any) -> list[Any]:
    """The buffer of one row, as Spark's expressions make it."""
    present = value is not None
    if kind == "count":
        return [1]
    if kind == "avg":
        decimal = pa.types.is_decimal128(types[0])
        return [value if decimal or not present else float(value), int(present)]
    if kind.startswith(("var", "stddev")):
        number = float(value) if present else 0.0
        return [int(present), number, number - number]
    if kind in ("first", "last"):
        return [order, value if order is not None else None]
    if kind == "collect_set":
        return [[value] if present else []]
    if kind == "collect_list":
        return [[order], [value]] if present else [[], []]
    return [value]


def aggregate(
    kind: str,
    types: Sequence[pa.DataType],
    epochs: Sequence[Sequence[Triple]],
    *,
    partitions: int = 1,
    combine: bool = False,
    **options: int,
) -> dict[int, Any]:
    """Fold epochs of (key, value, order) through one aggregate; its result per key."""
    inputs = tuple(Input(f"column {i}", kind) for i, kind in enumerate(types))
    spec = AggregateSpec("x", kind, inputs, tuple(options.items()))
    operator = AggregateOperator("test", [("key", pa.int64())], [spec])
    state = DictState(operator.tables[0])
    results: dict[Key, Row] = {}
    for epoch in epochs:
        rows = buffer_rows(operator, [(k, lift(kind, types, v, o)) for k, v, o in epoch])
        run_epoch(operator, state, rows, partitions, results, combine=combine)
    return {key[0]: row["x"] for key, row in results.items()}


def buffer_rows(operator: AggregateOperator, rows: Sequence[tuple[int, list[Any]]]) -> pa.Table:
    hashes = [xxhash.xxh3_64_intdigest(str(key).encode()) for key, _ in rows]
    columns: list[pa.Array] = [pa.array(hashes, pa.uint64()), pa.array([k for k, _ in rows])]
    for i, column in enumerate(operator.tables[0].values):
        columns.append(pa.array([buffer[i] for _, buffer in rows], column.type))
    fields = list(operator.input_schema)
    arrays = [c.cast(f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=operator.input_schema)


def by_key(
    epochs: Sequence[Sequence[Triple]], oracle: Callable[[list[tuple[Any, Any]]], Any]
) -> dict[int, Any]:
    """What the oracle makes of all (value, order) pairs of each key."""
    groups: dict[int, list[tuple[Any, Any]]] = {}
    for epoch in epochs:
        for key, value, order in epoch:
            groups.setdefault(key, []).append((value, order))
    return {key: oracle(pairs) for key, pairs in groups.items()}


__all__ = [
    "HASH",
    "DictState",
    "Triple",
    "aggregate",
    "buffer_rows",
    "by_key",
    "keys_of",
    "lift",
    "make_merger",
    "ordered",
    "plain",
    "run_epoch",
    "sum_type",
]
