"""What :class:`~holdfast.testing.simulation.processing.Steps` must come to, with dicts and lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.entry import EpochRecord
from holdfast.testing.simulation.program import Answer, Row, made

__all__ = ["ProcessOracle"]

Timer = tuple[int, str]


@dataclass
class _Key:
    """All state of one key."""

    n: int = 0
    total: int | None = None
    log: list[int] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    recent: tuple[int, int] = (0, 0)
    """A sum, and when it is over."""
    fresh: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Values, and when they are over."""
    timers: set[Timer] = field(default_factory=set)
    postponed: dict[Timer, int] = field(default_factory=dict)
    """Timers that were due when timers set them, and the clock of then: they wait until it moves."""


@dataclass
class ProcessOracle:
    """The same steps as the process's, taken one after the other."""

    lateness_ms: int
    keys: dict[str | None, _Key] = field(default_factory=dict)
    out: list[tuple[int, Row]] = field(default_factory=list)
    late: list[tuple[int, Row]] = field(default_factory=list)
    record: EpochRecord = field(default_factory=lambda: EpochRecord(-1, 0, 0))

    def epoch(self, record: EpochRecord, rows: Sequence[Row]) -> None:
        """All rows of each key, then all timers that are due; at the end until none is."""
        self.record = record
        late_ms = record.expiry_ms
        for row in rows:
            k, act, x, ts = row
            if late_ms is not None and -(-ts // 1000) <= late_ms - self.lateness_ms:
                self.late.append((record.epoch, row))
            else:
                key = self.keys.setdefault(k, _Key())
                self._step(k, key, act, self._done(key, act, x, ts))
        self._fire(("event", "processing"))
        while record.at_end and self._fire(("event",)):
            pass

    def answer(self) -> Answer:
        """All that came of the epochs."""
        keys = self.keys.items()
        state = {
            "values": {k: (one.n, one.total) for k, one in keys if one.n},
            "log": {k: one.log for k, one in keys if one.log},
            "marks": {k: one.marks for k, one in keys if one.marks},
            "fresh": {k: live for k, one in keys if (live := self._live(one))},
        }
        return Answer(made({"sink-0": self.out, "side-late": self.late}), state)

    def _now(self, clock: str) -> int | None:
        return self.record.processing_time_ms if clock == "processing" else self.record.watermark_ms

    def _fire(self, clocks: Sequence[str]) -> bool:
        """Fire what is due by these clocks; whether anything was."""
        due = [
            (ms, clock, k)
            for k, key in self.keys.items()
            for ms, clock in key.timers
            if clock in clocks and self._is_due(key, (ms, clock))
        ]
        for ms, clock, k in sorted(due, key=lambda timer: timer[:2]):
            key = self.keys[k]
            key.timers.discard((ms, clock))
            key.postponed.pop((ms, clock), None)
            key.total = (key.total or 0) + 1
            if ms % 3 == 0:
                self._set_while_firing(key, (ms + 401 + ms % 2_000, clock))
            self._step(k, key, f"{clock} timer {ms}", self._everything(key))
        return bool(due)

    def _is_due(self, key: _Key, timer: Timer) -> bool:
        now = self._now(timer[1])
        return now is not None and timer[0] <= now and key.postponed.get(timer) != now

    def _set_while_firing(self, key: _Key, timer: Timer) -> None:
        now = self._now(timer[1])
        goes_on = self.record.at_end and timer[1] == "event"
        if timer not in key.timers and now is not None and timer[0] <= now and not goes_on:
            key.postponed[timer] = now
        key.timers.add(timer)

    def _step(self, k: str | None, key: _Key, step: str, found: Any) -> None:
        key.n += 1
        self.out.append((self.record.epoch, (k, key.n, step, repr(found))))

    def _done(self, key: _Key, act: str, x: int, ts: int) -> Any:
        now = self.record.processing_time_ms
        if act == "add":
            key.total = (key.total or 0) + x
        elif act == "append":
            key.log.append(x)
        elif act == "put":
            key.marks[f"m{x % 4}"] = x
        elif act == "take":
            return key.marks.pop(f"m{x % 4}", None)
        elif act == "clear":
            (key.log if x % 2 else key.marks).clear()
        elif act == "recent":
            key.recent = ((self._recent(key) or 0) + x, now + 2_500)
            return key.recent[0]
        elif act == "fresh":
            mark = self.record.watermark_ms
            key.fresh[f"f{x % 3}"] = (x, None if mark is None else mark + 3_000)
        else:
            self._timed(key, act, x, ts)
        return self._everything(key) if act == "tell" else key.total or 0

    def _timed(self, key: _Key, act: str, x: int, ts: int) -> None:
        if act == "later":
            key.timers.add((-(-ts // 1000) + 150 * x, "event"))
        elif act == "soon":
            key.timers.add((self.record.processing_time_ms + 150 * x, "processing"))
        elif act == "cancel":
            for clock in ("event", "processing"):
                for timer in sorted(t for t in key.timers if t[1] == clock)[:1]:
                    key.timers.discard(timer)
                    key.postponed.pop(timer, None)

    def _everything(self, key: _Key) -> Any:
        waiting = [sum(t[1] == clock for t in key.timers) for clock in ("event", "processing")]
        marks, fresh = sorted(key.marks.items()), sorted(self._live(key).items())
        return key.total or 0, key.log, marks, self._recent(key), fresh, tuple(waiting)

    def _recent(self, key: _Key) -> int | None:
        value, over = key.recent
        return value if over > self.record.processing_time_ms else None

    def _live(self, key: _Key) -> dict[str, int]:
        """Values that are not over."""
        now = self.record.expiry_ms
        return {
            name: value
            for name, (value, over) in key.fresh.items()
            if over is None or now is None or over > now
        }
