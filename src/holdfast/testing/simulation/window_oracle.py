"""What windows and sessions must come to, with dicts and lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.entry import EpochRecord
from holdfast.testing.simulation.program import Row

__all__ = ["SessionOracle", "WindowOracle", "late_by"]

Key = str | None
Values = list[int | None]


def late_by(record: EpochRecord, *, derived: bool = False) -> int | None:
    """What is at or before it is late. Results of others are by the epoch before, as all is at the end."""
    by_previous = derived or record.at_end
    return record.previous_watermark_ms if by_previous else record.watermark_ms


def _reached(ms: int | None, end: int) -> bool:
    return ms is not None and end <= ms


def _results(values: Values) -> Row:
    known = [x for x in values if x is not None]
    return len(values), sum(known) if known else None, max(known, default=None)


@dataclass
class _Window:
    end: int
    closed: bool
    early_at: int
    values: Values = field(default_factory=list)
    waiting: int = 0
    touched: bool = False
    last: Row | None = None
    """What was put out last."""


@dataclass
class WindowOracle:
    """Windows of a size, all times in ms but those of rows."""

    size: int
    slide: int
    offset: int
    lateness: int
    early_every: int | None
    retracts: bool
    derived: bool = False
    """Whether rows are others' results."""
    windows: dict[tuple[Key, int], _Window] = field(default_factory=dict)

    @property
    def state(self) -> dict[Any, Any]:
        """Count and sum of every window that is remembered, by key and start in µs."""
        windows = self.windows.items()
        return {(k, start * 1000): _results(one.values)[:2] for (k, start), one in windows}

    def epoch(self, record: EpochRecord, rows: Sequence[Row]) -> list[Row]:
        """What an epoch puts out."""
        for k, x, ts in rows:
            if ts is not None:
                self._take(record, k, x, ts)
        out: list[Row] = []
        for (k, start), one in list(self.windows.items()):
            if self._fires(record, one):
                row = (k, start * 1000, one.end * 1000, *_results(one.values))
                if not self.retracts:
                    out.append(row)
                elif row != one.last:
                    out += [] if one.last is None else [(*one.last, -1)]
                    out.append((*row, 1))
                one.last, one.waiting = row, 0
                one.early_at = record.processing_time_ms + (self.early_every or 0)
            one.touched = False
            one.closed |= _reached(record.watermark_ms, one.end)
            if _reached(record.watermark_ms, one.end + self.lateness):
                del self.windows[k, start]
        return out

    def _take(self, record: EpochRecord, k: Key, x: int | None, ts: int) -> None:
        late = late_by(record, derived=self.derived)
        newest = (ts // 1000 - self.offset) // self.slide * self.slide + self.offset
        for start in range(newest, newest - self.size, -self.slide):
            end = start + self.size
            if ts >= end * 1000 or _reached(late, end + self.lateness):
                continue
            early = record.processing_time_ms + (self.early_every or 0)
            fresh = _Window(end, _reached(late, end), early)
            one = self.windows.setdefault((k, start), fresh)
            one.values.append(x)
            one.waiting += 1
            one.touched = True

    def _fires(self, record: EpochRecord, one: _Window) -> bool:
        if one.closed:
            return one.touched
        if _reached(record.watermark_ms, one.end):
            return True
        waits = self.early_every is not None and one.waiting > 0
        return waits and one.early_at <= record.processing_time_ms


@dataclass
class _Session:
    k: Key
    start: int
    end: int
    values: Values
    waiting: bool
    """Not closed yet when last looked at."""
    touched: bool = True

    @property
    def closes_ms(self) -> int:
        return -(-self.end // 1000)


@dataclass
class SessionOracle:
    """Sessions that are put out when they close; times in µs but the watermark's."""

    gap: int
    lateness_ms: int
    sessions: list[_Session] = field(default_factory=list)

    @property
    def state(self) -> dict[Any, Any]:
        """End, count and sum of every session that is remembered, by key and start."""
        return {(s.k, s.start): (s.end, *_results(s.values)[:2]) for s in self.sessions}

    def epoch(self, record: EpochRecord, rows: Sequence[Row]) -> list[Row]:
        """What an epoch puts out."""
        late, mark = late_by(record), record.watermark_ms
        for session in self.sessions:
            session.touched = False
        for k, x, ts in rows:
            if ts is not None and not _reached(
                late, -(-(ts + self.gap) // 1000) + self.lateness_ms
            ):
                self._add(_Session(k, ts, ts + self.gap, [x], waiting=True))
        out: list[Row] = []
        kept = []
        for session in self.sessions:
            closed = _reached(mark, session.closes_ms)
            if closed and (session.touched or session.waiting):
                out.append((session.k, session.start, session.end, *_results(session.values)))
            session.waiting = not closed
            if not _reached(mark, session.closes_ms + self.lateness_ms):
                kept.append(session)
        self.sessions = kept
        return out

    def _add(self, merged: _Session) -> None:
        near = [
            s
            for s in self.sessions
            if s.k == merged.k and s.start <= merged.end and merged.start <= s.end
        ]
        while near:
            for other in near:
                self.sessions.remove(other)
                merged.start = min(merged.start, other.start)
                merged.end = max(merged.end, other.end)
                merged.values += other.values
                merged.waiting |= other.waiting
            near = [
                s
                for s in self.sessions
                if s.k == merged.k and s.start <= merged.end and merged.start <= s.end
            ]
        self.sessions.append(merged)
