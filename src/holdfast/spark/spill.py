"""Takes in a task's rows without holding more than a set amount of memory.

Rows are gathered, sorted and combined; when they still exceed the limit they are spilled as a
sorted file to the host's disk. Afterwards the rows come out in pieces by hash range, each of which
fits: all rows of a key are in one piece.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from holdfast.operators.base import Operator
from holdfast.state.blocks import read_slice
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows, merge_sorted, sort_rows
from holdfast.state.local import LocalRun, LocalRunWriter
from holdfast.state.schema import HASH

__all__ = ["Ingest"]


class Ingest:
    """The rows of one task attempt."""

    def __init__(self, operator: Operator, folder: Path, memory_bytes: int) -> None:
        self.operator = operator
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.keys = len(operator.tables[0].keys)
        self.rows = 0
        self.spilled_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._spills: list[tuple[Path, LocalRun]] = []

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take in all batches."""
        for batch in batches:
            self.rows += batch.num_rows
            self._pending.append(batch)
            self._pending_bytes += batch.nbytes
            if self._pending_bytes > self.memory_bytes:
                self._shrink()

    def pieces(self, within: HashRange) -> Iterator[SortedRows]:
        """All rows in order of hash, in pieces that fit in memory; every key in one piece."""
        if not self._spills:
            yield self._sorted()
            return
        if self._pending:
            self._spill(self.operator.combine(self._sorted()))
        for part in within.split(2 * (1 + self.spilled_bytes // self.memory_bytes)):
            rows = [piece for _, run in self._spills if (piece := self._piece(run, part))]
            if rows:
                yield merge_sorted(rows)

    def close(self) -> None:
        """Remove the spilled files."""
        for path, _ in self._spills:
            path.unlink(missing_ok=True)
        self._spills.clear()

    def _sorted(self) -> SortedRows:
        table = pa.Table.from_batches(self._pending)
        self._pending, self._pending_bytes = [], 0
        # Spark's bigint hash has the bits of the unsigned one.
        hashes = table.column(0).combine_chunks().view(pa.uint64())
        table = table.set_column(0, pa.field(HASH, pa.uint64(), nullable=False), hashes)
        return sort_rows(table, self.keys)

    def _shrink(self) -> None:
        combined = self.operator.combine(self._sorted())
        if combined.table.nbytes > self.memory_bytes // 2:
            self._spill(combined)
            return
        table = combined.table
        signed = table.column(0).combine_chunks().view(pa.int64())
        table = table.set_column(0, pa.field(HASH, pa.int64()), signed)
        self._pending = table.to_batches()
        self._pending_bytes = table.nbytes

    def _spill(self, rows: SortedRows) -> None:
        path = self.folder / f"spill-{uuid.uuid4().hex}.tmp"
        writer = LocalRunWriter(path, rows.table.schema)
        writer.write(rows.table)
        info = writer.close()
        self.spilled_bytes += info.form.size_bytes
        self._spills.append((path, LocalRun.open(path)))

    def _piece(self, run: LocalRun, part: HashRange) -> SortedRows | None:
        batches = list(read_slice(run, part))
        if not batches:
            return None
        return sort_rows(pa.Table.from_batches(batches), self.keys)
