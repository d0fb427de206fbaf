"""Merging runs: newest wins per key, in pieces of bounded size.

A piece is a hash range that holds about ``piece_rows`` rows of all runs together. Its rows are
brought into order by merging their hashes, newest run first: rows of a key become neighbours, and
the first of them wins. Where only one run has rows, they pass through without being touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.blocks import OpenRun, read_slice
from holdfast.state.columns import concat, take_all
from holdfast.state.hashing import HashRange
from holdfast.state.keys import group_stretches
from holdfast.state.layout import Layout
from holdfast.state.schema import TableSchema

__all__ = ["merge_runs", "merged_schema"]

PIECE_ROWS = 1 << 18
PIECE_BYTES = 64 << 20


def merged_schema(
    schema: TableSchema, segments: Sequence[tuple[OpenRun, HashRange]], *, drop_tombstones: bool
) -> pa.Schema:
    """The columns that :func:`merge_runs` gives: with tombstones only if there can be any."""
    if drop_tombstones or not any(run.totals.tombstones for run, _ in segments):
        return schema.arrow
    return schema.arrow_with_tombstones


def merge_runs(
    schema: TableSchema,
    segments: Sequence[tuple[OpenRun, HashRange]],
    within: HashRange,
    *,
    drop_tombstones: bool,
    piece_rows: int = PIECE_ROWS,
) -> Iterator[pa.Table]:
    """The newest row of each key, sorted, in pieces; ``segments`` come newest first.

    Tombstones may be dropped only where no older run has rows of the range.
    """
    parts = [
        _Part(run, Layout.find(schema, run.name, run.schema), part)
        for run, span in segments
        if (part := span.intersect(within)) is not None
    ]
    result = merged_schema(schema, segments, drop_tombstones=drop_tombstones)
    with_tombstones = len(result) > len(schema.arrow)
    for piece in _pieces(parts, within, piece_rows):
        sources = [_Source(part.layout, batch) for part in parts for batch in part.read(piece)]
        alone = len({id(source.layout) for source in sources}) <= 1
        merge = _passed_through if alone else _merged
        for columns in merge(sources, schema, drop_tombstones=drop_tombstones):
            kept = columns if with_tombstones else columns[:-1]
            yield pa.Table.from_arrays(kept, schema=result)


@dataclass(frozen=True, slots=True)
class _Part:
    """A run, as far as it takes part in a merge."""

    run: OpenRun
    layout: Layout
    range: HashRange

    def read(self, piece: HashRange) -> Iterator[pa.RecordBatch]:
        within = self.range.intersect(piece)
        return iter(()) if within is None else read_slice(self.run, within)


@dataclass(frozen=True, slots=True)
class _Source:
    """Sorted rows of one run."""

    layout: Layout
    rows: pa.RecordBatch

    def tombstones(self) -> pa.Array:
        marks = self.layout.tombstones(self.rows)
        return _no_tombstones(self.rows.num_rows) if marks is None else marks


def _pieces(parts: Sequence[_Part], within: HashRange, piece_rows: int) -> Iterator[HashRange]:
    """Cut a range where some block ends, so that each piece holds a bounded part of all runs."""
    ends = sorted(
        (min(block.last, part.range.last), block.rows, block.decoded_bytes)
        for part in parts
        for block in part.run.blocks
        if block.first <= part.range.last and block.last >= part.range.first
    )
    first, rows, size = within.first, 0, 0
    for last, block_rows, block_bytes in ends:
        rows, size = rows + block_rows, size + block_bytes
        if (rows >= piece_rows or size >= PIECE_BYTES) and last >= first:
            yield HashRange(first, last)
            first, rows, size = last + 1, 0, 0
    if first <= within.last and ends and first <= ends[-1][0]:
        yield HashRange(first, within.last)


def _passed_through(
    sources: Sequence[_Source], schema: TableSchema, *, drop_tombstones: bool
) -> Iterator[list[pa.Array]]:
    del schema
    for source in sources:
        layout, rows = source.layout, source.rows
        if drop_tombstones and (marks := layout.tombstones(rows)) is not None:
            rows = rows.filter(pc.invert(marks))
        if rows.num_rows:
            tombstones = _Source(layout, rows).tombstones()
            yield [rows.column(0), *layout.key_arrays(rows), *layout.value_arrays(rows), tombstones]


def _merged(
    sources: Sequence[_Source], schema: TableSchema, *, drop_tombstones: bool
) -> Iterator[list[pa.Array]]:
    columns = [
        [
            s.rows.column(0),
            *s.layout.key_arrays(s.rows),
            *s.layout.value_arrays(s.rows),
            s.tombstones(),
        ]
        for s in sources
    ]
    kinds = [array.type for array in columns[0]]
    whole = [concat(arrays, kind) for *arrays, kind in zip(*columns, kinds, strict=True)]
    hashes = whole[0].to_numpy()
    groups = group_stretches(hashes, whole[1 : len(schema.keys) + 1])
    winners = groups.starts if groups.order is None else groups.order[groups.starts]
    if drop_tombstones:
        marks = whole[-1].to_numpy(zero_copy_only=False)
        winners = winners[~marks[winners]]
    if len(winners):
        yield take_all(whole, winners, ascending=True)


def _no_tombstones(rows: int) -> pa.Array:
    zeros = pa.py_buffer(np.zeros((rows + 7) // 8, np.uint8))
    return pa.Array.from_buffers(pa.bool_(), rows, [None, zeros], null_count=0)
