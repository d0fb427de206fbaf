"""State in memory, read as a task reads it: what tests of operators run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from holdfast.state.blocks import OpenRun
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, Hashes, HashRange
from holdfast.state.keys import sort_rows
from holdfast.state.memory import MemoryRun
from holdfast.state.merge import merge_runs
from holdfast.state.schema import TableSchema
from holdfast.state.view import FoundMany, FoundRows, TableView

__all__ = ["MemoryState"]

_MOST_RUNS = 8


class MemoryState:
    """A :class:`holdfast.operators.base.StateReader` over tables in memory."""

    def __init__(self, schemas: Sequence[TableSchema], clock: TableClock | None = None) -> None:
        self._schemas = {schema.table: schema for schema in schemas}
        self._runs: dict[str, list[pa.Table]] = {}
        self.clock = clock

    def apply(self, changes: Mapping[str, pa.Table]) -> None:
        """Put the changes of an epoch on top."""
        for table, rows in changes.items():
            if not rows.num_rows:
                continue
            schema = self._schemas[table]
            columns = schema.sort_columns if schema.timed else len(schema.keys)
            runs = self._runs.setdefault(table, [])
            runs.insert(0, sort_rows(rows.combine_chunks(), columns).table)
            if len(runs) > _MOST_RUNS:
                self._runs[table] = self._merged(schema, runs)

    def overlaid(self, changes: Mapping[str, Sequence[pa.Table]]) -> MemoryState:
        """The same state with newer rows on top."""
        over = MemoryState(tuple(self._schemas.values()), self.clock)
        over._runs = {t: [*changes.get(t, ()), *self._runs.get(t, ())] for t in self._schemas}
        return over

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        """Rows of distinct keys."""
        return self._view(table).lookup(hashes, keys)

    def lookup_prefix(self, table: str, hashes: Hashes, keys: pa.Table, limit: int) -> FoundMany:
        """All rows under each key."""
        return self._view(table).lookup_prefix(hashes, keys, limit)

    def scan_prefix(self, table: str, key_hash: int, key: pa.Table) -> Iterator[pa.Table]:
        """All rows under one key."""
        return self._view(table).scan_prefix(key_hash, key)

    def scan(self, table: str) -> Iterator[pa.Table]:
        """All rows of a table."""
        return self._view(table).scan()

    def scan_within(self, table: str, within: HashRange) -> Iterator[pa.Table]:
        """The rows of a range."""
        return self._view(table, within).scan(within)

    def due(self, table: str, until_ms: int, within: HashRange) -> pa.Table:
        """Rows of a timed table up to a time."""
        return self._view(table, within).due(None, until_ms)

    def first_time(self, table: str, after_ms: int | None) -> int | None:
        """The earliest time after another."""
        return self._view(table).first_time(after_ms)

    def _view(self, table: str, within: HashRange = FULL_RANGE) -> TableView:
        runs: list[tuple[OpenRun, HashRange]] = [
            (MemoryRun(table, rows), within) for rows in self._runs.get(table, ())
        ]
        return TableView(self._schemas[table], runs, self.clock)

    def _merged(self, schema: TableSchema, runs: Sequence[pa.Table]) -> list[pa.Table]:
        opened = [(MemoryRun(schema.table, rows), FULL_RANGE) for rows in runs]
        merged = merge_runs(schema, opened, FULL_RANGE, drop_tombstones=True, clock=self.clock)
        tables = [table for table in merged if table.num_rows]
        return [pa.concat_tables(tables).combine_chunks()] if tables else []
