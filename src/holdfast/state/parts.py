"""What a merge reads: the part of each run that takes part, piece by piece."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.blocks import Block, OpenRun, read_slice
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.layout import ColumnLayout
from holdfast.state.schema import TableSchema

__all__ = ["MergePart", "RunRows", "cut_pieces", "in_key_range"]


@dataclass(frozen=True, slots=True)
class RunRows:
    """Sorted rows of one run."""

    number: int
    """Which run: the higher, the older."""
    layout: ColumnLayout
    rows: pa.RecordBatch

    def columns(self) -> list[pa.Array]:
        """Hash, keys, values, and a tombstone for each row or not."""
        marks = self.layout.tombstones(self.rows)
        return [
            self.rows.column(0),
            *self.layout.key_arrays(self.rows),
            *self.layout.value_arrays(self.rows),
            _no_tombstones(self.rows.num_rows) if marks is None else marks,
        ]


@dataclass(frozen=True, slots=True)
class MergePart:
    """A run, as far as it takes part in a merge."""

    number: int
    run: OpenRun
    layout: ColumnLayout
    range: HashRange
    """Of the hashes, or in a timed table of the times."""
    key_range: HashRange
    """In a timed table: of the keys' hashes."""

    @classmethod
    def of_hashes(
        cls, schema: TableSchema, number: int, run: OpenRun, span: HashRange
    ) -> MergePart:
        """The rows of a run whose hash lies in a range."""
        return cls(number, run, ColumnLayout.find(schema, run.name, run.schema), span, FULL_RANGE)

    @classmethod
    def of_times(
        cls, schema: TableSchema, number: int, run: OpenRun, times: HashRange, keys: HashRange
    ) -> MergePart:
        """The rows of a timed run of some times and keys."""
        return cls(number, run, ColumnLayout.find(schema, run.name, run.schema), times, keys)

    def read(self, piece: HashRange) -> Iterator[RunRows]:
        """The rows of a piece, block by block."""
        within = self.range.intersect(piece)
        if within is None:
            return
        for batch in read_slice(self.run, within):
            rows = batch if self.key_range == FULL_RANGE else in_key_range(batch, self.key_range)
            if rows.num_rows:
                yield RunRows(self.number, self.layout, rows)

    def blocks(self) -> Iterator[Block]:
        """The blocks that overlap the range."""
        blocks = self.run.blocks
        for index in range(bisect_left(blocks, self.range.first, key=_last), len(blocks)):
            if blocks[index].first > self.range.last:
                return
            yield blocks[index]


def in_key_range(batch: pa.RecordBatch, within: HashRange) -> pa.RecordBatch:
    """The rows of a timed run's block whose keys' hash (second column) lies in a range."""
    hashes = batch.column(1).to_numpy()
    inside = (hashes >= np.uint64(within.first)) & (hashes <= np.uint64(within.last))
    return batch if inside.all() else batch.filter(pa.array(inside))


def cut_pieces(
    parts: Sequence[MergePart], within: HashRange, piece_rows: int, piece_bytes: int
) -> Iterator[HashRange]:
    """Cut a range where some block ends, so that each piece holds a bounded part of all runs."""
    ends = sorted(
        (min(block.last, part.range.last), block.rows, block.decoded_bytes)
        for part in parts
        for block in part.blocks()
    )
    first, rows, size = within.first, 0, 0
    for last, block_rows, block_bytes in ends:
        rows, size = rows + block_rows, size + block_bytes
        if (rows >= piece_rows or size >= piece_bytes) and last >= first:
            yield HashRange(first, last)
            first, rows, size = last + 1, 0, 0
    if first <= within.last and ends and first <= ends[-1][0]:
        yield HashRange(first, within.last)


def _last(block: Block) -> int:
    return block.last


def _no_tombstones(rows: int) -> pa.Array:
    zeros = pa.py_buffer(np.zeros((rows + 7) // 8, np.uint8))
    return pa.Array.from_buffers(pa.bool_(), rows, [None, zeros], null_count=0)
