"""Searching a run for keys: which blocks, which rows.

Only blocks whose bounds hold a wanted hash are opened, and of a mapped block only the pages that
matter are touched.
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
from holdfast.state.columns import Indices, concat, equal, hash_values, take, take_all
from holdfast.state.hashing import Hashes, HashRange
from holdfast.state.keys import group_stretches
from holdfast.state.layout import ColumnLayout
from holdfast.state.schema import TableSchema

__all__ = ["Hit", "SearchPart", "guess_place"]

_FEW = 32
_SMALL_BLOCK = 1 << 14


class Hit(NamedTuple):
    """Rows of one block that answer a query."""

    query: Indices
    batch: pa.RecordBatch
    rows: Indices

    def without_tombstones(self, layout: ColumnLayout) -> Hit:
        """The same without rows that say that their key is gone."""
        marks = layout.tombstones(self.batch)
        if marks is None:
            return self
        live = ~take(marks, self.rows).to_numpy(zero_copy_only=False)
        return Hit(self.query[live], self.batch, self.rows[live])


@dataclass(frozen=True, slots=True)
class SearchPart:
    """A run, as far as the view uses it."""

    run: OpenRun
    layout: ColumnLayout
    firsts: Hashes
    lasts: Hashes
    """The bounds of each block, cut to the segment's range."""
    bounds: list[int]
    """The last hash of each block."""

    @classmethod
    def open(cls, schema: TableSchema, run: OpenRun, span: HashRange) -> SearchPart:
        """The rows of a run in a range."""
        firsts = np.array([block.first for block in run.blocks], np.uint64)
        bounds = [block.last for block in run.blocks]
        lasts = np.array(bounds, np.uint64)
        np.maximum(firsts, np.uint64(span.first), out=firsts)
        np.minimum(lasts, np.uint64(span.last), out=lasts)
        return cls(run, ColumnLayout.find(schema, run.name, run.schema), firsts, lasts, bounds)

    @property
    def may_clear(self) -> bool:
        """Whether clear markers can be in it."""
        return self.layout.tombstone is not None and self.run.totals.tombstones > 0

    def blocks_between(self, firsts: Hashes, lasts: Hashes) -> list[int]:
        """The blocks that overlap any of these ascending ranges."""
        touched = lasts.searchsorted(self.firsts, side="left") < firsts.searchsorted(
            self.lasts, side="right"
        )
        found: list[int] = np.flatnonzero(touched & (self.firsts <= self.lasts)).tolist()
        return found

    def search(self, hashes: Hashes, keys: Sequence[pa.Array], todo: Indices) -> Iterator[Hit]:
        """Search for the keys at ``todo``, block by block.

        With only the first of the key columns it finds the first row of each that has these: clear
        markers are found so. Several queries may then ask for the same.
        """
        wanted = hashes if len(todo) == len(hashes) else hashes[todo]
        starts = wanted.searchsorted(self.firsts, side="left")
        ends = wanted.searchsorted(self.lasts, side="right")
        near: list[int] = np.flatnonzero(starts < ends).tolist()
        touched = self.run.only_with(near, lambda index: wanted[starts[index] : ends[index]])
        batches = self.run.blocks_at(touched)
        for index in touched:
            asked = slice(starts[index], ends[index])
            if ends[index] - starts[index] > _FEW:
                self.run.will_need(index)
            batch = next(batches)
            block_keys = self.layout.key_arrays(batch)[: len(keys)]
            query, rows = _search_block(
                hash_values(batch), block_keys, wanted[asked], keys, todo[asked]
            )
            if len(query):
                yield Hit(query, batch, rows)


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
    # The block's keys are distinct, so if a group begins with a row, queries for it follow.
    sizes = np.diff(groups.starts, append=len(order))
    first = np.repeat(order[groups.starts], sizes)
    answered = (first < len(rows)) & (order >= len(rows))
    return query[order[answered] - len(rows)], rows[first[answered]]


def _first_rows(block: Hashes, wanted: Hashes) -> Indices:
    """The first row of a block whose hash is not below each of those wanted."""
    if len(wanted) > _FEW or len(block) < _SMALL_BLOCK:
        return block.searchsorted(wanted)
    rows = np.empty(len(wanted), np.int64)
    for index, value in enumerate(wanted.tolist()):
        rows[index] = guess_place(block, value, wanted[index])
    return rows


def guess_place(block: Hashes, value: int, wanted: np.uint64) -> int:
    """The first row whose hash is not below ``value`` (``wanted`` is the same), if there is one.

    Hashes are spread evenly, so a hash's place can be guessed to within a few pages. A plain search
    would begin by touching pages all over the block.
    """
    count = len(block)
    if count < _SMALL_BLOCK:
        return int(block.searchsorted(wanted))
    first, last = int(block[0]), int(block[-1])
    margin = 4 * isqrt(count)
    guess = (value - first) * count // (last - first + 1)
    low, high = max(0, guess - margin), min(count, guess + margin)
    if (low and block[low] >= wanted) or (high < count and block[high - 1] < wanted):
        low, high = 0, count
    return low + int(block[low:high].searchsorted(wanted))


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
