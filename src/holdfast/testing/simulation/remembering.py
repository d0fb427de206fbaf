"""Programs that remember whole rows: first ones, best ones, those that go round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.checkpoint.time import Watermark
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.deduplicate import DeduplicateOperator
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.loop import LoopOperator
from holdfast.operators.top import TopOperator
from holdfast.testing.simulation.lifting import lift_groups, lift_rows
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Outcome,
    Port,
    Program,
    Row,
    Stage,
    made,
    newest,
    rows_of,
)
from holdfast.testing.simulation.window_oracle import WindowOracle, late_by
from holdfast.testing.simulation.windowing import state_of_windows, timed_rows, window_stage
from holdfast.testing.simulation.words import TIME, key_of, some, table

__all__ = ["DerivedProgram", "LoopProgram", "TopProgram"]

_ROUNDS = 4
_TIMED = (("k", pa.string()), ("x", pa.int64()), ("ts", TIME))


class DerivedProgram(Program):
    """The first row of each key and value within a time, then windows of those."""

    name = "derived"
    watermarks: ClassVar[Mapping[str, Watermark]] = {"main": Watermark(1_000)}
    _REMEMBERED_MS = 1_000

    def __init__(self) -> None:
        first = DeduplicateOperator(
            "first",
            _TIMED[:2],
            _TIMED,
            event_time=EventTime("ts"),
            expires_after_ms=self._REMEMBERED_MS,
        )
        port = Port(lift_rows(first.input_schema, 2), (Feed(0, time="main"),))
        windows = window_stage("windows", 1_500, Feed(stage="first"), "sink-1")
        sinks = {"sink-0": "", "side-late": LATE}
        super().__init__([timed_rows], [Stage(first, (port,), sinks), windows])

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        windows = WindowOracle(1_500, 1_500, 0, 0, None, retracts=False, derived=True)
        seen: dict[Row, int | None] = {}
        out: dict[str, list[tuple[int, Row]]] = {sink: [] for sink in self.sinks}
        for epoch in epochs:
            record = epoch.record
            late_ms = late_by(record)
            seen = _alive(seen, late_ms)
            first = []
            for row in rows_of(epoch.sources[0]):
                ms = None if row[2] is None else -(-row[2] // 1000)
                if ms is not None and late_ms is not None and ms <= late_ms:
                    out["side-late"].append((record.epoch, row))
                elif row[:2] not in seen:
                    seen[row[:2]] = None if ms is None else ms + self._REMEMBERED_MS
                    first.append(row)
            out["sink-0"] += [(record.epoch, row) for row in first]
            out["sink-1"] += [(record.epoch, row) for row in windows.epoch(record, first)]
        seen = _alive(seen, epochs[-1].record.expiry_ms) if epochs else {}
        return Answer(made(out), {"first": set(seen), "windows": windows.state})

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        first = set(rows_of(tables["first.seen"].select(["k", "x"])))
        return {"first": first, "windows": state_of_windows(tables)}


def _alive(seen: Mapping[Row, int | None], now: int | None) -> dict[Row, int | None]:
    """What is not over."""
    if now is None:
        return dict(seen)
    return {key: over for key, over in seen.items() if over is None or over > now}


class TopProgram(Program):
    """The three greatest rows of each key."""

    name = "top"
    _COLUMNS = (("k", pa.string()), ("x", pa.int64()), ("number", pa.int64()))

    def __init__(self) -> None:
        operator = TopOperator("best", self._COLUMNS[:1], self._COLUMNS, 3, [("x", True)])
        port = Port(lift_rows(operator.input_schema, 1), (Feed(0),))
        super().__init__([self._rows], [Stage(operator, (port,), {"sink-0": ""})])

    def _rows(self, batch: int, rng: Random) -> pa.Table:
        places = some(rng)
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [key_of(rng, ("a", "b", "c", "d", "e", None)) for _ in places]),
            "x": (pa.int64(), [rng.choice([None, *range(30)]) for _ in places]),
            "number": (pa.int64(), [batch * 100 + place for place in places]),
        }
        return table(columns)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        best: dict[str | None, list[Row]] = {}
        out: list[tuple[int, Row]] = []
        for epoch in epochs:
            before = {k: list(rows) for k, rows in best.items()}
            for row in rows_of(epoch.sources[0]):
                # Sorting keeps rows that are equal in the order in which they came; a null is least.
                rows = sorted([*best.get(row[0], []), row], key=_greatest_first)
                best[row[0]] = rows[:3]
            for k, rows in best.items():
                was = before.get(k, [])
                changes = [(*row, -1) for row in was if row not in rows]
                changes += [(*row, 1) for row in rows if row not in was]
                out += [(epoch.record.epoch, row) for row in changes]
        return Answer(made({"sink-0": out}), {k: set(rows) for k, rows in best.items()})

    def fold(self, outcome: Outcome) -> Mapping[str, Any]:
        """The rows that are left."""
        left: dict[Row, int] = {}
        for rows in outcome["sink-0"].values():
            for *row, change in rows:
                left[tuple(row)] = left.get(tuple(row), 0) + change
        return {"sink-0": {row: count for row, count in left.items() if count}}

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        found: dict[Any, set[Row]] = {}
        for row in rows_of(tables["best.rows"].select(["k", "x", "number"])):
            found.setdefault(row[0], set()).add(row)
        return found


def _greatest_first(row: Row) -> tuple[bool, int]:
    return row[1] is None, -(row[1] or 0)


class LoopProgram(Program):
    """Rows that count, and go round until their key has been counted often enough."""

    name = "loop"
    _COLUMNS = (("k", pa.string()), ("x", pa.int64()))

    def __init__(self) -> None:
        specs = (
            AggregateSpec("n", "count"),
            AggregateSpec("total", "sum", (Input("x", pa.int64()),)),
        )
        counted = AggregateOperator("counted", self._COLUMNS[:1], specs)
        feeds = (Feed(0), Feed(stage="again", loop=True))
        again = LoopOperator("again", self._COLUMNS, most=10_000)
        back = Feed(stage="counted", step=_again)
        super().__init__(
            [self._rows],
            [
                Stage(
                    counted,
                    (Port(lift_groups(counted.input_schema, 1, specs), feeds),),
                    {"sink-0": ""},
                ),
                Stage(again, (Port(lift_rows(again.input_schema, 0), (back,)),)),
            ],
        )

    def _rows(self, batch: int, rng: Random) -> pa.Table:
        places = some(rng)
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [f"{key_of(rng, 'abc')}{batch % 4}" for _ in places]),
            "x": (pa.int64(), [rng.randrange(9) for _ in places]),
        }
        return table(columns)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        keys: dict[str, tuple[int, int]] = {}
        waiting: list[tuple[str, int]] = []
        out: list[tuple[int, Row]] = []
        for epoch in epochs:
            came = [*rows_of(epoch.sources[0]), *waiting]
            for k, x in came:
                n, total = keys.get(k, (0, 0))
                keys[k] = (n + 1, total + x)
            changed = [(k, *keys[k]) for k in {k for k, _ in came}]
            out += [(epoch.record.epoch, row) for row in changed]
            waiting = [(k, n) for k, n, _ in changed if n % _ROUNDS]
        return Answer(made({"sink-0": out}), {"counted": keys, "again": sorted(waiting)})

    def fold(self, outcome: Outcome) -> Mapping[str, Any]:
        """The newest row of each key."""
        return {sink: newest(epochs) for sink, epochs in outcome.items()}

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        rows = rows_of(tables["counted.groups"].select(["k", "n.count", "total.sum"]))
        again = sorted(rows_of(tables["again.rows"].select(["k", "x"])))
        return {"counted": {row[0]: row[1:] for row in rows}, "again": again}


def _again(rows: pa.Table) -> pa.Table:
    """What goes round: keys whose count is no multiple of a number."""
    rest = rows.column("n").to_numpy() % _ROUNDS
    kept = rows.filter(pa.array(rest != 0))
    return kept.select(["k", "n"]).rename_columns(["k", "x"])
