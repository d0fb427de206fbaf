"""Which windows rows are in, which of those fire, and until when rows are needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast.operators.base import Clock
from holdfast.operators.columns import Bits
from holdfast.operators.groups import RowGroups
from holdfast.operators.piece_keys import NEVER, ceil_ms
from holdfast.operators.spans import merge_spans
from holdfast.operators.window.spec import SessionGap, Sliding, Tumbling
from holdfast.state.columns import Indices

__all__ = ["Assigned", "Assigner", "Bounds", "RowsOfKeys", "assigner_of"]


class Bounds(NamedTuple):
    """The times, in ms, that an epoch goes by."""

    now: int
    """Windows that end by then are closed."""
    before: int
    """Those that end by then had closed in the epoch before."""
    over: int
    """Those that end by then take no more rows."""
    lateness: int

    @classmethod
    def of(cls, clock: Clock, lateness_ms: int) -> Bounds:
        """The bounds of an epoch."""
        marks = (clock.watermark_ms, clock.previous_watermark_ms, clock.late_ms)
        now, before, late = (NEVER if mark is None else mark for mark in marks)
        return cls(now, before, late - lateness_ms, lateness_ms)


class RowsOfKeys(NamedTuple):
    """The rows of some keys, those of this epoch first."""

    owners: Indices
    times: Indices
    """Event times in µs."""
    fresh: int
    """How many are of this epoch."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """Rows that go out, once for each window that fires, and what is to become of all rows."""

    rows: Indices
    """For each row that goes out: which one."""
    starts: Indices
    """Where its window begins, in µs."""
    ends: Indices
    over: Bits
    """For all rows: whether they are not needed any more."""
    next_ms: Indices
    """For all other rows: when their key must be looked at again."""


class Assigner(ABC):
    """A way to cut time into windows. All windows that hold a row end after it."""

    @property
    @abstractmethod
    def overlapping(self) -> bool:
        """Whether a row can be in several windows."""

    @abstractmethod
    def last_close_ms(self, times: Indices) -> Indices:
        """For each row when the last window that it would be in by itself closes."""

    @abstractmethod
    def may_close(self, times: Indices, bounds: Bounds) -> Bits:
        """Which rows of this epoch may be in a window that has closed and still takes rows."""

    @abstractmethod
    def assign(self, rows: RowsOfKeys, bounds: Bounds) -> Assigned:
        """Which rows go out in which windows: those that close, or had closed but have new rows."""


def assigner_of(window: Tumbling | Sliding | SessionGap) -> Assigner:
    """How rows are put into such windows.

    >>> assigner_of(Tumbling(10)).last_close_ms(np.array([0, 9_999, 10_000])).tolist()
    [10, 10, 20]
    """
    if isinstance(window, SessionGap):
        return _SessionAssigner(window.gap_ms)
    return _Fixed(window.size_ms, window.slide_ms, window.offset_ms)


@dataclass(frozen=True, slots=True)
class _SessionAssigner(Assigner):
    gap_ms: int

    @property
    def overlapping(self) -> bool:
        return False

    def last_close_ms(self, times: Indices) -> Indices:
        return ceil_ms(times + self.gap_ms * 1000)

    def may_close(self, times: Indices, bounds: Bounds) -> Bits:
        closed: Bits = self.last_close_ms(times) <= bounds.now
        return closed

    def assign(self, rows: RowsOfKeys, bounds: Bounds) -> Assigned:
        total = len(rows.owners)
        spans = rows.times + self.gap_ms * 1000
        merged = merge_spans(rows.owners, rows.times, spans)
        order = np.arange(total) if merged.order is None else merged.order
        # In order of time, the last row of a session is the one that it ends by.
        lasts = np.append(merged.firsts[1:], total) - 1
        starts, ends = rows.times[order[merged.firsts]], spans[order[lasts]]
        closes = ceil_ms(ends)
        touched = np.logical_or.reduceat(order < rows.fresh, merged.firsts)
        fires = (closes <= bounds.now) & (touched | (closes > bounds.before))
        session = np.empty(total, np.int64)
        session[order] = RowGroups(merged.firsts, total).ids
        out = np.flatnonzero(fires[session])
        over = closes + bounds.lateness <= bounds.now
        next_ms = np.where(closes > bounds.now, closes, closes + bounds.lateness)
        places = session[out]
        return Assigned(out, starts[places], ends[places], over[session], next_ms[session])


@dataclass(frozen=True, slots=True)
class _Fixed(Assigner):
    size_ms: int
    slide_ms: int
    offset_ms: int

    @property
    def overlapping(self) -> bool:
        return self.slide_ms < self.size_ms

    def last_close_ms(self, times: Indices) -> Indices:
        slide = self.slide_ms * 1000
        began = (times - self.offset_ms * 1000) // slide * self.slide_ms
        closes: Indices = began + (self.offset_ms + self.size_ms)
        return closes

    def may_close(self, times: Indices, bounds: Bounds) -> Bits:
        some: Bits = self._ends(times, bounds.over, bounds.now)[1] > 0
        return some

    def assign(self, rows: RowsOfKeys, bounds: Bounds) -> Assigned:
        fresh, times = rows.fresh, rows.times
        new, new_ends = self._pairs(times[:fresh], bounds.over, bounds.now)
        old, old_ends = self._pairs(times[fresh:], bounds.before, bounds.now)
        reopened, reopened_ends = self._of_reopened(rows, new, new_ends, bounds)
        members = np.concatenate([new, old + fresh, reopened])
        ends = np.concatenate([new_ends, old_ends, reopened_ends])
        last = self.last_close_ms(times)
        following, count = self._ends(times, bounds.now, None)
        next_ms = np.where(count > 0, following, last + bounds.lateness)
        starts = (ends - self.size_ms) * 1000
        return Assigned(members, starts, ends * 1000, last + bounds.lateness <= bounds.now, next_ms)

    def _of_reopened(
        self, rows: RowsOfKeys, new: Indices, new_ends: Indices, bounds: Bounds
    ) -> tuple[Indices, Indices]:
        """Earlier rows of windows that had closed before and to which rows of this epoch came."""
        late = new_ends <= bounds.before
        owners, ends = rows.owners[new[late]], new_ends[late]
        nothing = np.empty(0, np.int64)
        if not len(ends) or len(rows.owners) == rows.fresh:
            return nothing, nothing
        mine = np.flatnonzero(np.isin(rows.owners[rows.fresh :], owners)) + rows.fresh
        pairs, old_ends = self._pairs(rows.times[mine], int(ends.min()) - 1, bounds.before)
        mine = mine[pairs]
        distinct, ranks = np.unique(np.concatenate([ends, old_ends]), return_inverse=True)
        names = np.concatenate([owners, rows.owners[mine]]) * len(distinct) + ranks
        wanted = np.isin(names[len(ends) :], names[: len(ends)])
        return mine[wanted], old_ends[wanted]

    def _ends(self, times: Indices, after: int, until: int | None) -> tuple[Indices, Indices]:
        """For each row the first end of its windows after a time, and how many there are up to another."""
        last, slide = self.last_close_ms(times), self.slide_ms
        lower = np.maximum(times // 1000, after)
        first = last - (last - lower - 1) // slide * slide
        upper = last if until is None else np.minimum(last, until)
        count = np.where(lower < last, (upper - first) // slide + 1, 0)
        return first, np.maximum(count, 0)

    def _pairs(self, times: Indices, after: int, until: int) -> tuple[Indices, Indices]:
        """Each row as often as it has windows that end between two times, and their ends (ms)."""
        first, count = self._ends(times, after, until)
        rows = np.repeat(np.arange(len(times)), count)
        steps = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, first[rows] + steps * self.slide_ms
