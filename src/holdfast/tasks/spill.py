"""Takes in a task's rows without holding more than a set amount of memory.

Rows are gathered, sorted and combined; when they still exceed the limit they are spilled as a
sorted file to the host's disk. Afterwards the rows come out in pieces by hash range, each of which
fits: all rows of a key are in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from holdfast import runtime
from holdfast.operators.base import Operator, Received
from holdfast.operators.input_rows import TAG, in_utc
from holdfast.state.blocks import read_slice
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows, merge_sorted, sort_rows
from holdfast.state.local import LocalRun, write_local
from holdfast.state.schema import HASH

__all__ = ["Ingest"]


class Ingest:
    """The rows of one task attempt; ``receive`` sees them first."""

    def __init__(
        self,
        operator: Operator,
        folder: Path,
        memory_bytes: int,
        receive: Callable[[pa.Table], Iterable[Received]] | None = None,
    ) -> None:
        self.operator = operator
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.receive = receive or (lambda rows: (Received(rows),))
        self.keys = operator.key_columns
        # Rows of a key go by their tags, if they have any.
        self._within = TAG if TAG in operator.kept_schema.names else None
        self.control: list[pa.Table] = []
        self.greatest_ms: dict[str, int] = {}
        self.sides: dict[str, list[pa.Table]] = {}
        self.rows = 0
        self.batch_bytes = 0
        """The size of the largest batch."""
        self.late_rows = 0
        """Rows that came too late and are in no side output."""
        self.spilled_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._spills: list[LocalRun] = []
        self._files: list[Path] = []

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take in all batches."""
        for batch in map(in_utc, batches):
            self.rows += batch.num_rows
            self.batch_bytes = max(self.batch_bytes, batch.nbytes)
            for received in self.receive(pa.Table.from_batches([batch])):
                self._keep(received)
                self._pending += received.rows.to_batches()
                self._pending_bytes += received.rows.nbytes
            if self._pending_bytes > self.memory_bytes:
                self._shrink()

    def _keep(self, received: Received) -> None:
        self.late_rows += received.late_rows
        if received.control is not None and received.control.num_rows:
            self.control.append(received.control)
            self.rows -= received.control.num_rows
        for source, ms in received.greatest_ms.items():
            self.greatest_ms[source] = max(ms, self.greatest_ms.get(source, ms))
        for name, rows in received.sides.items():
            self.sides.setdefault(name, []).append(rows)

    def pieces(self, within: HashRange) -> Iterator[tuple[HashRange, SortedRows]]:
        """All rows in order of hash, in pieces that fit in memory; every key in one piece.

        The ranges of the pieces are all of ``within``: a piece may have no rows.
        """
        if not self._spills:
            yield within, self._sorted()
            return
        if self._pending:
            self._spill(self.operator.combine(self._sorted()))
        for part in within.split(2 * (1 + self.spilled_bytes // self.memory_bytes)):
            rows = [piece for run in self._spills if (piece := self._piece(run, part))]
            yield part, merge_sorted(rows, self._within) if rows else self._sorted()

    def close(self) -> None:
        """Remove the spilled files."""
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()
        self._spills.clear()

    def _sorted(self) -> SortedRows:
        table = pa.Table.from_batches(
            self._pending, None if self._pending else self._input_schema()
        )
        self._pending, self._pending_bytes = [], 0
        # Spark's bigint hash has the bits of the unsigned one.
        hashes = table.column(0).combine_chunks().view(pa.uint64())
        table = table.set_column(0, pa.field(HASH, pa.uint64(), nullable=False), hashes)
        return sort_rows(table, self.keys, self._within)

    def _input_schema(self) -> pa.Schema:
        """The columns as they come in."""
        return self.operator.kept_schema.set(0, pa.field(HASH, pa.int64()))

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
        path = self.folder / f"spill-{runtime.new_id()}.tmp"
        self._files.append(path)
        info = write_local(path, rows.table.schema, [rows.table])
        self.spilled_bytes += info.form.size_bytes
        self._spills.append(LocalRun.open(path))

    def _piece(self, run: LocalRun, part: HashRange) -> SortedRows | None:
        batches = list(read_slice(run, part))
        if not batches:
            return None
        return sort_rows(pa.Table.from_batches(batches), self.keys)
