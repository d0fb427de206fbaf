"""The plain Python loop with dicts that a process must equal. It runs the same user code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.checkpoint.entry import EpochRecord
from holdfast.operators.process.declare import declared_states
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.operators.process.rows import row_class
from tests.operators.everything import at, to_ms
from tests.operators.state_models import Here, Key, model_of


@dataclass
class _Timers:
    here: Here
    pending: dict[Key, set[tuple[int, str]]]
    firing: bool = False
    postponed: dict[tuple[Key, int, str], int] = field(default_factory=dict)
    """Timers set while timers fire, and due already: the clock they were set at."""

    def set(self, when: Any, clock: str = "event") -> None:
        ms = to_ms(when)
        mine = self.pending.setdefault(self.here.key, set())
        now = self.here.now(clock)
        if (ms, clock) not in mine:
            mine.add((ms, clock))
            if self.firing and now is not None and ms <= now:
                self.postponed[self.here.key, ms, clock] = now

    def delete(self, when: Any, clock: str = "event") -> None:
        self.remove(self.here.key, to_ms(when), clock)

    def remove(self, key: Key, ms: int, clock: str) -> bool:
        mine = self.pending.get(key, set())
        self.postponed.pop((key, ms, clock), None)
        if (ms, clock) not in mine:
            return False
        mine.discard((ms, clock))
        return True

    def list(self, clock: str = "event") -> list[datetime]:
        return [at(ms) for ms, c in sorted(self.pending.get(self.here.key, ())) if c == clock]

    def due(self) -> Sequence[tuple[int, Key, str]]:
        found = []
        for key, timers in self.pending.items():
            for ms, clock in timers:
                now = self.here.now(clock)
                moved = self.postponed.get((key, ms, clock), -1) != now
                if now is not None and ms <= now and moved:
                    found.append((ms, key, clock))
        return sorted(found, key=lambda t: (t[0], _rank(t[1]), t[2]))


def _rank(key: Key) -> tuple[Any, ...]:
    return tuple((value is None, value) for value in key)


@dataclass
class _Metrics:
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, amount: float = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


class _Context:
    def __init__(self, record: EpochRecord, timers: _Timers) -> None:
        self.epoch = record.epoch
        self.processing_time = at(record.processing_time_ms)
        self.watermark = None if record.watermark_ms is None else at(record.watermark_ms)
        self.timers, self.metrics = timers, _Metrics()
        self.timer_clock: str | None = None
        self.sides: dict[str, list[Any]] = {}

    def side_output(self, name: str, row: Any) -> None:
        self.sides.setdefault(name, []).append(row)


@dataclass
class Expected:
    """What an epoch must come to."""

    output: list[dict[str, Any]]
    late: list[tuple[Any, ...]]
    sides: dict[str, list[Any]]
    metrics: dict[str, float]


class Oracle:
    """A loop over rows, with dicts."""

    def __init__(
        self, process: KeyedProcess, columns: Sequence[str], keys: Sequence[str], lateness_ms: int
    ) -> None:
        self.here = Here()
        self.process: Any = process
        self.columns, self.keys = tuple(columns), tuple(keys)
        self.lateness_ms = lateness_ms
        for name, state in declared_states(type(process)).items():
            setattr(process, name, model_of(self.here, state))
        self.timers = _Timers(self.here, {})
        self.names = [part.split()[0] for part in str(type(process).output).split(", ")]

    def epoch(self, rows: Sequence[tuple[Any, ...]], record: EpochRecord) -> Expected:
        """All rows of each key, then all timers that are due."""
        here, make = self.here, row_class(self.columns)._make
        here.processing_ms, here.watermark_ms = record.processing_time_ms, record.watermark_ms
        ctx = _Context(record, self.timers)
        groups: dict[Key, list[Any]] = {}
        late: list[tuple[Any, ...]] = []
        for values in rows:
            row = make(values)
            mark = record.watermark_ms
            if mark is not None and row.ts is not None and row.ts <= at(mark - self.lateness_ms):
                late.append(values)
            else:
                groups.setdefault(tuple(row[name] for name in self.keys), []).append(row)
        output: list[Any] = []
        for key, mine in groups.items():
            here.key = key
            output += self.process.process(row_class(self.keys)._make(key), mine, ctx) or ()
        due = self.timers.due()
        self.timers.firing = True
        for ms, key, clock in due:
            here.key, ctx.timer_clock = key, clock
            if self.timers.remove(key, ms, clock):
                named = row_class(self.keys)._make(key)
                output += self.process.on_timer(named, at(ms), ctx) or ()
        self.timers.firing = False
        rows_out = [
            row if isinstance(row, dict) else dict(zip(self.names, row, strict=True))
            for row in output
        ]
        return Expected(rows_out, late, ctx.sides, ctx.metrics.counts)


def by_key(rows: Iterable[dict[str, Any]], keys: Sequence[str]) -> dict[Key, list[dict[str, Any]]]:
    """Rows of each key in their order; keys among each other have none."""
    groups: dict[Key, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in keys), []).append(row)
    return groups
