"""Sessions in plain Python: what the session operator must put out, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Item", "Oracle", "up_ms"]


@dataclass(frozen=True)
class Item:
    """A buffer row: rows of one key, from the first one's time to the last one's (µs)."""

    key: Any
    first: int
    last: int
    values: tuple[int | None, ...]
    """The value of each row."""


def up_ms(micros: int) -> int:
    return -(-micros // 1000)


@dataclass
class _Session:
    key: Any
    start: int
    end: int
    values: list[int | None]
    waiting: bool = True
    """Not closed yet when last looked at."""
    touched: bool = True
    put_out: list[tuple[Any, ...]] = field(default_factory=list)

    def row(self) -> tuple[Any, ...]:
        known = [v for v in self.values if v is not None]
        greatest = max(known) if known else None
        return (self.key, self.start, self.end, len(self.values), greatest, tuple(sorted({*known})))


class Oracle:
    """All sessions of all keys."""

    def __init__(
        self, gap_ms: int, lateness_ms: int, output_mode: str, *, fires_late: bool
    ) -> None:
        self.gap = gap_ms * 1000
        self.lateness_ms = lateness_ms
        self.output_mode = output_mode
        self.fires_late = fires_late
        self.sessions: list[_Session] = []
        self.late_rows = 0

    def epoch(
        self, items: list[Item], watermark_ms: int | None, late_ms: int | None
    ) -> list[tuple[Any, ...]]:
        """The rows put out; for retract with the change in front."""
        for session in self.sessions:
            session.touched = False
        for item in items:
            ends = up_ms(item.last + self.gap)
            if late_ms is not None and ends <= late_ms - self.lateness_ms:
                self.late_rows += len(item.values)
            else:
                self._add(item)
        out: list[tuple[Any, ...]] = []
        kept = []
        for session in self.sessions:
            closes = up_ms(session.end)
            closed = watermark_ms is not None and closes <= watermark_ms
            on_time = late_ms is None or closes > late_ms
            if self._fires(session, closed=closed, on_time=on_time):
                out += self._put_out(session)
            session.waiting = not closed
            if watermark_ms is None or closes + self.lateness_ms > watermark_ms:
                kept.append(session)
        self.sessions = kept
        return out

    def _add(self, item: Item) -> None:
        merged = _Session(item.key, item.first, item.last + self.gap, list(item.values), False)
        while True:
            near = [
                s
                for s in self.sessions
                if s.key == merged.key and s.start <= merged.end and merged.start <= s.end
            ]
            if not near:
                break
            for other in near:
                self.sessions.remove(other)
                merged.start = min(merged.start, other.start)
                merged.end = max(merged.end, other.end)
                merged.values += other.values
                merged.waiting |= other.waiting
                merged.put_out += other.put_out
        self.sessions.append(merged)

    def _fires(self, session: _Session, *, closed: bool, on_time: bool) -> bool:
        changed = session.touched and (self.fires_late or on_time)
        if self.output_mode != "append":
            return changed
        return closed and (changed or session.waiting)

    def _put_out(self, session: _Session) -> list[tuple[Any, ...]]:
        row = session.row()
        if self.output_mode != "retract":
            return [row]
        before, session.put_out = session.put_out, [row]
        if before == [row]:
            return []
        return [*((-1, *old) for old in before), (1, *row)]
