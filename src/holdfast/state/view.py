"""A state table as one version shows it: look-ups of many keys at once, and scans.

Nothing is read that a question does not touch: runs are searched newest first, only blocks whose
bounds hold an unanswered key are opened, and of a mapped block only the pages that matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.blocks import OpenRun
from holdfast.state.columns import Indices, concat, one_array, take, take_all
from holdfast.state.expiry import TableClock, expire
from holdfast.state.hashing import FULL_RANGE, Hashes, HashRange, marker_hashes, prefix_range
from holdfast.state.keys import keys_equal
from holdfast.state.merge import merge_runs, merge_times
from holdfast.state.point import find_one
from holdfast.state.prefixed import FoundMany, PrefixLookup
from holdfast.state.schema import TableSchema, orders_after
from holdfast.state.search import SearchPart
from holdfast.state.timed import first_time

__all__ = ["FoundMany", "FoundRows", "TableView"]

# One large key is read in pieces of this size: small enough to begin at once.
_KEY_PIECE_ROWS = 1 << 16
_FIRST = np.zeros(1, np.int64)


class FoundRows(NamedTuple):
    """Rows of state found for a batch of keys."""

    query: npt.NDArray[np.int64]
    """For each found row the index of its key in the query, ascending."""
    rows: pa.Table
    """The found rows, aligned with ``query``, with the table's columns in schema order."""


class TableView:
    """The rows of one state table in some segments, newest first, as they are at a clock.

    Segments that overlap must be of different epochs: the newer one's row of a key is the row.
    Without a clock nothing expires.
    """

    def __init__(
        self,
        schema: TableSchema,
        segments: Sequence[tuple[OpenRun, HashRange]],
        clock: TableClock | None = None,
    ) -> None:
        self.schema = schema
        self.clock = clock
        self._arrow = schema.arrow
        self._segments = tuple(segments)
        self._parts = [SearchPart.open(schema, run, span) for run, span in segments]

    def lookup(self, hashes: Hashes, keys: pa.Table) -> FoundRows:
        """Find the rows of these distinct keys, which are sorted by hash.

        In a prefixed table the keys are those of entries: state key and what tells entries apart.
        """
        key_columns = [one_array(column) for column in keys.columns]
        if len(hashes) == 1:
            return self._lookup_one(hashes, key_columns)
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
            if self.schema.prefix and part.may_clear:
                self._clear(part, hashes, key_columns, unanswered)
        return self._found(hashes, key_columns, answers)

    def lookup_prefix(self, hashes: Hashes, keys: pa.Table, limit: int) -> FoundMany:
        """Find all rows of these distinct state keys, which are sorted by hash.

        Keys that may have more than ``limit`` rows are only named: :meth:`scan_prefix` reads one.
        """
        columns = [one_array(column) for column in keys.columns]
        question = PrefixLookup(self.schema, hashes, columns, limit)
        return question.answer(self._parts, self.clock, self._arrow)

    def scan_prefix(self, hash: int, key: pa.Table) -> Iterator[pa.Table]:  # noqa: A002
        """The live rows of one state key, given as a table of one row, in pieces of bounded size."""
        columns = [one_array(column) for column in key.columns]
        for piece in self._merged(prefix_range(hash), _KEY_PIECE_ROWS):
            zeros = np.zeros(piece.num_rows, np.int64)
            wanted = pa.Table.from_arrays(
                [take(column, zeros, ascending=True) for column in columns], names=key.column_names
            )
            mine = keys_equal(piece.select(self.schema.key_names[: self.schema.prefix]), wanted)
            if mine.any():
                yield piece if mine.all() else piece.filter(pa.array(mine))

    def scan(self, within: HashRange = FULL_RANGE) -> Iterator[pa.Table]:
        """The live rows of a range of key hashes, sorted, in pieces of bounded size."""
        return self._merged(within)

    def count(self, within: HashRange = FULL_RANGE) -> int:
        """How many live rows there are in a range."""
        if self.clock is None or not self.schema.expires:
            schema = self.schema
            keys_only = TableSchema(schema.table, schema.keys, (), schema.prefix, schema.timed)
            pieces = merge_runs(keys_only, self._segments, within, drop_tombstones=True)
        else:
            pieces = self._merged(within)
        return sum(piece.num_rows for piece in pieces)

    def due(self, after_ms: int | None, until_ms: int) -> pa.Table:
        """The rows of a timed table with a time after one and up to another, each once, sorted.

        It is told the times, so the view's clock does not matter.
        """
        times = orders_after(after_ms, until_ms)
        if times is None:
            return self._arrow.empty_table()
        pieces = merge_times(self.schema, self._segments, FULL_RANGE, times)
        return pa.concat_tables([self._arrow.empty_table(), *pieces]).combine_chunks()

    def first_time(self, after_ms: int | None) -> int | None:
        """The earliest time of a timed table's rows after this one, if there is any."""
        return first_time(self._segments, after_ms)

    def _lookup_one(self, hashes: Hashes, keys: Sequence[pa.Array]) -> FoundRows:
        value = int(hashes[0])
        for part in self._parts:
            found = find_one(part, value, keys)
            if found is not None:
                if part.layout.is_tombstone(*found):
                    break
                return self._one(hashes, keys, part.layout.values_of(*found))
            if self.schema.prefix and part.may_clear:
                marker = prefix_range(value).first
                if find_one(part, marker, keys[: self.schema.prefix]) is not None:
                    break
        return self._nothing()

    def _one(self, hashes: Hashes, keys: Sequence[pa.Array], values: list[pa.Array]) -> FoundRows:
        over = expire(self.schema, values, self.clock)
        if over is not None:
            if over.dead[0]:
                return self._nothing()
            values = over.values
        columns = [pa.array(hashes), *keys, *values]
        return FoundRows(_FIRST, pa.Table.from_arrays(columns, schema=self._arrow))

    def _nothing(self) -> FoundRows:
        return FoundRows(_FIRST[:0], self._arrow.empty_table())

    def _merged(self, within: HashRange, piece_rows: int | None = None) -> Iterator[pa.Table]:
        options = {} if piece_rows is None else {"piece_rows": piece_rows}
        return merge_runs(
            self.schema, self._segments, within, drop_tombstones=True, clock=self.clock, **options
        )

    def _clear(
        self,
        part: SearchPart,
        hashes: Hashes,
        keys: Sequence[pa.Array],
        unanswered: npt.NDArray[np.bool_],
    ) -> None:
        """Entries whose state key this part clears are not to be looked for in older ones."""
        todo = np.flatnonzero(unanswered)
        if len(todo):
            for hit in part.search(marker_hashes(hashes), keys[: self.schema.prefix], todo):
                unanswered[hit.query] = False

    def _found(
        self,
        hashes: Hashes,
        keys: Sequence[pa.Array],
        answers: Sequence[tuple[Indices, list[pa.Array]]],
    ) -> FoundRows:
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
        over = expire(self.schema, values, self.clock)
        if over is not None:
            live = np.flatnonzero(~over.dead)
            query, values = query[live], take_all(over.values, live, ascending=True)
        if len(query) < len(hashes):
            hashes = hashes[query]
            keys = take_all(keys, query, ascending=True)
        # The keys asked for are the keys found: they need not be copied from the runs.
        columns = [pa.array(hashes), *keys, *values]
        return FoundRows(query, pa.Table.from_arrays(columns, schema=self._arrow))
