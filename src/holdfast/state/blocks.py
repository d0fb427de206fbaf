"""Blocks: the pieces of a run that are read, checked and decoded alone.

A block is cut only where the hash changes, so every hash lies in one block, and a look-up or a
slice needs only the blocks whose bounds it touches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from holdfast.errors import CorruptionError, InternalError
from holdfast.state.columns import hash_values, one_array
from holdfast.state.hashing import Hashes, HashRange
from holdfast.state.schema import TOMBSTONE
from holdfast.state.text import as_bytes

__all__ = [
    "Block",
    "BlockCutter",
    "OpenRun",
    "RunTotals",
    "check_block",
    "checksum",
    "count_tombstones",
    "read_slice",
    "verify_blocks",
]


class Block(msgspec.Struct, frozen=True):
    """Where a block lies in its file and what it holds."""

    rows: int
    first: int
    """The lowest hash."""
    last: int
    """The highest hash."""
    offset: int
    length: int
    decoded_bytes: int
    """About how much memory its rows take."""
    checksum: str
    """xxh3-64 of its bytes in the file, in hex."""


class RunTotals(msgspec.Struct, frozen=True):
    """What a run's index says of the whole."""

    rows: int
    tombstones: int
    blocks: tuple[Block, ...]


class OpenRun(Protocol):
    """A run whose blocks can be read, whatever its form."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its blocks: hash, keys, values, perhaps tombstones."""

    @property
    def totals(self) -> RunTotals:
        """Counts, as its index gives them."""

    @property
    def blocks(self) -> Sequence[Block]:
        """Its blocks, by ascending hash."""

    def block(self, index: int) -> pa.RecordBatch:
        """Read and decode one block."""

    def blocks_at(self, indexes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Read and decode blocks, in ascending order; those that are far away some ahead."""

    def only_with(self, indexes: Sequence[int], wanted: Callable[[int], Hashes]) -> Sequence[int]:
        """Those of these blocks that have any of the ascending hashes wanted of each.

        All of them, if that can't be told for much less than reading them.
        """

    def will_need(self, index: int) -> None:
        """A hint that all of a block is about to be read."""


def read_slice(run: OpenRun, within: HashRange) -> Iterator[pa.RecordBatch]:
    """The rows of a run whose hash lies in a range; only blocks that overlap it are read."""
    blocks = run.blocks
    for index in range(bisect_left(blocks, within.first, key=_last_hash), len(blocks)):
        block = blocks[index]
        if block.first > within.last:
            return
        run.will_need(index)
        batch = run.block(index)
        if within.first <= block.first and block.last <= within.last:
            yield batch
            continue
        hashes = hash_values(batch)
        start = int(np.searchsorted(hashes, np.uint64(within.first), side="left"))
        end = int(np.searchsorted(hashes, np.uint64(within.last), side="right"))
        if start < end:
            yield batch.slice(start, end - start)


def _last_hash(block: Block) -> int:
    return block.last


class BlockCutter:
    """Turns sorted tables of any size into blocks of nearly even size."""

    def __init__(self, schema: pa.Schema, rows: int, size_bytes: int) -> None:
        self._schema = schema
        self._rows = rows
        self._size_bytes = size_bytes
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._last = 0

    def add(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Take rows that follow the ones before; give the blocks that are now full."""
        if (table.schema.names, table.schema.types) != (self._schema.names, self._schema.types):
            raise InternalError(f"a run of {self._schema} was given {table.schema}")
        if table.num_rows == 0:
            return
        self._check_order(table)
        self._pending.append(pa.Table.from_arrays(table.columns, schema=self._schema))
        self._pending_rows += table.num_rows
        if self._pending_rows > self._target():
            yield from self._full_blocks()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give what is left."""
        if self._pending_rows:
            yield self._as_batch(pa.concat_tables(self._pending))
        self._pending, self._pending_rows = [], 0

    def _check_order(self, table: pa.Table) -> None:
        hashes = hash_values(table)
        if int(hashes[0]) < self._last or not (hashes[1:] >= hashes[:-1]).all():
            raise InternalError("rows of a run must come in the order of their hashes")
        self._last = int(hashes[-1])

    def _target(self) -> int:
        size: int = sum(table.nbytes for table in self._pending)
        return min(self._rows, max(1, self._size_bytes * self._pending_rows // max(1, size)))

    def _full_blocks(self) -> Iterator[pa.RecordBatch]:
        target = self._target()
        table = pa.concat_tables(self._pending)
        hashes = hash_values(table)
        start, count = 0, table.num_rows
        while count - start > target:
            # A hash is never split; and the last one may go on in the rows still to come.
            end = start + target
            if hashes[end] == hashes[end - 1]:
                end = int(np.searchsorted(hashes, hashes[end], side="right"))
            if end == count:
                break
            yield self._as_batch(table.slice(start, end - start))
            start = end
        self._pending, self._pending_rows = [table.slice(start)], count - start

    def _as_batch(self, table: pa.Table) -> pa.RecordBatch:
        arrays = [one_array(column) for column in table.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def count_tombstones(batch: pa.RecordBatch) -> int:
    """How many of the rows say that their key is gone."""
    position = batch.schema.get_field_index(TOMBSTONE)
    return 0 if position < 0 else int(batch.column(position).true_count)


def checksum(data: bytes | memoryview | pa.Buffer) -> str:
    """The xxh3-64 of some bytes, in hex."""
    return xxhash.xxh3_64_hexdigest(data)


def check_block(run: str, index: int, block: Block, data: bytes | memoryview | pa.Buffer) -> None:
    """Raise ``CorruptionError`` unless these are the block's bytes (invariant 10)."""
    if len(data) != block.length or checksum(data) != block.checksum:
        raise CorruptionError(
            f"run {run}: block {index} (bytes {block.offset} to {block.offset + block.length}) "
            "is not what was written",
            hint="restore the run from another copy, or start from an older entry",
        )


def verify_blocks(run: OpenRun, bad: Callable[[str], CorruptionError]) -> None:
    """Read every block and compare bounds, order and counts with the index."""
    previous, rows, tombstones = -1, 0, 0
    for index, block in enumerate(run.blocks):
        batch = run.block(index)
        try:
            as_bytes(batch).validate(full=True)
        except pa.ArrowException as error:
            raise bad(f"block {index} is not well-formed: {error}") from error
        hashes = hash_values(batch)
        if batch.num_rows != block.rows or block.rows == 0:
            raise bad(f"block {index} has {batch.num_rows} rows, its index says {block.rows}")
        if (int(hashes[0]), int(hashes[-1])) != (block.first, block.last):
            raise bad(f"block {index} does not have the bounds its index gives")
        if block.first <= previous or not (hashes[1:] >= hashes[:-1]).all():
            raise bad(f"block {index} is not sorted")
        previous = block.last
        rows += batch.num_rows
        tombstones += count_tombstones(batch)
    if (rows, tombstones) != (run.totals.rows, run.totals.tombstones):
        raise bad(f"it has {rows} rows and {tombstones} tombstones, its index says otherwise")
