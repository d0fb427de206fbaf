"""Programs of several operators: one reads what another puts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from holdfast.checkpoint.time import Watermark
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.process.declare import ValueState
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram, to_ms
from holdfast.operators.process.operator import ProcessOperator
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
from holdfast.testing.simulation.windowing import SPECS, timed_rows
from holdfast.testing.simulation.words import TIME, key_of, some, table, time_us

__all__ = ["Alarms", "ChainProgram", "ReadersProgram", "SidesProgram"]

_REST = 3


class _Totals:
    """Count, sum and greatest of each key."""

    def __init__(self) -> None:
        self.keys: dict[Any, list[int | None]] = {}

    def epoch(self, rows: Sequence[tuple[Any, int | None]]) -> list[Row]:
        """Take rows in: what the keys among them come to."""
        for key, x in rows:
            self.keys.setdefault(key, []).append(x)
        return [(key, *self._of(key)) for key in {key for key, _ in rows}]

    def _of(self, key: Any) -> Row:
        known = [x for x in self.keys[key] if x is not None]
        return len(self.keys[key]), sum(known) if known else None, max(known, default=None)

    @property
    def state(self) -> dict[Any, Row]:
        """What every key comes to."""
        return {key: self._of(key) for key in self.keys}


def _totals(name: str, key: tuple[str, pa.DataType], feed: Feed, sink: str) -> Stage:
    """An aggregate of ``x`` by a column."""
    operator = AggregateOperator(name, [key], SPECS)
    return Stage(
        operator, (Port(lift_groups(operator.input_schema, 1, SPECS), (feed,)),), {sink: ""}
    )


def _by_count(rows: pa.Table) -> pa.Table:
    """Totals, by what is left of their count."""
    rest = rows.column("n").to_numpy() % _REST
    return pa.Table.from_arrays([pa.array(rest), rows.column("total")], names=["g", "x"])


def _by_sum(rows: pa.Table) -> pa.Table:
    """Counts, by what is left of their sum."""
    rest = np.asarray(rows.column("total").fill_null(0)) % _REST
    return pa.Table.from_arrays([pa.array(rest), rows.column("n")], names=["g", "x"])


def _state_of(tables: Mapping[str, pa.Table], names: Sequence[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        groups = tables[f"{name}.groups"]
        rows = rows_of(groups.drop_columns(groups.column_names[:1]))
        found[name] = {row[0]: row[1:] for row in rows}
    return found


class ChainProgram(Program):
    """An aggregate of an aggregate's changes."""

    name = "chain"
    readers: ClassVar[Mapping[str, Callable[[pa.Table], pa.Table]]] = {"sizes": _by_count}

    def __init__(self) -> None:
        first = _totals("totals", ("k", pa.string()), Feed(0), "sink-0")
        others = [
            _totals(name, ("g", pa.int64()), Feed(stage="totals", step=step), f"sink-{number}")
            for number, (name, step) in enumerate(self.readers.items(), 1)
        ]
        super().__init__([timed_rows], [first, *others])

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        stages = {name: _Totals() for name in ("totals", *self.readers)}
        out: dict[str, list[tuple[int, Row]]] = {sink: [] for sink in self.sinks}
        for epoch in epochs:
            changed = stages["totals"].epoch([row[:2] for row in rows_of(epoch.sources[0])])
            came = {
                "totals": changed,
                "sizes": stages["sizes"].epoch([(n % _REST, total) for _, n, total, _ in changed]),
            }
            if "sums" in stages:
                by_sum = [((total or 0) % _REST, n) for _, n, total, _ in changed]
                came["sums"] = stages["sums"].epoch(by_sum)
            for number, name in enumerate(stages):
                out[f"sink-{number}"] += [(epoch.record.epoch, row) for row in came[name]]
        return Answer(made(out), {name: stage.state for name, stage in stages.items()})

    def fold(self, outcome: Outcome) -> Mapping[str, Any]:
        """The newest row of each key."""
        return {sink: newest(epochs) for sink, epochs in outcome.items()}

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        return _state_of(tables, ["totals", *self.readers])


class ReadersProgram(ChainProgram):
    """An aggregate that two others read."""

    name = "readers"
    readers: ClassVar[Mapping[str, Callable[[pa.Table], pa.Table]]] = {
        "sizes": _by_count,
        "sums": _by_sum,
    }


class Alarms(KeyedProcess):
    """Sums up per key, and rings some time after rows: then the sum begins anew."""

    output = "k string, x long"
    side_outputs: ClassVar[Mapping[str, object]] = {"rings": "k string, x long, at long"}

    total = ValueState("long", default=0)

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        """Tell the sum so far."""
        self.total.value += sum(row.x or 0 for row in rows)
        ctx.timers.set(max(row.ts for row in rows) + timedelta(milliseconds=700))
        yield key.k, self.total.value

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> None:
        """Ring."""
        ctx.side_output("rings", (key.k, self.total.value, to_ms(when)))
        self.total.clear()


class SidesProgram(Program):
    """A process of which others read the main output and a side output."""

    name = "sides"
    watermarks: ClassVar[Mapping[str, Watermark]] = {"main": Watermark(1_000)}

    def __init__(self) -> None:
        columns = (("k", pa.string()), ("x", pa.int64()), ("ts", TIME))
        operator = ProcessOperator(
            "alarms",
            columns[:1],
            columns,
            KeyedProgram(Alarms(), ("event", "processing")),
            event_time={"main": EventTime("ts")},
        )
        port = Port(lift_rows(operator.input_schema, 1), (Feed(0, time="main"),))
        key = ("k", pa.string())
        super().__init__(
            [self._rows],
            [
                Stage(operator, (port,), {"side-late": LATE, "side-rings": "rings"}),
                _totals("sums", key, Feed(stage="alarms"), "sink-0"),
                _totals("rung", key, Feed(stage="alarms", output="rings"), "sink-1"),
            ],
        )

    def _rows(self, batch: int, rng: Random) -> pa.Table:
        places = some(rng)
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [key_of(rng, "abcdef") for _ in places]),
            "x": (pa.int64(), [rng.choice([None, *range(20)]) for _ in places]),
            "ts": (TIME, [time_us(rng, batch) for _ in places]),
        }
        return table(columns)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        oracle = _AlarmsOracle()
        sums, rung = _Totals(), _Totals()
        out: dict[str, list[tuple[int, Row]]] = {sink: [] for sink in self.sinks}
        for epoch in epochs:
            told, rings, late = oracle.epoch(epoch)
            came = {
                "side-late": late,
                "side-rings": rings,
                "sink-0": sums.epoch(told),
                "sink-1": rung.epoch([row[:2] for row in rings]),
            }
            for sink, rows in came.items():
                out[sink] += [(epoch.record.epoch, row) for row in rows]
        state = {"sums": sums.state, "rung": rung.state}
        return Answer(made(out), {**state, "alarms": oracle.totals})

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        values = rows_of(tables["alarms.values"].select(["k", "total"]))
        alarms = {k: total for k, total in values if total is not None}
        return {**_state_of(tables, ["sums", "rung"]), "alarms": alarms}


class _AlarmsOracle:
    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.timers: set[tuple[int, str]] = set()

    def epoch(self, epoch: EpochInput) -> tuple[list[tuple[str, int]], list[Row], list[Row]]:
        """What is told, what rings, and what comes late."""
        record = epoch.record
        late_ms = record.previous_watermark_ms if record.at_end else record.watermark_ms
        groups: dict[str, list[Row]] = {}
        late = []
        for row in rows_of(epoch.sources[0]):
            if late_ms is not None and -(-row[2] // 1000) <= late_ms:
                late.append(row)
            else:
                groups.setdefault(row[0], []).append(row)
        told = []
        for k, rows in groups.items():
            self.totals[k] = self.totals.get(k, 0) + sum(x or 0 for _, x, _ in rows)
            self.timers.add((-(-max(ts for *_, ts in rows) // 1000) + 700, k))
            told.append((k, self.totals[k]))
        mark = record.watermark_ms
        due = sorted(t for t in self.timers if mark is not None and t[0] <= mark)
        self.timers.difference_update(due)
        return told, [(k, self.totals.pop(k, 0), ms) for ms, k in due], late
