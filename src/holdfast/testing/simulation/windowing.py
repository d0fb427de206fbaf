"""Programs of windows: of one size, overlapping ones that are taken back, and sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint.time import Watermark
from holdfast.choices import OutputMode
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.base import Operator
from holdfast.operators.session.operator import SessionOperator
from holdfast.operators.window.operator import WindowOperator
from holdfast.operators.window.spec import Emit, GlobalWindow, Sliding, Tumbling
from holdfast.testing.simulation.lifting import Lift, lift_groups
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Outcome,
    Port,
    Program,
    Stage,
    made,
    newest,
    rows_of,
)
from holdfast.testing.simulation.window_oracle import SessionOracle, WindowOracle
from holdfast.testing.simulation.words import TIME, key_of, some, table, time_us

__all__ = [
    "SPECS",
    "SessionProgram",
    "SlidingProgram",
    "WindowProgram",
    "state_of_windows",
    "timed_rows",
    "window_stage",
]

_WORDS = ("a", "b", "c", "d", None)
_KEYS = (("k", pa.string()),)
SPECS = (
    AggregateSpec("n", "count"),
    AggregateSpec("total", "sum", (Input("x", pa.int64()),)),
    AggregateSpec("most", "max", (Input("x", pa.int64()),)),
)


def timed_rows(batch: int, rng: Random) -> pa.Table:
    """Rows of few keys, of which some have no time."""
    places = some(rng)
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "k": (pa.string(), [key_of(rng, _WORDS) for _ in places]),
        "x": (pa.int64(), [rng.choice([None, *range(-5, 20)]) for _ in places]),
        "ts": (TIME, [time_us(rng, batch) if rng.random() < 0.95 else None for _ in places]),
    }
    return table(columns)


def _lift(operator: Operator, between: Callable[[pa.ChunkedArray], list[Any]]) -> Lift:
    """Rows that have a time, each with the columns that its time makes."""
    groups = lift_groups(
        operator.input_schema, 1, SPECS, lambda rows: between(rows.column("ts").cast(pa.int64()))
    )

    def lift(rows: pa.Table, part: int) -> pa.Table:
        return groups(rows.filter(pc.is_valid(rows.column("ts"))), part)

    return lift


def _lift_windows(operator: WindowOperator) -> Lift:
    """Rows with the panes that they are in."""
    window = operator.window
    assert not isinstance(window, GlobalWindow)
    size, offset = window.pane_ms * 1000, window.offset_ms * 1000

    def between(times: pa.ChunkedArray) -> list[Any]:
        micros = times.to_numpy()
        panes = micros - (micros - offset) % size
        return [pa.array(panes), times, _ones(times)]

    return _lift(operator, between)


def window_stage(name: str, size_ms: int, feed: Feed, sink: str, *, behind_ms: int = 0) -> Stage:
    """Tumbling windows of another stage's rows."""
    operator = WindowOperator(name, _KEYS, Tumbling(size_ms), SPECS, time_type=TIME)
    ports = (Port(_lift_windows(operator), (feed,)),)
    return Stage(operator, ports, {sink: ""}, behind_ms=behind_ms)


def state_of_windows(tables: Mapping[str, pa.Table]) -> dict[Any, Any]:
    """Count and sum of every window that is remembered, by key and start in µs."""
    names = ["k", "window_start", "n.count", "total.sum"]
    return {row[:2]: row[2:] for row in rows_of(tables["windows.windows"].select(names))}


def _ones(times: pa.ChunkedArray) -> pa.Array:
    return pa.array(np.ones(len(times), np.int64))


class WindowProgram(Program):
    """Tumbling windows that wait for late rows."""

    name = "window"
    watermarks: ClassVar[Mapping[str, Watermark]] = {"main": Watermark(1_000)}
    window: ClassVar[Tumbling | Sliding] = Tumbling(2_000, 300)
    emit: ClassVar[Emit] = Emit()
    retracts: ClassVar[bool] = False
    lateness_ms = 1_500

    def __init__(self) -> None:
        output_mode: OutputMode = "retract" if self.retracts else "append"
        operator = WindowOperator(
            "windows",
            _KEYS,
            self.window,
            SPECS,
            time_type=TIME,
            emit=self.emit,
            output_mode=output_mode,
            lateness_ms=self.lateness_ms,
        )
        port = Port(_lift_windows(operator), (Feed(0, time="main"),))
        super().__init__([timed_rows], [Stage(operator, (port,), {"sink-0": ""})])

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        window = self.window
        oracle = WindowOracle(
            window.size_ms,
            window.slide_ms,
            window.offset_ms,
            self.lateness_ms,
            self.emit.early_every_ms,
            self.retracts,
        )
        out = []
        for epoch in epochs:
            rows = oracle.epoch(epoch.record, rows_of(epoch.sources[0]))
            out += [(epoch.record.epoch, row) for row in rows]
        return Answer(made({"sink-0": out}), {"windows.windows": oracle.state})

    def fold(self, outcome: Outcome) -> Mapping[str, Any]:
        """The newest row of each key and window; of rows that are taken back those that are left."""
        if not self.retracts:
            return {sink: newest(epochs, 2) for sink, epochs in outcome.items()}
        left: dict[Any, int] = {}
        for epochs in outcome.values():
            for *row, change in (row for rows in epochs.values() for row in rows):
                left[tuple(row)] = left.get(tuple(row), 0) + change
        return {"sink-0": {row: count for row, count in left.items() if count}}

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        return {"windows.windows": state_of_windows(tables)}


class SlidingProgram(WindowProgram):
    """Windows that overlap and put out what they have every now and then, to take it back later."""

    name = "sliding"
    window: ClassVar[Tumbling | Sliding] = Sliding(3_000, 2_000)
    emit: ClassVar[Emit] = Emit(early_every_ms=900)
    retracts: ClassVar[bool] = True


class SessionProgram(Program):
    """Sessions that wait for late rows."""

    name = "session"
    watermarks: ClassVar[Mapping[str, Watermark]] = {"main": Watermark(1_000)}
    gap_ms = 400
    lateness_ms = 900

    def __init__(self) -> None:
        operator = SessionOperator(
            "sessions", _KEYS, self.gap_ms, SPECS, time_type=TIME, lateness_ms=self.lateness_ms
        )
        lift = _lift(operator, lambda times: [times, times, _ones(times)])
        port = Port(lift, (Feed(0, time="main"),))
        super().__init__([timed_rows], [Stage(operator, (port,), {"sink-0": ""})])

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        oracle = SessionOracle(self.gap_ms * 1000, self.lateness_ms)
        out = []
        for epoch in epochs:
            rows = oracle.epoch(epoch.record, rows_of(epoch.sources[0]))
            out += [(epoch.record.epoch, row) for row in rows]
        return Answer(made({"sink-0": out}), {"sessions.sessions": oracle.state})

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        names = ["k", "window_start", "window_end", "n.count", "total.sum"]
        rows = rows_of(tables["sessions.sessions"].select(names))
        return {"sessions.sessions": {row[:2]: row[2:] for row in rows}}
