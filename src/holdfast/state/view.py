"""A state table as one version shows it: look-ups of many keys at once, and scans.

Nothing is read that a question does not touch: runs are searched newest first, only blocks whose
bounds hold an unanswered key are opened, and of a mapped block only the pages that matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.blocks import OpenRun
from holdfast.state.columns import Indices, concat, equal, hash_values, one_array, take, take_all
from holdfast.state.hashing import FULL_RANGE, Hashes, HashRange
from holdfast.state.keys import group_stretches
from holdfast.state.layout import Layout
from holdfast.state.merge import merge_runs
from holdfast.state.schema import TableSchema

__all__ = ["Found", "TableView"]

_FEW = 32
_SMALL_BLOCK = 1 << 14


class Found(NamedTuple):
    """Rows of state found for a batch of keys."""

    query: npt.NDArray[np.int64]
    """For each found row the index of its key in the query, ascending."""
    rows: pa.Table
    """The found rows, aligned with ``query``, with the table's columns in schema order."""


class TableView:
    """The rows of one state table in some segments, newest first.

    Segments that overlap must be of different epochs: the newer one's row of a key is the row.
    """

    def __init__(self, schema: TableSchema, segments: Sequence[tuple[OpenRun, HashRange]]) -> None:
        self.schema = schema
        self._segments = tuple(segments)
        self._parts = [_Part.open(schema, run, span) for run, span in segments]

    def lookup(self, hashes: Hashes, keys: pa.Table) -> Found:
        """Find the rows of these distinct keys, which are sorted by hash."""
        key_columns = [one_array(column) for column in keys.columns]
        unanswered = np.ones(len(hashes), np.bool_)
        answers = []
        for part in self._parts:
            todo = np.flatnonzero(unanswered)
            if not len(todo):
                break
            for hit in part.search(hashes, key_columns, todo):
                unanswered[hit.query] = False
                live = hit.without_tombstones(part.layout)
                if len(live.query):
                    values = part.layout.values_at(live.batch, live.rows)
                    answers.append((live.query, values))
        return self._found(hashes, key_columns, answers)

    def scan(self, within: HashRange = FULL_RANGE) -> Iterator[pa.Table]:
        """The live rows of a range, sorted, in pieces of bounded size."""
        return merge_runs(self.schema, self._segments, within, drop_tombstones=True)

    def count(self, within: HashRange = FULL_RANGE) -> int:
        """How many live rows there are in a range."""
        keys_only = TableSchema(self.schema.table, self.schema.keys, ())
        pieces = merge_runs(keys_only, self._segments, within, drop_tombstones=True)
        return sum(piece.num_rows for piece in pieces)

    def _found(
        self,
        hashes: Hashes,
        keys: Sequence[pa.Array],
        answers: Sequence[tuple[Indices, list[pa.Array]]],
    ) -> Found:
        query = np.concatenate([q for q, _ in answers]) if answers else np.zeros(0, np.int64)
        values = [
            concat([arrays[i] for _, arrays in answers], column.type)
            for i, column in enumerate(self.schema.values)
        ]
        if not (query[1:] > query[:-1]).all():
            # Answers of several runs: each is in order, together they are not.
            slots = np.full(len(hashes), -1, np.int64)
            slots[query] = np.arange(len(query))
            query = np.flatnonzero(slots >= 0)
            values = take_all(values, slots[query])
        if len(query) < len(hashes):
            hashes = hashes[query]
            keys = take_all(keys, query, ascending=True)
        # The keys asked for are the keys found: they need not be copied from the runs.
        columns = [pa.array(hashes), *keys, *values]
        return Found(query, pa.Table.from_arrays(columns, schema=self.schema.arrow))


class _Hit(NamedTuple):
    """Rows of one block that answer a query."""

    query: Indices
    batch: pa.RecordBatch
    rows: Indices

    def without_tombstones(self, layout: Layout) -> _Hit:
        marks = layout.tombstones(self.batch)
        if marks is None:
            return self
        live = ~take(marks, self.rows).to_numpy(zero_copy_only=False)
        return _Hit(self.query[live], self.batch, self.rows[live])


@dataclass(frozen=True, slots=True)
class _Part:
    """A run, as far as the view uses it."""

    run: OpenRun
    layout: Layout
    firsts: Hashes
    lasts: Hashes
    """The bounds of each block, cut to the segment's range."""

    @classmethod
    def open(cls, schema: TableSchema, run: OpenRun, span: HashRange) -> _Part:
        firsts = np.array([block.first for block in run.blocks], np.uint64)
        lasts = np.array([block.last for block in run.blocks], np.uint64)
        np.maximum(firsts, np.uint64(span.first), out=firsts)
        np.minimum(lasts, np.uint64(span.last), out=lasts)
        return cls(run, Layout.find(schema, run.name, run.schema), firsts, lasts)

    def search(self, hashes: Hashes, keys: Sequence[pa.Array], todo: Indices) -> Iterator[_Hit]:
        """Search for the keys at ``todo``, block by block."""
        wanted = hashes if len(todo) == len(hashes) else hashes[todo]
        starts = wanted.searchsorted(self.firsts, side="left")
        ends = wanted.searchsorted(self.lasts, side="right")
        for index in np.flatnonzero(starts < ends).tolist():
            asked = slice(starts[index], ends[index])
            if ends[index] - starts[index] > _FEW:
                self.run.will_need(index)
            batch = self.run.block(index)
            block_keys = self.layout.key_arrays(batch)
            query, rows = _search_block(
                hash_values(batch), block_keys, wanted[asked], keys, todo[asked]
            )
            if len(query):
                yield _Hit(query, batch, rows)


def _search_block(
    block: Hashes,
    block_keys: Sequence[pa.Array],
    wanted: Hashes,
    keys: Sequence[pa.Array],
    query: Indices,
) -> tuple[Indices, Indices]:
    """Which of the queried keys lie in a block, and where."""
    # No hash asked for is above the block's last one, so every position is in bounds.
    rows = _first_rows(block, wanted)
    alike = block[rows] == wanted
    if not alike.all():
        query, rows, wanted = query[alike], rows[alike], wanted[alike]
    if not len(query):
        return query, rows
    same = _same_keys(block_keys, rows, keys, query)
    if same.all():
        return query, rows
    # Another key has this hash: the one asked for may be among the next rows.
    others = ~same
    more_query, more_rows = _search_shared(block, block_keys, wanted[others], keys, query[others])
    query = np.concatenate([query[same], more_query])
    rows = np.concatenate([rows[same], more_rows])
    order = np.argsort(query)
    return query[order], rows[order]


def _search_shared(
    block: Hashes,
    block_keys: Sequence[pa.Array],
    wanted: Hashes,
    keys: Sequence[pa.Array],
    query: Indices,
) -> tuple[Indices, Indices]:
    """The same for hashes that keys share: group all rows of those hashes with what is asked."""
    hashes = np.unique(wanted)
    starts, ends = block.searchsorted(hashes, side="left"), block.searchsorted(hashes, side="right")
    rows = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
    both = [
        concat([take(ours, rows), take(key, query)], key.type)
        for ours, key in zip(block_keys, keys, strict=True)
    ]
    groups = group_stretches(np.concatenate([block[rows], wanted]), both)
    order = np.arange(len(rows) + len(query)) if groups.order is None else groups.order
    # Keys are distinct on either side, so a group of two is a row and the query it answers.
    sizes = np.diff(groups.starts, append=len(order))
    pairs = groups.starts[sizes == 2]
    return query[order[pairs + 1] - len(rows)], rows[order[pairs]]


def _first_rows(block: Hashes, wanted: Hashes) -> Indices:
    """The first row of a block whose hash is not below each of those wanted."""
    if len(wanted) > _FEW or len(block) < _SMALL_BLOCK:
        return block.searchsorted(wanted)
    # Hashes are spread evenly, so a hash's place can be guessed to within a few pages. A plain
    # search would begin by touching pages all over the block.
    first, last, count = int(block[0]), int(block[-1]), len(block)
    margin = 4 * isqrt(count)
    rows = np.empty(len(wanted), np.int64)
    for index, value in enumerate(wanted.tolist()):
        guess = (value - first) * count // (last - first + 1)
        low, high = max(0, guess - margin), min(count, guess + margin)
        if (low and block[low] >= value) or (high < count and block[high - 1] < value):
            low, high = 0, count
        rows[index] = low + block[low:high].searchsorted(wanted[index])
    return rows


def _same_keys(
    block_keys: Sequence[pa.Array], rows: Indices, keys: Sequence[pa.Array], query: Indices
) -> npt.NDArray[np.bool_]:
    """Whether the block's keys at ``rows`` are the keys asked for at ``query``."""
    candidates = take_all(block_keys, rows, ascending=True)
    same = [equal(ours, _at(key, query)) for ours, key in zip(candidates, keys, strict=True)]
    return same[0] if len(same) == 1 else np.logical_and.reduce(same)


def _at(key: pa.Array, ascending: Indices) -> pa.Array:
    """The keys at ascending indices, without copying if they are neighbours."""
    first, last = int(ascending[0]), int(ascending[-1])
    if last - first + 1 == len(ascending):
        return key.slice(first, len(ascending))
    return take(key, ascending, ascending=True)
