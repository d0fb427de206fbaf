"""A run that is only in memory: for rows that an epoch has written but no file holds yet, and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from holdfast.state.blocks import Block, RunTotals, count_tombstones
from holdfast.state.columns import hash_values, one_array
from holdfast.state.hashing import Hashes

__all__ = ["MemoryRun"]


class MemoryRun:
    """Sorted rows in the schema of a run, as one block.

    >>> run = MemoryRun("newest", pa.table({"_holdfast_hash": pa.array([3, 9], pa.uint64())}))
    >>> run.totals.rows, run.blocks[0].first, run.blocks[0].last
    (2, 3, 9)
    """

    def __init__(self, name: str, table: pa.Table) -> None:
        self.name = name
        self.schema: pa.Schema = table.schema
        arrays = [one_array(column) for column in table.columns]
        self._batch = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
        self.totals = RunTotals(
            table.num_rows,
            count_tombstones(self._batch),
            self._only_block() if table.num_rows else (),
        )

    def _only_block(self) -> tuple[Block, ...]:
        hashes = hash_values(self._batch)
        size = self._batch.nbytes
        first, last = int(hashes[0]), int(hashes[-1])
        return (Block(len(hashes), first, last, 0, size, size, checksum=""),)

    @property
    def blocks(self) -> Sequence[Block]:
        """The block that all rows are in; none if there are no rows."""
        return self.totals.blocks

    def block(self, index: int) -> pa.RecordBatch:
        """All rows."""
        del index
        return self._batch

    def blocks_at(self, indexes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """One block after the other."""
        return map(self.block, indexes)

    def only_with(self, indexes: Sequence[int], wanted: Callable[[int], Hashes]) -> Sequence[int]:
        """All of them: looking is as fast as reading."""
        del wanted
        return indexes

    def will_need(self, index: int) -> None:
        """Nothing to do: the rows are in memory."""
