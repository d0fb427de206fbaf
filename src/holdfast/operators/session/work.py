"""Sessions at work in one task: rows are merged with the sessions of their keys, and what is due fires.

Hints are lazy. Each session in state has a hint of its key that lies ahead and no later than when
the session must next be looked at. Rows that make a session longer write none: when the hint's time
comes, the key's sessions are looked at and get new hints. So a key that is busy all day costs a
hint per gap, not one per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.choices import OutputMode
from holdfast.operators.aggregates.buffers import Buffers
from holdfast.operators.base import Clock, Session, StateReader, Update
from holdfast.operators.columns import Bits, column
from holdfast.operators.groups import RowGroups
from holdfast.operators.input_rows import Fields
from holdfast.operators.piece_keys import (
    NEVER,
    Hints,
    KeySet,
    ceil_ms,
    keys_of,
    read_under,
    together,
)
from holdfast.operators.session.same import same_values
from holdfast.operators.spans import Merged, merge_spans
from holdfast.operators.window.spec import PANE, TIME, WINDOW_END, WINDOW_START
from holdfast.state.columns import Indices, concat, take_all
from holdfast.state.hashing import HashRange, entry_hashes
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import TableSchema

__all__ = ["SessionRules", "SessionWork", "entry_low"]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class SessionRules:
    """What the work needs to know of its operator."""

    keys: Fields
    put_out_keys: int
    """How many of the keys are in the output: all, or none."""
    gap_ms: int
    lateness_ms: int
    output_mode: OutputMode
    fires_late: bool


def entry_low(starts: Indices) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The lower half of a session's hash, by its start: part of the format, never to be changed.

    >>> entry_low(np.array([0, 1])).tolist()
    [0, 2654435769]
    """
    low: np.ndarray[tuple[int], np.dtype[np.uint32]] = (
        (starts.view(np.uint64) * _SPREAD) >> np.uint64(32)
    ).astype(np.uint32)
    return low


@dataclass(frozen=True, slots=True)
class _SessionMembers:
    """Rows and, behind them, sessions of the state: what sessions are made of."""

    keys: KeySet
    due: Bits
    """Which keys a hint told to look at."""
    rows: int
    owners: Indices
    """The key of each member."""
    starts: Indices
    ends: Indices
    buffers: list[pa.Array]


@dataclass(frozen=True, slots=True)
class _MadeSessions:
    """The sessions that the members make, by key and start."""

    order: Indices
    """The members, those of a session side by side."""
    firsts: Indices
    owners: Indices
    starts: Indices
    ends: Indices
    closes_ms: Indices
    touched: Bits
    """Whether rows have come to it."""
    known: Bits
    """Whether the state has any of it."""
    latest_ms: Indices
    """When the last of its sessions in the state would have closed."""


class SessionWork(Session):
    """One task's work on sessions."""

    def __init__(
        self,
        shape: SessionRules,
        table: TableSchema,
        hints: Hints,
        buffers: Buffers,
        output: pa.Schema,
        state: StateReader,
        clock: Clock,
    ) -> None:
        self._shape, self._table, self._hints = shape, table, hints
        self._buffers, self._output = buffers, output
        self._state, self._clock = state, clock
        self._now = NEVER if clock.watermark_ms is None else clock.watermark_ms
        before, late = clock.previous_watermark_ms, clock.late_ms
        self._before = NEVER if before is None else before
        self._late = NEVER if late is None else late

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Merge rows into sessions, then fire and forget what the watermark has reached."""
        members = self._members(rows, within)
        if not len(members.owners):
            return Update({}, self._output.empty_table(), 0)
        sessions = _sessions(members)
        gone = sessions.closes_ms + self._shape.lateness_ms <= self._now
        fires = self._fires(sessions)
        stays = sessions.touched & ~gone
        needed = np.flatnonzero(fires | stays)
        merged = self._merged(members, sessions, needed)
        changes, more = self._changes(members, sessions, needed, stays, gone, merged)
        hints = self._new_hints(members, sessions, gone)
        output = self._results(members, sessions, needed, fires, merged)
        return Update({self._table.table: changes, self._hints.schema.table: hints}, output, more)

    def _members(self, rows: SortedRows, within: HashRange) -> _SessionMembers:
        shape, table = self._shape, rows.table
        hinted = self._hints.due(self._state, self._clock, within)
        keys, fresh, looked = together(keys_of(rows, shape.keys), hinted)
        due = np.zeros(len(keys), np.bool_)
        due[looked] = True
        query, found = read_under(self._state, self._table, keys)
        starts = column(table, PANE, pa.int64()).to_numpy()
        ends = column(table, TIME, pa.int64()).to_numpy() + shape.gap_ms * 1000
        owners = fresh[RowGroups(rows.starts, table.num_rows).ids]
        buffers = self._buffers.of(table)
        if len(query):
            owners = np.concatenate([owners, query])
            starts = np.concatenate([starts, found.column(WINDOW_START).to_numpy()])
            ends = np.concatenate([ends, found.column(WINDOW_END).to_numpy()])
            pairs = zip(buffers, self._buffers.of(found), strict=True)
            buffers = [concat(pair, pair[0].type) for pair in pairs]
        return _SessionMembers(keys, due, table.num_rows, owners, starts, ends, buffers)

    def _fires(self, sessions: _MadeSessions) -> Bits:
        """Which sessions are put out."""
        shape = self._shape
        in_time = sessions.touched & (shape.fires_late | (sessions.closes_ms > self._late))
        if shape.output_mode != "append":
            return in_time
        # What was open in the epoch before has not been put out yet.
        waiting = sessions.known & (sessions.latest_ms > self._before)
        fires: Bits = (sessions.closes_ms <= self._now) & (in_time | waiting)
        return fires

    def _merged(
        self, members: _SessionMembers, sessions: _MadeSessions, needed: Indices
    ) -> list[pa.Array]:
        """The buffers of the sessions at these places."""
        sizes = np.diff(sessions.firsts, append=len(sessions.order))
        wanted = np.zeros(len(sessions.firsts), np.bool_)
        wanted[needed] = True
        order = sessions.order[np.repeat(wanted, sizes)]
        sizes = sizes[needed]
        columns = members.buffers
        if len(order) != len(members.owners) or (order[1:] < order[:-1]).any():
            columns = take_all(columns, order)
        groups = RowGroups(np.cumsum(sizes) - sizes, len(order))
        owners = sessions.owners[needed]
        return self._buffers.merge(columns, groups, lambda i: self._words(members, int(owners[i])))

    def _words(self, members: _SessionMembers, place: int) -> dict[str, object]:
        return members.keys.words(place) if self._shape.put_out_keys else {}

    def _changes(
        self,
        members: _SessionMembers,
        sessions: _MadeSessions,
        needed: Indices,
        stays: Bits,
        gone: Bits,
        merged: list[pa.Array],
    ) -> tuple[pa.Table, int]:
        """Rows of the table, and how many more it then has."""
        kept = np.flatnonzero(stays[needed])
        places = needed[kept]
        old = _in_state(members, sessions)
        session = _session_of(sessions, len(members.owners))[old]
        same = stays[session] & (members.starts[old] == sessions.starts[session])
        dead = old[(sessions.touched | gone)[session] & ~same]
        owners = np.concatenate([sessions.owners[places], members.owners[dead]])
        starts = np.concatenate([sessions.starts[places], members.starts[dead]])
        nothing = pa.nulls(len(dead), pa.int64())
        values = [pa.array(sessions.ends[places]), *take_all(merged, kept, ascending=True)]
        blank = [nothing, *(pa.nulls(len(dead), kind) for _, kind in self._buffers.fields)]
        columns = [
            pa.array(entry_hashes(members.keys.hashes[owners], entry_low(starts))),
            *members.keys.columns_at(owners),
            pa.array(starts),
            *(concat(pair, pair[0].type) for pair in zip(values, blank, strict=True)),
        ]
        arrow = self._table.arrow
        if len(dead):
            columns.append(pa.array(np.arange(len(owners)) >= len(places)))
            arrow = self._table.arrow_with_tombstones
        table = pa.Table.from_arrays(columns, schema=arrow)
        more = len(places) - int(same.sum()) - len(dead)
        return sort_rows(table, len(self._table.keys)).table, more

    def _new_hints(self, members: _SessionMembers, sessions: _MadeSessions, gone: Bits) -> pa.Table:
        """A hint for sessions that are new, that opened again, or whose key was looked at."""
        at = sessions.closes_ms + self._shape.lateness_ms
        wanted = members.due[sessions.owners] | ~sessions.known
        if self._shape.output_mode == "append":
            is_open = sessions.closes_ms > self._now
            wanted |= is_open & (sessions.latest_ms <= self._now)
            at = np.where(is_open, sessions.closes_ms, at)
        places = np.flatnonzero(wanted & ~gone)
        return self._hints.make(at[places], members.keys, sessions.owners[places])

    def _results(
        self,
        members: _SessionMembers,
        sessions: _MadeSessions,
        needed: Indices,
        fires: Bits,
        merged: list[pa.Array],
    ) -> pa.Table:
        fired = np.flatnonzero(fires[needed])
        places = needed[fired]
        owners = sessions.owners[places]
        starts, ends = sessions.starts[places], sessions.ends[places]
        buffers = take_all(merged, fired, ascending=True)
        fresh = self._finished(members, owners, starts, ends, buffers)
        if self._shape.output_mode != "retract":
            return pa.Table.from_arrays(fresh, schema=self._output)
        old = _in_state(members, sessions)
        session = _session_of(sessions, len(members.owners))[old]
        old, session = old[sessions.touched[session]], session[sessions.touched[session]]
        buffers = take_all(members.buffers, old)
        before = self._finished(
            members, members.owners[old], members.starts[old], members.ends[old], buffers
        )
        after = [array.take(pa.array(np.searchsorted(places, session))) for array in fresh]
        equal = same_values(before, after)
        still = np.ones(len(places), np.bool_)
        still[np.searchsorted(places, session[equal])] = False
        before = take_all(before, np.flatnonzero(~equal))
        fresh = take_all(fresh, np.flatnonzero(still))
        columns = [concat(pair, pair[0].type) for pair in zip(before, fresh, strict=True)]
        changes = np.repeat(np.array([-1, 1], np.int8), [len(before[0]), len(fresh[0])])
        return pa.Table.from_arrays([*columns, pa.array(changes)], schema=self._output)

    def _finished(
        self,
        members: _SessionMembers,
        owners: Indices,
        starts: Indices,
        ends: Indices,
        buffers: list[pa.Array],
    ) -> list[pa.Array]:
        """Keys, bounds and results."""
        keys = members.keys.columns_at(owners) if self._shape.put_out_keys else []
        kind = self._output.field(WINDOW_START).type
        bounds = [pa.array(times).cast(kind) for times in (starts, ends)]
        whose = lambda i: self._words(members, int(owners[i]))  # noqa: E731
        return [*keys, *bounds, *self._buffers.finish(buffers, whose)]


def _sessions(members: _SessionMembers) -> _MadeSessions:
    merged: Merged = merge_spans(members.owners, members.starts, members.ends)
    firsts, total = merged.firsts, len(members.owners)
    order = np.arange(total) if merged.order is None else merged.order
    heads = order[firsts]
    ends = np.maximum.reduceat(members.ends[order], firsts)
    if members.rows == total:
        none = np.zeros(len(firsts), np.bool_)
        touched, known, latest = ~none, none, np.full(len(firsts), NEVER)
    else:
        stored = order >= members.rows
        touched = np.logical_or.reduceat(~stored, firsts)
        known = np.logical_or.reduceat(stored, firsts)
        closes = np.where(stored, ceil_ms(members.ends[order]), NEVER)
        latest = np.maximum.reduceat(closes, firsts)
    return _MadeSessions(
        order,
        firsts,
        members.owners[heads],
        members.starts[heads],
        ends,
        ceil_ms(ends),
        touched,
        known,
        latest,
    )


def _session_of(sessions: _MadeSessions, total: int) -> Indices:
    """The session of each member."""
    session = np.empty(total, np.int64)
    session[sessions.order] = RowGroups(sessions.firsts, total).ids
    return session


def _in_state(members: _SessionMembers, sessions: _MadeSessions) -> Indices:
    """The members that the state has, by session."""
    return sessions.order[sessions.order >= members.rows]
