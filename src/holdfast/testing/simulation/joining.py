"""A program of two sources: pairs of rows that happened near each other, and windows of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.time import Watermark
from holdfast.operators.event_time import EventTime
from holdfast.operators.join.interval import IntervalJoinOperator
from holdfast.testing.simulation.lifting import lift_side
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Port,
    Program,
    Row,
    Stage,
    made,
    rows_of,
)
from holdfast.testing.simulation.window_oracle import WindowOracle, late_by
from holdfast.testing.simulation.windowing import state_of_windows, timed_rows, window_stage
from holdfast.testing.simulation.words import TIME

__all__ = ["JoinProgram"]

_LEFT = (("k", pa.string()), ("x", pa.int64()), ("ts", TIME))
_RIGHT = (("k", pa.string()), ("at", TIME), ("y", pa.int64()))
_LOWER_MS, _UPPER_MS = -400, 900
_LATENESS_MS = 300


class JoinProgram(Program):
    """Pairs of rows that happened near each other, then windows of those, which are behind."""

    name = "join"
    watermarks: ClassVar[Mapping[str, Watermark]] = {
        "main": Watermark(1_000),
        "source-1": Watermark(600, idle_ms=2_000),
    }

    def __init__(self) -> None:
        operator = IntervalJoinOperator(
            "pairs",
            _LEFT[:1],
            _LEFT,
            _RIGHT,
            how="left",
            left_time=EventTime("ts"),
            right_time=EventTime("at", _LATENESS_MS),
            lower_ms=_LOWER_MS,
            upper_ms=_UPPER_MS,
        )
        packing = operator.packing
        left = lift_side(operator.input_schema, 1, 0, packing.left)
        right = lift_side(operator.input_schema, 1, 1, packing.right)
        ports = (
            Port(left, (Feed(0, time="main"),), "left"),
            Port(right, (Feed(1, time="source-1"),), "right"),
        )
        sinks = {"sink-0": "", "side-late_left": "late_left", "side-late_right": "late_right"}
        feed = Feed(stage="pairs")
        windows = window_stage("windows", 2_000, feed, "sink-1", behind_ms=_UPPER_MS)
        super().__init__([self._left, self._right], [Stage(operator, ports, sinks), windows])

    def _left(self, batch: int, rng: Random) -> pa.Table:
        rows = timed_rows(batch, rng)
        numbers = [batch * 100 + place for place in range(rows.num_rows)]
        return rows.set_column(1, "x", pa.array(numbers, pa.int64()))

    def _right(self, batch: int, rng: Random) -> pa.Table:
        rows = self._left(batch, rng).rename_columns(["k", "y", "at"])
        return rows.select(["k", "at", "y"])

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        pairs = _Pairs()
        windows = WindowOracle(2_000, 2_000, 0, 0, None, retracts=False, derived=True)
        out: dict[str, list[tuple[int, Row]]] = {sink: [] for sink in self.sinks}
        for epoch in epochs:
            record = epoch.record
            came = pairs.epoch(record, *(rows_of(source) for source in epoch.sources))
            behind = _behind(record)
            came["sink-1"] = windows.epoch(behind, [row[:3] for row in came["sink-0"]])
            for sink, rows in came.items():
                out[sink] += [(record.epoch, row) for row in rows]
        waiting = {"left": {r[1] for r in pairs.left}, "right": {r[2] for r in pairs.right}}
        return Answer(made(out), {**waiting, "windows": windows.state})

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        left, right = tables["pairs.left"].column("x"), tables["pairs.right"].column("y")
        return {
            "left": set(left.to_pylist()),
            "right": set(right.to_pylist()),
            "windows": state_of_windows(tables),
        }


def _behind(record: EpochRecord) -> EpochRecord:
    """The same epoch for those whose time is as far behind as a row may wait for its match."""
    marks = (record.watermark_ms, record.previous_watermark_ms)
    mark, previous = (None if ms is None else ms - _UPPER_MS for ms in marks)
    return msgspec.structs.replace(record, watermark_ms=mark, previous_watermark_ms=previous)


class _Pairs:
    """The join: rows with what is known of them."""

    def __init__(self) -> None:
        self.left: dict[Row, bool] = {}
        """Rows that wait, and whether they have had a match."""
        self.right: list[Row] = []

    def epoch(
        self, record: EpochRecord, left: Sequence[Row], right: Sequence[Row]
    ) -> dict[str, list[Row]]:
        """What an epoch puts out: pairs, left rows for which no match can come, late rows."""
        late = late_by(record)
        mine = [row for row in left if not _reached(late, row[2])]
        theirs = [row for row in right if not _reached(late, row[1], _LATENESS_MS)]
        out = {
            "side-late_left": [row for row in left if row not in mine],
            "side-late_right": [row for row in right if row not in theirs],
        }
        pairs = list(self._pairs(mine, theirs))
        self.left |= dict.fromkeys(mine, False)
        self.left |= {row[:3]: True for row in pairs}
        self.right += theirs
        mark = record.watermark_ms
        over = {
            row
            for row in self.left
            if row[2] is None or _reached(mark, row[2], _UPPER_MS + _LATENESS_MS)
        }
        alone = [(*row, None, None) for row in over if not self.left[row]]
        self.left = {row: matched for row, matched in self.left.items() if row not in over}
        # Left rows are deleted, for they must be seen until they are put out; right rows expire.
        mark = record.expiry_ms
        self.right = [
            row
            for row in self.right
            if row[0] is not None and row[1] is not None and not _reached(mark, row[1], -_LOWER_MS)
        ]
        return {**out, "sink-0": pairs + alone}

    def _pairs(self, mine: Sequence[Row], theirs: Sequence[Row]) -> Iterator[Row]:
        """Pairs of which one row at least is new."""
        yield from (pair for row in mine for pair in _matches(row, [*self.right, *theirs]))
        yield from (pair for row in self.left for pair in _matches(row, theirs))


def _matches(left: Row, right: Sequence[Row]) -> Iterator[Row]:
    k, _, ts = left
    for other, at, y in right:
        known = k is not None and k == other and ts is not None and at is not None
        if known and _LOWER_MS * 1000 <= at - ts <= _UPPER_MS * 1000:
            yield (*left, at, y)


def _reached(mark: int | None, micros: int | None, later_ms: int = 0) -> bool:
    """Whether the watermark has come so much further than a time."""
    return mark is not None and micros is not None and -(-micros // 1000) + later_ms <= mark
