"""Looking up all rows of many state keys at once in a prefixed table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.columns import Indices, concat, equal, hash_values, take, take_all
from holdfast.state.expiry import TableClock, expire
from holdfast.state.hashing import Hashes, marker_hashes
from holdfast.state.keys import group_stretches
from holdfast.state.schema import TableSchema
from holdfast.state.search import SearchPart

__all__ = ["FoundMany", "PrefixLookup"]

_LOW = np.uint64(2**32 - 1)
_FEW = 32
_NONE = np.iinfo(np.int64).max


class FoundMany(NamedTuple):
    """Rows of state found for a batch of state keys."""

    query: npt.NDArray[np.int64]
    """For each found row the index of its state key in the query, ascending, with repeats."""
    rows: pa.Table
    """The found rows, aligned with ``query``, those of a key in the order of (hash, key)."""
    large: npt.NDArray[np.int64]
    """Indices of the state keys that may have more rows than the limit: theirs are left out."""


class _Stretch(NamedTuple):
    """Neighbouring rows of one block that may be rows of one of the keys."""

    query: Indices
    starts: Indices
    ends: Indices


class _Gathered(NamedTuple):
    """Rows of one block that are rows of the keys."""

    query: Indices
    number: Indices
    low: Hashes
    columns: list[pa.Array]
    """Entry keys, values, tombstones."""


class PrefixLookup:
    """One question: the rows of these distinct state keys, sorted by hash, at most ``limit`` each."""

    def __init__(
        self, schema: TableSchema, hashes: Hashes, keys: Sequence[pa.Array], limit: int
    ) -> None:
        self._schema = schema
        self._firsts = marker_hashes(hashes)
        self._lasts = self._firsts | _LOW
        self._keys = keys
        self._limit = limit
        self._counts = np.zeros(len(hashes), np.int64)

    def answer(
        self, parts: Sequence[SearchPart], clock: TableClock | None, result: pa.Schema
    ) -> FoundMany:
        """The rows that these parts, newest first, hold."""
        gathered = [
            rows for number, part in enumerate(parts) for rows in self._gather(number, part)
        ]
        large = np.flatnonzero(self._counts > self._limit)
        query, low, columns = self._newest(gathered)
        live = ~columns[-1].to_numpy(zero_copy_only=False)
        columns.pop()
        entry_keys = len(self._schema.keys) - self._schema.prefix
        over = expire(self._schema, columns[entry_keys:], clock)
        if over is not None:
            columns[entry_keys:] = over.values
            live &= ~over.dead
        if not live.all():
            places = np.flatnonzero(live)
            query, low, columns = query[places], low[places], take_all(columns, places)
        hashes = self._firsts[query] | low
        state_keys = take_all(self._keys, query, ascending=True)
        rows = pa.Table.from_arrays([pa.array(hashes), *state_keys, *columns], schema=result)
        return FoundMany(query, rows, large)

    def _gather(self, number: int, part: SearchPart) -> Iterator[_Gathered]:
        """The rows of the keys in one part, block by block; keys that prove large are left out."""
        for index in part.blocks_between(self._firsts, self._lasts):
            stretch = self._stretch(part, index)
            np.add.at(self._counts, stretch.query, stretch.ends - stretch.starts)
            small = np.flatnonzero(
                (self._counts[stretch.query] <= self._limit) & (stretch.ends > stretch.starts)
            )
            if not len(small):
                continue
            if len(small) > _FEW:
                part.run.will_need(index)
            query, starts = stretch.query[small], stretch.starts[small]
            lengths = stretch.ends[small] - starts
            places = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
            places += np.arange(len(places))
            found = self._rows_of(part, index, np.repeat(query, lengths), places)
            yield found._replace(number=np.full(len(found.query), number))

    def _stretch(self, part: SearchPart, index: int) -> _Stretch:
        """Where in a block the rows of the keys can be; without reading it if they are all of it."""
        first, last = part.firsts[index], part.lasts[index]
        begin = int(self._lasts.searchsorted(first, side="left"))
        end = int(self._firsts.searchsorted(last, side="right"))
        query = np.arange(begin, end)
        lows, highs = np.maximum(self._firsts[begin:end], first), self._lasts[begin:end]
        highs = np.minimum(highs, last)
        block = part.run.blocks[index]
        if (lows <= np.uint64(block.first)).all() and (highs >= np.uint64(block.last)).all():
            return _Stretch(query, np.zeros_like(query), np.full_like(query, block.rows))
        hashes = hash_values(part.run.block(index))
        return _Stretch(
            query, hashes.searchsorted(lows, side="left"), hashes.searchsorted(highs, side="right")
        )

    def _rows_of(self, part: SearchPart, index: int, query: Indices, places: Indices) -> _Gathered:
        """Of rows that may belong to a key those that do: another key may have the same prefix."""
        batch = part.run.block(index)
        keys = part.layout.key_arrays(batch)
        prefix = self._schema.prefix
        mine = np.ones(len(places), np.bool_)
        for asked, ours in zip(self._keys, keys[:prefix], strict=True):
            mine &= equal(take(asked, query, ascending=True), take(ours, places, ascending=True))
        if not mine.all():
            query, places = query[mine], places[mine]
        columns = take_all(keys[prefix:], places, ascending=True)
        columns += part.layout.values_at(batch, places)
        marks = part.layout.tombstones(batch)
        columns.append(
            pa.array(np.zeros(len(places), np.bool_)) if marks is None else take(marks, places)
        )
        return _Gathered(query, query, hash_values(batch)[places] & _LOW, columns)

    def _newest(self, gathered: Sequence[_Gathered]) -> tuple[Indices, Hashes, list[pa.Array]]:
        """Each entry's newest row that no marker clears (maybe a tombstone), by query and hash."""
        schema = self._schema
        kinds = [c.type for c in (*schema.keys[schema.prefix :], *schema.values)] + [pa.bool_()]
        columns = [concat([g.columns[i] for g in gathered], k) for i, k in enumerate(kinds)]
        query = np.concatenate([np.zeros(0, np.int64), *(g.query for g in gathered)])
        number = np.concatenate([np.zeros(0, np.int64), *(g.number for g in gathered)])
        low = np.concatenate([np.zeros(0, np.uint64), *(g.low for g in gathered)])
        kept = self._uncleared(query, number, low)
        if not kept.all():
            places = np.flatnonzero(kept)
            query, number, low = query[places], number[places], low[places]
            columns = take_all(columns, places, ascending=True)
        entries = (query.astype(np.uint64) << np.uint64(32)) | low
        groups = group_stretches(entries, columns[: len(schema.keys) - schema.prefix], number)
        if groups.order is None and len(groups.starts) == len(query):
            return query, low, columns
        winners = groups.starts if groups.order is None else groups.order[groups.starts]
        return query[winners], low[winners], take_all(columns, winners)

    def _uncleared(self, query: Indices, number: Indices, low: Hashes) -> npt.NDArray[np.bool_]:
        """Rows that are no markers, of no large key, and that no marker of a newer part clears."""
        marker = low == 0
        small = self._counts[query] <= self._limit
        if not marker.any():
            return small
        newest = np.full(len(self._counts), _NONE)
        np.minimum.at(newest, query[marker], number[marker])
        kept: npt.NDArray[np.bool_] = ~marker & small & (number <= newest[query])
        return kept
