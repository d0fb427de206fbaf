"""Windows with dicts and loops: what the window operator must put out, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.base import Clock
from holdfast.operators.window.operator import WindowOperator
from holdfast.operators.window.spec import (
    COUNT,
    PANE,
    TIME,
    Emit,
    GlobalWindow,
    Sliding,
    Tumbling,
)
from holdfast.state.schema import HASH
from tests.operators.epochs import Hashed

Key = tuple[Any, ...]
Window = Tumbling | Sliding | GlobalWindow
TIMES = pa.timestamp("us", "UTC")

AGGREGATES = [
    AggregateSpec("n", "count"),
    AggregateSpec("total", "sum", (Input("x", pa.int64()),)),
    AggregateSpec("seen", "collect_set", (Input("x", pa.int64()),), (("limit", 100),)),
]


@dataclass(frozen=True)
class Row:
    """An input row: its key, its time in µs and a value."""

    key: Key
    at: int
    x: int | None


def finished(values: Sequence[int | None]) -> tuple[Any, ...]:
    """The results of ``AGGREGATES``."""
    known = [v for v in values if v is not None]
    return len(values), sum(known) if known else None, tuple(sorted(set(known)))


@dataclass
class _Open:
    """A window of a key."""

    end: int | None
    closed: bool
    early_at: int
    values: list[int | None] = field(default_factory=list)
    waiting: int = 0
    last: tuple[Any, ...] | None = None
    touched: bool = False


def _reached(clock_ms: int | None, end: int | None) -> bool:
    return clock_ms is not None and end is not None and end <= clock_ms


@dataclass
class Oracle:
    """What an operator with these settings does."""

    window: Window
    emit: Emit = field(default_factory=Emit)
    output_mode: str = "append"
    lateness: int = 0
    state: dict[tuple[Key, int], _Open] = field(default_factory=dict)

    def run(self, rows: Sequence[Row], clock: Clock) -> tuple[list[tuple[Any, ...]], int]:
        """The rows put out in an epoch, (key, start, results, change), and how many came late."""
        late = sum(not self._take(row, clock) for row in rows)
        taken: list[tuple[Any, ...]] = []
        put: list[tuple[Any, ...]] = []
        for (key, start), one in list(self.state.items()):
            old = one.last
            if self._fires(one, clock):
                one.last, one.waiting = finished(one.values), 0
                one.early_at = clock.processing_time_ms + (self.emit.early_every_ms or 0)
                if self.output_mode != "retract":
                    put.append((key, start, one.last, None))
                elif old != one.last:
                    taken += [] if old is None else [(key, start, old, -1)]
                    put.append((key, start, one.last, 1))
            one.touched = False
            one.closed |= _reached(clock.watermark_ms, one.end)
            if one.end is not None and _reached(clock.watermark_ms, one.end + self.lateness):
                del self.state[key, start]
        return taken + put, late

    def _take(self, row: Row, clock: Clock) -> bool:
        taken = False
        for start, end in self._windows(row.at):
            over = _reached(clock.late_ms, end)
            if end is not None and _reached(clock.late_ms, end + self.lateness):
                continue
            taken = True
            now = clock.processing_time_ms
            fresh = _Open(end, over, now + (self.emit.early_every_ms or 0))
            one = self.state.setdefault((row.key, start), fresh)
            one.values.append(row.x)
            one.waiting += 1
            one.touched = True
        return taken

    def _windows(self, at: int) -> list[tuple[int, int | None]]:
        if isinstance(self.window, GlobalWindow):
            return [(0, None)]
        size, slide, offset = self.window.size_ms, self.window.slide_ms, self.window.offset_ms
        return [
            (start, start + size)
            for start in range(at // 1000 - size - slide, at // 1000 + 1)
            if (start - offset) % slide == 0 and start * 1000 <= at < (start + size) * 1000
        ]

    def _fires(self, one: _Open, clock: Clock) -> bool:
        emit = self.emit
        if one.closed:
            return one.touched and emit.late
        if self.output_mode != "append" and not emit.is_early:
            return one.touched
        if _reached(clock.watermark_ms, one.end):
            return True
        if emit.early_rows is not None and one.waiting >= emit.early_rows:
            return True
        by_time = emit.early_every_ms is not None and one.waiting > 0
        return by_time and clock.processing_time_ms >= one.early_at


def buffer_rows(
    operator: WindowOperator, rows: Sequence[Row], hashed: Hashed, *, grouped: bool = False
) -> pa.Table:
    """Rows as the JVM sends them, one by one or grouped by key and pane."""
    buffers: dict[Any, list[Any]] = {}
    for number, row in enumerate(rows):
        pane = 0
        if not isinstance(operator.window, GlobalWindow):
            offset, size = operator.window.offset_ms * 1000, operator.window.pane_ms * 1000
            pane = (row.at - offset) // size * size + offset
        group = (row.key, pane) if grouped else (row.key, pane, number)
        one = buffers.setdefault(group, [row.key, pane, row.at, 0, None, set()])
        one[2] = max(one[2], row.at)
        one[3] += 1
        if row.x is not None:
            one[4] = row.x + (one[4] or 0)
            one[5].add(row.x)
    made = list(buffers.values())
    columns: dict[str, list[Any]] = {
        HASH: [hashed(one[0]) if one[0] else 0 for one in made],
        PANE: [one[1] for one in made],
        TIME: [one[2] for one in made],
        COUNT: [one[3] for one in made],
    }
    for i, (name, _) in enumerate(operator.window_tables.keys):
        columns[name] = [one[0][i] for one in made]
    given = [[one[3] for one in made], [one[4] for one in made], [sorted(one[5]) for one in made]]
    for (name, _), values in zip(operator.buffers.fields, given, strict=True):
        columns[name] = values
    schema = operator.input_schema
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def as_told(operator: WindowOperator, output: pa.Table) -> list[tuple[Any, ...]]:
    """The operator's output as the oracle writes it."""
    names = [name for name, _ in operator.window_tables.keys]
    told = []
    for name in ("window_start", "window_end"):
        if name in output.column_names:
            place = output.column_names.index(name)
            output = output.set_column(place, name, output.column(name).cast(pa.int64()))
    for row in output.to_pylist():
        start = row.get("window_start", 0) // 1000
        if "window_end" in row:
            assert not isinstance(operator.window, GlobalWindow)
            assert row["window_end"] == (start + operator.window.size_ms) * 1000
        results = (row["n"], row["total"], tuple(sorted(row["seen"])))
        told.append((tuple(row[name] for name in names), start, results, row.get("change")))
    return told
