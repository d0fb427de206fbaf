"""Any operator over epochs, in memory: what the tasks of an epoch do with it, and nothing of Spark.

    epochs = Epochs(operator)
    clock = epochs.clock(now_ms=1_000, watermark_ms=None)
    result = epochs.run(rows, clock, partitions=3)

An epoch is one task per partition. Each takes its rows in (in batches), sorts and combines them, works
through its hash range in pieces, reading the state before the epoch, and its changes are put on top
when all are done. Everything that the engine relies on is asserted on the way: schemas, the order of
changes, that a task reads and writes its own range only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from holdfast.operators.base import (
    Clock,
    FoundMany,
    FoundRows,
    Operator,
    Place,
    StateReader,
    Update,
)
from holdfast.operators.input_rows import TAG
from holdfast.state.columns import hash_values
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import Hashes, HashRange, partition_of, partition_range, prefix_range
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import HASH, KEY_HASH, TOMBSTONE, TableSchema, order_to_time
from holdfast.testing.memory_state import MemoryState

__all__ = ["HASHES", "EpochResult", "Epochs", "Hashed", "spread"]

Hashed = Callable[[tuple[Any, ...]], int]


def spread(key: tuple[Any, ...]) -> int:
    """A hash like Spark's: any function of the key will do."""
    return xxhash.xxh3_64_intdigest(repr(key).encode())


HASHES: Mapping[str, Hashed] = {
    "spread": spread,
    "one for all": lambda key: 7 << 32 | 5,
    "shared upper half": lambda key: (9 << 32) | (spread(key) & 0xFFFFFFFF),
    "few": lambda key: (spread(key) & 3) << 61,
}
"""Hash functions, from good to as bad as can be."""


@dataclass(frozen=True)
class EpochResult:
    """What came of an epoch."""

    output: pa.Table
    sides: Mapping[str, pa.Table]
    """Rows of every side output of the operator, from taking rows in and from updates."""
    late_rows: int
    """As :attr:`Received.late_rows` says; rows in side outputs are not counted."""
    greatest_ms: Mapping[str, int]
    new_keys: int
    metrics: Mapping[str, float]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The output as Python rows."""
        rows: list[dict[str, Any]] = self.output.to_pylist()
        return rows


@dataclass
class _Gathered:
    """What the tasks of an epoch hand over."""

    outputs: list[pa.Table] = field(default_factory=list)
    sides: dict[str, list[pa.Table]] = field(default_factory=dict)
    changes: dict[str, list[pa.Table]] = field(default_factory=dict)
    late_rows: int = 0
    greatest_ms: dict[str, int] = field(default_factory=dict)
    new_keys: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, update: Update) -> None:
        self.outputs.append(update.output)
        for name, rows in update.sides.items():
            self.sides.setdefault(name, []).append(rows)
        for table, rows in update.changes.items():
            self.changes.setdefault(table, []).append(rows)
        self.new_keys += update.new_keys
        for name, amount in update.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + amount


class Epochs:
    """An operator and its state, epoch by epoch.

    ``batch_rows``: how many rows come in at once. ``pieces``: into how many hash ranges a task cuts
    its own, as if it had spilled. ``combine``: whether rows are combined before the update.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        batch_rows: int = 1 << 20,
        pieces: int = 1,
        combine: bool = False,
    ) -> None:
        self.operator = operator
        self.batch_rows = batch_rows
        self.pieces = pieces
        self.combine = combine
        self.state = MemoryState(operator.tables)
        self.last_clock: Clock | None = None
        self._schemas = {schema.table: schema for schema in operator.tables}

    def clock(self, now_ms: int, watermark_ms: int | None, *, derived: bool = False) -> Clock:
        """The clock of the next epoch, which knows that of the one before."""
        last = self.last_clock
        if last is None:
            return Clock(0, now_ms, watermark_ms, derived=derived)
        return Clock(
            last.epoch + 1,
            now_ms,
            watermark_ms,
            last.watermark_ms,
            last.processing_time_ms,
            derived,
        )

    def run(self, rows: pa.Table, clock: Clock, *, partitions: int = 1) -> EpochResult:
        """One epoch; ``rows`` are in :attr:`Operator.input_schema`."""
        assert rows.schema.equals(self.operator.input_schema), rows.schema
        self.last_clock = clock
        self.state.clock = TableClock(clock.processing_time_ms, clock.late_ms)
        owners = partition_of(hash_values(rows) if rows.num_rows else _NO_HASHES, partitions)
        gathered = _Gathered()
        for partition in range(partitions):
            own = rows.filter(pa.array(owners == partition))
            place = Place(partition, partitions, partition_range(partition, partitions))
            self._task(own, clock, place, gathered)
        self._apply(gathered.changes)
        return self._result(gathered)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All live rows of a state table, but for hash."""
        found = [piece.drop_columns([HASH]) for piece in self.state.scan(table)]
        return [row for piece in found for row in piece.to_pylist()]

    def _task(self, rows: pa.Table, clock: Clock, place: Place, gathered: _Gathered) -> None:
        kept = self._receive(rows, clock, gathered)
        if not rows.num_rows and not self.operator.needs_ticks:
            return
        _check_range(hash_values(kept.table), place.range)
        state: StateReader = _OwnRange(self.state, place.range, self.operator.shared_tables)
        session = self.operator.open(state, clock, place)
        for within in place.range.split(self.pieces):
            update = session.update(_cut(kept, within), within)
            self._check(update, within)
            gathered.add(update)
        session.close()

    def _receive(self, rows: pa.Table, clock: Clock, gathered: _Gathered) -> SortedRows:
        """Take rows in as a task does: in batches, with Spark's signed hashes."""
        operator = self.operator
        kept_schema = _signed(operator.kept_schema)
        kept = [kept_schema.empty_table()]
        for at in range(0, rows.num_rows, self.batch_rows):
            batch = rows.slice(at, self.batch_rows).combine_chunks()
            hashes = batch.column(0).combine_chunks().view(pa.int64())
            arrays = [hashes, *batch.columns[1:]]
            received = operator.receive(
                pa.Table.from_arrays(arrays, schema=_signed(rows.schema)), clock
            )
            assert received.control is None, "rows of a control stream: see process_harness"
            assert received.rows.schema.equals(kept_schema), received.rows.schema
            kept.append(received.rows)
            for name, side in received.sides.items():
                gathered.sides.setdefault(name, []).append(side)
            gathered.late_rows += received.late_rows
            for source, ms in received.greatest_ms.items():
                gathered.greatest_ms[source] = max(ms, gathered.greatest_ms.get(source, ms))
        table = pa.concat_tables(kept).combine_chunks()
        arrays = [table.column(0).combine_chunks().view(pa.uint64()), *table.columns[1:]]
        table = pa.Table.from_arrays(arrays, schema=operator.kept_schema)
        if TAG in table.column_names:
            # The engine sorts a key's rows by tag after sorting by key; a stable sort needs it first.
            table = table.take(pa.array(np.argsort(table.column(TAG).to_numpy(), kind="stable")))
        work = sort_rows(table.combine_chunks(), operator.key_columns)
        return operator.combine(work) if self.combine else work

    def _check(self, update: Update, within: HashRange) -> None:
        operator = self.operator
        assert update.output.schema.equals(operator.output_schema), update.output.schema
        assert set(update.changes) <= set(self._schemas)
        for table, rows in update.changes.items():
            schema = self._schemas[table]
            rows.validate()
            deleting = TOMBSTONE in rows.column_names
            assert not deleting or (operator.deletes and not schema.timed)
            arrow = schema.arrow_with_tombstones if deleting else schema.arrow
            assert rows.schema.equals(arrow, check_metadata=True), rows.schema
            if not rows.num_rows:
                continue
            if schema.timed:
                _check_range(rows.column(KEY_HASH).to_numpy(), within)
            elif table not in operator.shared_tables:
                _check_sorted(rows, schema)
                _check_range(hash_values(rows), within)

    def _apply(self, changes: Mapping[str, Sequence[pa.Table]]) -> None:
        """One run per table; of hints only those that are not due by the clock of the state."""
        assert self.state.clock is not None
        merged = {}
        for table, parts in changes.items():
            rows = pa.concat_tables(_alike(parts)).combine_chunks()
            schema = self._schemas[table]
            now = self.state.clock.now(schema.timed) if schema.timed else None
            if now is not None and rows.num_rows:
                rows = rows.filter(pa.array(order_to_time(hash_values(rows)) > now))
            if schema.timed and rows.num_rows:
                # A hint may be given twice; a run has it once.
                once = sort_rows(rows.combine_chunks(), schema.sort_columns)
                rows = once.table.take(pa.array(once.starts))
            merged[table] = rows
        self.state.apply(merged)

    def _result(self, gathered: _Gathered) -> EpochResult:
        operator = self.operator
        assert set(gathered.sides) <= set(operator.side_schemas), set(gathered.sides)
        sides = {}
        for name, schema in operator.side_schemas.items():
            parts = gathered.sides.get(name, [])
            assert all(part.schema.equals(schema) for part in parts)
            sides[name] = pa.concat_tables([schema.empty_table(), *parts])
        return EpochResult(
            pa.concat_tables([operator.output_schema.empty_table(), *gathered.outputs]),
            sides,
            gathered.late_rows,
            gathered.greatest_ms,
            gathered.new_keys,
            gathered.metrics,
        )


_NO_HASHES = np.empty(0, np.uint64)


@dataclass(frozen=True)
class _OwnRange:
    """The state as a task sees it: it must ask for nothing outside its range."""

    state: MemoryState
    range: HashRange
    shared: frozenset[str]

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        self._check(table, hashes)
        assert (hashes[1:] >= hashes[:-1]).all(), "keys to look up must be sorted by hash"
        return self.state.lookup(table, hashes, keys)

    def lookup_prefix(self, table: str, hashes: Hashes, keys: pa.Table, limit: int) -> FoundMany:
        self._check(table, hashes)
        assert (hashes[1:] >= hashes[:-1]).all(), "keys to look up must be sorted by hash"
        return self.state.lookup_prefix(table, hashes, keys, limit)

    def scan_prefix(self, table: str, key_hash: int, key: pa.Table) -> Iterator[pa.Table]:
        assert self.range.covers(prefix_range(key_hash))
        return self.state.scan_prefix(table, key_hash, key)

    def scan(self, table: str) -> Iterator[pa.Table]:
        assert table in self.shared, f"{table} is not shared by all partitions"
        return self.state.scan(table)

    def scan_within(self, table: str, within: HashRange) -> Iterator[pa.Table]:
        assert self.range.covers(within)
        return self.state.scan_within(table, within)

    def due(self, table: str, until_ms: int, within: HashRange) -> pa.Table:
        assert self.range.covers(within)
        return self.state.due(table, until_ms, within)

    def first_time(self, table: str, after_ms: int | None) -> int | None:
        return self.state.first_time(table, after_ms)

    def overlaid(self, changes: Mapping[str, Sequence[pa.Table]]) -> _OwnRange:
        return _OwnRange(self.state.overlaid(changes), self.range, self.shared)

    def _check(self, table: str, hashes: Hashes) -> None:
        if table not in self.shared:
            _check_range(hashes, self.range)


def _signed(schema: pa.Schema) -> pa.Schema:
    return schema.set(0, pa.field(HASH, pa.int64()))


def _cut(rows: SortedRows, within: HashRange) -> SortedRows:
    hashes = hash_values(rows.table) if rows.table.num_rows else _NO_HASHES
    first = int(hashes.searchsorted(np.uint64(within.first), side="left"))
    last = int(hashes.searchsorted(np.uint64(within.last), side="right"))
    starts = rows.starts[(rows.starts >= first) & (rows.starts < last)] - first
    # As in a task, where every column is one chunk.
    table = rows.table.slice(first, last - first).combine_chunks()
    if not table.num_rows:
        table = rows.table.schema.empty_table()
    return SortedRows(table, starts, rows.keys)


def _check_range(hashes: Hashes, within: HashRange) -> None:
    if len(hashes):
        found = HashRange(int(hashes.min()), int(hashes.max()))
        assert within.covers(found), f"{found} is not in {within}"


def _check_sorted(rows: pa.Table, schema: TableSchema) -> None:
    """Sorted by (hash, key), and every key once."""
    again = sort_rows(rows.combine_chunks(), len(schema.keys))
    assert len(again.starts) == rows.num_rows, f"{schema.table}: a key comes twice"
    names = [HASH, *schema.key_names]
    assert repr(again.table.select(names).to_pylist()) == repr(rows.select(names).to_pylist())


def _alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The same tables, all with tombstones if one has them."""
    widest = max(tables, key=lambda table: table.num_columns).schema
    return [
        table
        if table.num_columns == len(widest)
        else table.append_column(widest[-1], pa.array(np.zeros(table.num_rows, np.bool_)))
        for table in tables
    ]
