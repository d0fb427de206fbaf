"""A top operator at work in one task: rows of many keys are ranked together with what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.base import Clock, FoundMany, Session, StateReader, Update
from holdfast.operators.columns import column, is_valid
from holdfast.operators.groups import RowGroups
from holdfast.operators.input_rows import TAG
from holdfast.operators.top.ranking import SortColumn, TopRows, rank_rows
from holdfast.operators.top.tables import CAME, EXPIRES, PLACE
from holdfast.state.columns import Indices, concat, hash_values, one_array, take, take_all
from holdfast.state.hashing import Hashes, HashRange, entry_hashes, marker_hashes
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import HASH, KEY_HASH, order_to_time, time_to_order

if TYPE_CHECKING:
    from holdfast.operators.top.operator import TopOperator

__all__ = ["TopSession"]

Mask = npt.NDArray[np.bool_]

# So many stored rows are held at once, if the keys have all they can have.
_STORED_ROWS = 1 << 22
# A key has no more than n rows, however many older ones of other runs they have replaced.
_NO_LIMIT = 2**62
_FIRST_TIE = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class _KeysAndRows:
    """Distinct keys, sorted by (hash, key), and their new rows, key after key."""

    hashes: Hashes
    keys: pa.Table
    rows: pa.Table
    ids: Indices
    """The key of each row."""
    ends: pa.Array
    """When each key is over, in ms; null: never."""
    due: Mask
    """Keys whose rows go out now and are forgotten."""

    def pieces(self, size: int) -> Iterator[_KeysAndRows]:
        """The same, so many keys at a time."""
        for first in range(0, len(self.hashes), size):
            last = min(first + size, len(self.hashes))
            begin, end = self.ids.searchsorted([first, last])
            yield _KeysAndRows(
                self.hashes[first:last],
                self.keys.slice(first, last - first),
                self.rows.slice(begin, end - begin),
                self.ids[begin:end] - first,
                self.ends.slice(first, last - first),
                self.due[first:last],
            )


@dataclass(slots=True)
class _Outcome:
    """What the pieces of a task came to."""

    rows: list[pa.Table] = field(default_factory=list)
    markers: list[pa.Table] = field(default_factory=list)
    hints: list[pa.Table] = field(default_factory=list)
    gone: list[pa.Table] = field(default_factory=list)
    come: list[pa.Table] = field(default_factory=list)
    new_rows: int = 0


class TopSession(Session):
    """Ranks the rows of one task."""

    def __init__(self, operator: TopOperator, state: StateReader, clock: Clock) -> None:
        self.operator, self.state, self.clock = operator, state, clock
        self._tables = operator.top_tables
        self._kinds = dict(operator.columns)
        self._key_names = [name for name, _ in operator.keys]

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Put new rows in their places, then put out the keys that are over."""
        work = self._arrived(rows)
        result = _Outcome()
        size = max(1, _STORED_ROWS // self.operator.n)
        for piece in work.pieces(size):
            self._fold(piece, result)
        if self.operator.appends:
            for piece in self._waiting(work, within).pieces(size):
                self._fold(piece, result)
        output = [self.operator.output_schema.empty_table(), *result.gone, *result.come]
        return Update(self._changes(result), pa.concat_tables(output), result.new_rows)

    def _arrived(self, rows: SortedRows) -> _KeysAndRows:
        table, starts = rows.table, rows.starts
        kinds = {**self._kinds, TAG: pa.int64()}
        names = [name for name in kinds if name not in self._key_names]
        keys = [column(table, name, kind) for name, kind in self.operator.keys]
        return self._work(
            hash_values(table)[starts],
            pa.Table.from_arrays(take_all(keys, starts, ascending=True), names=self._key_names),
            pa.Table.from_arrays([column(table, n, kinds[n]) for n in names], names=names),
            RowGroups(starts, table.num_rows).ids,
        )

    def _work(self, hashes: Hashes, keys: pa.Table, rows: pa.Table, ids: Indices) -> _KeysAndRows:
        operator, due = self.operator, np.zeros(len(hashes), np.bool_)
        if operator.expires is None:
            return _KeysAndRows(hashes, keys, rows, ids, pa.nulls(len(hashes), pa.int64()), due)
        ends = operator.ends_ms(keys.column(operator.expires))
        if operator.appends and self.clock.watermark_ms is not None:
            due = ends.fill_null(np.iinfo(np.int64).max).to_numpy() <= self.clock.watermark_ms
        return _KeysAndRows(hashes, keys, rows, ids, ends, due)

    def _waiting(self, work: _KeysAndRows, within: HashRange) -> _KeysAndRows:
        """Keys without new rows whose time has come."""
        ends, now = self._tables.ends, self.clock.watermark_ms
        nothing = work.rows.slice(0, 0)
        hashes, keys = work.hashes[:0], work.keys.slice(0, 0)
        if ends is not None and now is not None:
            hints = self.state.due(ends.table, now, within)
            before = self.clock.previous_watermark_ms
            if before is not None:  # Older hints are dead; merges may have dropped them or not.
                hints = hints.filter(pa.array(order_to_time(hash_values(hints)) > before))
            if hints.num_rows:
                hashes, keys = self._without_rows(work, hints)
        return self._work(hashes, keys, nothing, np.empty(0, np.int64))

    def _without_rows(self, work: _KeysAndRows, hints: pa.Table) -> tuple[Hashes, pa.Table]:
        """The keys of hints, without those that have had their turn with their rows."""
        done = np.flatnonzero(work.due)
        known = take_all([one_array(c) for c in work.keys.columns], done, ascending=True)
        pairs = zip(known, (column(hints, n, k) for n, k in self.operator.keys), strict=True)
        hinted = column(hints, KEY_HASH, pa.uint64())
        hashes = concat([pa.array(work.hashes[done]), hinted], pa.uint64())
        columns = [concat([a, b], a.type) for a, b in pairs]
        is_hint = pa.array(np.arange(len(hashes)) >= len(done))
        names = [HASH, *self._key_names, "hint"]
        both = pa.Table.from_arrays([hashes, *columns, is_hint], names=names)
        # Rows of equal keys keep their order: a key that is done begins with its own row.
        rows = sort_rows(both, len(self._key_names))
        firsts = rows.table.take(pa.array(rows.starts))
        left = firsts.filter(firsts.column("hint")).combine_chunks()
        return hash_values(left), left.select(self._key_names)

    def _fold(self, work: _KeysAndRows, result: _Outcome) -> None:
        operator = self.operator
        found = self.state.lookup_prefix(self._tables.rows.table, work.hashes, work.keys, _NO_LIMIT)
        ranked = rank_rows(np.concatenate((found.query, work.ids)), self._order(work, found))
        top = TopRows.of(operator.n, len(work.hashes), len(found.query), ranked)
        self._write(work, found, top, result)
        if operator.appends:
            self._put_out_due(work, found, top, result)
        else:
            self._put_out_changes(work, found, top, result)

    def _order(self, work: _KeysAndRows, found: FoundMany) -> list[SortColumn]:
        """What rows are sorted by: stored rows come before equal new ones, which go by their tags."""
        order = []
        for name, descending in self.operator.sort_by:
            kind = self._kinds[name]
            both = [column(found.rows, name, kind), column(work.rows, name, kind)]
            order.append(SortColumn(concat(both, kind), descending))
        came = column(found.rows, CAME, pa.int64()).to_numpy() + _FIRST_TIE
        tags = column(work.rows, TAG, pa.int64())
        order.append(SortColumn(concat([pa.array(came), tags], pa.int64())))
        return order

    def _write(self, work: _KeysAndRows, found: FoundMany, top: TopRows, result: _Outcome) -> None:
        """New rows of keys that live on, a hint for each such key that is new, markers for others."""
        used = column(found.rows, PLACE, pa.int32()).to_numpy()[top.old].astype(np.int64)
        stays = np.flatnonzero(~work.due[top.new_ids])
        ids = top.new_ids[stays]
        if len(stays):
            places = top.places(used)[stays]
            result.rows.append(self._rows(work, ids, places, top.new[stays], top.new_ranks[stays]))
        result.new_rows += len(stays) - int(top.leaves[~work.due[top.old_ids]].sum())
        cleared = np.flatnonzero(work.due & (top.sizes > 0))
        if len(cleared):
            result.markers.append(self._markers(work, cleared))
            result.new_rows -= int(top.sizes[cleared].sum())
        if self.operator.appends and len(ids):
            fresh = np.unique(ids[top.sizes[ids] == 0])
            self._hint(work, fresh, result)

    def _rows(
        self, work: _KeysAndRows, ids: Indices, places: Indices, rows: Indices, ranks: Indices
    ) -> pa.Table:
        schema = self._tables.rows
        low = (places + 1).astype(np.uint32)  # 0 is the lower half of a clear marker
        arrays = [pa.array(entry_hashes(work.hashes[ids], low))]
        arrays += take_all([one_array(c) for c in work.keys.columns], ids, ascending=True)
        arrays.append(pa.array(places.astype(np.int32)))
        known = {PLACE, CAME, EXPIRES}
        own = [c for c in schema.values if c.name not in known]
        arrays += take_all([column(work.rows, c.name, c.type) for c in own], rows)
        # Ranks tell the rows of one epoch apart: those that are equal in their order ascend.
        arrays.append(pa.array((np.int64(self.clock.epoch) << np.int64(32)) + ranks))
        if schema.value_names[-1] == EXPIRES:
            arrays.append(take(work.ends, ids, ascending=True))
        return pa.Table.from_arrays(arrays, schema=schema.arrow)

    def _markers(self, work: _KeysAndRows, cleared: Indices) -> pa.Table:
        schema = self._tables.rows
        arrays = [pa.array(marker_hashes(work.hashes[cleared]))]
        arrays += take_all([one_array(c) for c in work.keys.columns], cleared, ascending=True)
        blank = schema.columns[len(self._key_names) :]
        arrays += [pa.nulls(len(cleared), c.type) for c in blank]
        return pa.Table.from_arrays(arrays, schema=schema.arrow)

    def _hint(self, work: _KeysAndRows, fresh: Indices, result: _Outcome) -> None:
        schema = self._tables.ends
        assert schema is not None
        valid = is_valid(work.ends)
        if valid is not None:
            fresh = fresh[valid[fresh]]
        if not len(fresh):
            return
        times = take(work.ends, fresh, ascending=True).to_numpy()
        arrays = [pa.array(time_to_order(times)), pa.array(work.hashes[fresh])]
        arrays += take_all([one_array(c) for c in work.keys.columns], fresh, ascending=True)
        result.hints.append(pa.Table.from_arrays(arrays, schema=schema.arrow))

    def _put_out_due(
        self, work: _KeysAndRows, found: FoundMany, top: TopRows, result: _Outcome
    ) -> None:
        old = np.flatnonzero(work.due[top.old_ids] & ~top.leaves)
        new = np.flatnonzero(work.due[top.new_ids])
        result.come.append(self._output(work, found, top, old, new, top.old_ranks, None))

    def _put_out_changes(
        self, work: _KeysAndRows, found: FoundMany, top: TopRows, result: _Outcome
    ) -> None:
        gone, moved = top.leaves, np.zeros(len(top.old), np.bool_)
        if self.operator.rank is not None:
            moved = ~gone & (top.ranks_before != top.old_ranks)
        old, none = np.flatnonzero(gone | moved), np.empty(0, np.int64)
        result.gone.append(self._output(work, found, top, old, none, top.ranks_before, -1))
        old, new = np.flatnonzero(moved), np.arange(len(top.new))
        result.come.append(self._output(work, found, top, old, new, top.old_ranks, 1))

    def _output(
        self, work: _KeysAndRows, found: FoundMany, top: TopRows, old: Indices, new: Indices,
        old_ranks: Indices, change: int | None,
    ) -> pa.Table:  # fmt: skip
        """Stored and new rows by key and rank."""
        operator = self.operator
        ids = np.concatenate((top.old_ids[old], top.new_ids[new]))
        ranks = np.concatenate((old_ranks[old], top.new_ranks[new]))
        order = np.lexsort((ranks, ids)) if len(old) and len(new) else np.arange(len(ids))
        arrays = []
        for name, kind in operator.columns:
            if name in self._key_names:
                arrays.append(take(column(work.keys, name, kind), ids[order], ascending=True))
                continue
            kept = take(column(found.rows, name, kind), top.old[old])
            come = take(column(work.rows, name, kind), top.new[new])
            both = concat([part for part in (kept, come) if len(part)], kind)
            arrays.append(take(both, order) if len(kept) and len(come) else both)
        if operator.rank is not None:
            arrays.append(pa.array((ranks[order] + 1).astype(np.int32)))
        if change is not None:
            arrays.append(pa.array(np.full(len(ids), change, np.int8)))
        return pa.Table.from_arrays(arrays, schema=operator.output_schema)

    def _changes(self, result: _Outcome) -> dict[str, pa.Table]:
        tables = self._tables
        schema = tables.rows.arrow
        rows = pa.concat_tables([schema.empty_table(), *result.rows, *result.markers])
        if result.markers:
            written = sum(table.num_rows for table in result.rows)
            marks = pa.array(np.arange(rows.num_rows) >= written)
            schema = tables.rows.arrow_with_tombstones
            rows = pa.Table.from_arrays([*rows.columns, marks], schema=schema)
        keys = len(tables.rows.keys)
        changes = {tables.rows.table: sort_rows(rows.combine_chunks(), keys).table}
        if tables.ends is not None and result.hints:
            changes[tables.ends.table] = pa.concat_tables(result.hints).combine_chunks()
        return changes
