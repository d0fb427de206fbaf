"""Merging runs: newest wins per key, in pieces of bounded size.

A piece is a hash range that holds about ``piece_rows`` rows of all runs together. Its rows are
brought into order by merging their hashes, newest run first: rows of a key become neighbours, and
the first of them wins. Where only one run has rows, they pass through without being touched.

A timed table is merged in the same way, with times in the place of hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.blocks import OpenRun
from holdfast.state.clears import Clears
from holdfast.state.columns import concat, take_all
from holdfast.state.expiry import TableClock, expire
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.keys import group_stretches
from holdfast.state.parts import MergePart, RunRows, cut_pieces
from holdfast.state.schema import TableSchema, orders_after

__all__ = ["PIECE_ROWS", "merge_runs", "merge_times", "merged_schema"]

PIECE_ROWS = 1 << 18
PIECE_BYTES = 64 << 20

Segments = Sequence[tuple[OpenRun, HashRange]]


def merged_schema(
    schema: TableSchema,
    segments: Segments,
    *,
    drop_tombstones: bool,
    clock: TableClock | None = None,
) -> pa.Schema:
    """The columns that :func:`merge_runs` gives: with tombstones only if there can be any."""
    if drop_tombstones or schema.timed:
        return schema.arrow
    if any(run.totals.tombstones for run, _ in segments) or (clock and schema.expires):
        return schema.arrow_with_tombstones
    return schema.arrow


def merge_runs(
    schema: TableSchema,
    segments: Segments,
    within: HashRange,
    *,
    drop_tombstones: bool,
    piece_rows: int = PIECE_ROWS,
    clock: TableClock | None = None,
) -> Iterator[pa.Table]:
    """The newest row of each key, sorted, in pieces; ``segments`` come newest first.

    Tombstones may be dropped only where no older run has rows of the range. What has expired by
    ``clock`` goes: a dead row becomes a tombstone, unless those are dropped.
    """
    if schema.timed:
        times = FULL_RANGE if clock is None else orders_after(clock.now(schema.timed))
        if times is not None:
            yield from merge_times(schema, segments, within, times, piece_rows=piece_rows)
        return
    parts = [
        MergePart.of_hashes(schema, number, run, part)
        for number, (run, span) in enumerate(segments)
        if (part := span.intersect(within)) is not None
    ]
    result = merged_schema(schema, segments, drop_tombstones=drop_tombstones, clock=clock)
    merge = _Merge(schema, result, clock, drop_tombstones)
    clears = Clears(schema, parts, within) if schema.prefix else None
    for piece in cut_pieces(parts, within, piece_rows, PIECE_BYTES):
        sources = [source for part in parts for source in part.read(piece)]
        yield from merge.piece(sources, clears)
        if clears is not None:
            clears.pass_on(piece)


def merge_times(
    schema: TableSchema,
    segments: Segments,
    within: HashRange,
    times: HashRange,
    *,
    piece_rows: int = PIECE_ROWS,
) -> Iterator[pa.Table]:
    """Rows of a timed table, sorted, each once: those of some times whose key hash is ``within``."""
    parts = [
        MergePart.of_times(schema, number, run, times, keys)
        for number, (run, span) in enumerate(segments)
        if (keys := span.intersect(within)) is not None
    ]
    merge = _Merge(schema, schema.arrow, None, drop_tombstones=True)
    for piece in cut_pieces(parts, times, piece_rows, PIECE_BYTES):
        yield from merge.piece([source for part in parts for source in part.read(piece)], None)


@dataclass(frozen=True, slots=True)
class _Merge:
    """How rows of a piece become rows of the result."""

    schema: TableSchema
    result: pa.Schema
    clock: TableClock | None
    drop_tombstones: bool

    def piece(self, sources: Sequence[RunRows], clears: Clears | None) -> Iterator[pa.Table]:
        cleared = clears is not None and clears.add(sources)
        if cleared or len({source.number for source in sources}) > 1:
            chunks = iter([self._newest(sources, clears if cleared else None)])
        else:
            chunks = (source.columns() for source in sources)
        for columns in chunks:
            kept = self._expired(columns)
            if self.drop_tombstones:
                kept = _without_tombstones(kept)
            if len(kept[0]):
                yield pa.Table.from_arrays(kept[: len(self.result)], schema=self.result)

    def _newest(self, sources: Sequence[RunRows], clears: Clears | None) -> list[pa.Array]:
        columns = [source.columns() for source in sources]
        kinds = [array.type for array in columns[0]]
        whole = [concat(arrays, kind) for *arrays, kind in zip(*columns, kinds, strict=True)]
        numbers = np.repeat([s.number for s in sources], [s.rows.num_rows for s in sources])
        hashes, keys = whole[0].to_numpy(), whole[1 : self.schema.sort_columns + 1]
        groups = group_stretches(hashes, keys, numbers)
        winners = groups.starts if groups.order is None else groups.order[groups.starts]
        if clears is not None:
            # If the newest row of an entry was cleared, so were all before it.
            winners = winners[~clears.cleared(hashes, keys, numbers)[winners]]
        return take_all(whole, winners, ascending=True)

    def _expired(self, columns: list[pa.Array]) -> list[pa.Array]:
        first = self.schema.sort_columns + 1
        over = expire(self.schema, columns[first:-1], self.clock)
        if over is None:
            return columns
        marks = columns[-1].to_numpy(zero_copy_only=False) | over.dead
        return [*columns[:first], *over.values, pa.array(marks)]


def _without_tombstones(columns: list[pa.Array]) -> list[pa.Array]:
    if not columns[-1].true_count:
        return columns
    live = np.flatnonzero(~columns[-1].to_numpy(zero_copy_only=False))
    return take_all(columns, live, ascending=True)
