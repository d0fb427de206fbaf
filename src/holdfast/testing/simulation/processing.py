"""A program of user code: state of every kind, timers of both clocks, and time to live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.checkpoint.time import Watermark
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.process.declare import ListState, MapState, ReducingState, ValueState
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram, to_ms
from holdfast.operators.process.operator import ProcessOperator
from holdfast.testing.simulation.lifting import lift_rows
from holdfast.testing.simulation.process_oracle import ProcessOracle
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Port,
    Program,
    Stage,
    rows_of,
)
from holdfast.testing.simulation.words import TIME, key_of, some, table, time_us

__all__ = ["ProcessProgram", "Steps"]

_KEYS = ("p", "q", "r", "s", "t", None)
_COLUMNS = (("k", pa.string()), ("act", pa.string()), ("x", pa.int64()), ("ts", TIME))
# The acts on state that lives for ever come often, so that there is something to lose.
_ACTS = (
    *("add", "append", "put") * 3,
    *("take", "clear", "recent", "fresh", "tell"),
    *("later", "later", "soon", "soon", "cancel"),
)


class Steps(KeyedProcess):
    """Does what each row says, and puts out what it finds."""

    output = "k string, n long, step string, found string"

    n = ValueState("long", default=0)
    total = ValueState("long", default=0)
    log = ListState("long")
    marks = MapState("string", "long")
    recent = ReducingState("long", "sum", ttl=2.5)
    fresh = MapState("string", "long", ttl=3, ttl_clock="event")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        """One step per row."""
        for row in rows:
            yield self._step(key.k, row.act, self._done(row, ctx))

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        """Tell everything; some timers set the next one, which may be due already."""
        ms = to_ms(when)
        self.total.value += 1
        if ms % 3 == 0:
            clock = ctx.timer_clock
            ctx.timers.set(when + timedelta(milliseconds=400 + ms % 2_000 - ms % 3 + 1), clock)
        yield self._step(key.k, f"{ctx.timer_clock} timer {ms}", self._everything(ctx))

    def _step(self, k: str | None, step: str, found: Any) -> tuple[Any, ...]:
        self.n.value += 1
        return k, self.n.value, step, repr(found)

    def _done(self, row: Any, ctx: Any) -> Any:
        act, x = row.act, row.x
        if act == "add":
            self.total.value += x
        elif act == "append":
            self.log.append(x)
        elif act == "put":
            self.marks[f"m{x % 4}"] = x
        elif act == "take":
            return self.marks.pop(f"m{x % 4}", None)
        elif act == "clear":
            (self.log if x % 2 else self.marks).clear()
        elif act == "recent":
            self.recent.add(x)
            return self.recent.value
        elif act == "fresh":
            self.fresh[f"f{x % 3}"] = x
        else:
            self._timed(row, ctx)
        return self.total.value if act != "tell" else self._everything(ctx)

    def _timed(self, row: Any, ctx: Any) -> None:
        act, x = row.act, row.x
        if act == "later":
            ctx.timers.set(row.ts + timedelta(milliseconds=150 * x))
        elif act == "soon":
            ctx.timers.set(ctx.processing_time + timedelta(milliseconds=150 * x), "processing")
        elif act == "cancel":
            for clock in ("event", "processing"):
                for when in ctx.timers.list(clock)[:1]:
                    ctx.timers.delete(when, clock)

    def _everything(self, ctx: Any) -> Any:
        waiting = (len(ctx.timers.list("event")), len(ctx.timers.list("processing")))
        marks, fresh = sorted(self.marks.items()), sorted(self.fresh.items())
        return self.total.value, list(self.log), marks, self.recent.value, fresh, waiting


class ProcessProgram(Program):
    """:class:`Steps`, with a side output for late rows."""

    name = "process"
    watermarks: ClassVar[Mapping[str, Watermark]] = {"main": Watermark(1_500)}

    def __init__(self) -> None:
        operator = ProcessOperator(
            "steps",
            _COLUMNS[:1],
            _COLUMNS,
            KeyedProgram(Steps(), ("event", "processing")),
            event_time={"main": EventTime("ts", 500)},
        )
        port = Port(lift_rows(operator.input_schema, 1), (Feed(0, time="main"),))
        super().__init__(
            [self._rows], [Stage(operator, (port,), {"sink-0": "", "side-late": LATE})]
        )

    def _rows(self, batch: int, rng: Random) -> pa.Table:
        places = some(rng)
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [key_of(rng, _KEYS) for _ in places]),
            "act": (pa.string(), [rng.choice(_ACTS) for _ in places]),
            "x": (pa.int64(), [rng.randrange(12) for _ in places]),
            "ts": (TIME, [time_us(rng, batch) for _ in places]),
        }
        return table(columns)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        oracle = ProcessOracle(lateness_ms=500)
        for epoch in epochs:
            oracle.epoch(epoch.record, rows_of(epoch.sources[0]))
        return oracle.answer()

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        values = rows_of(tables["steps.values"].select(["k", "n", "total"]))
        log = rows_of(tables["steps.list.log"].select(["k", "sequence", "value"]))
        found: dict[str, Any] = {"values": {k: (n, total) for k, n, total in values}, "log": {}}
        for k, _, x in sorted(log, key=lambda row: row[1]):
            found["log"].setdefault(k, []).append(x)
        for name in ("marks", "fresh"):
            entries = rows_of(tables[f"steps.map.{name}"].select(["k", "map_key", "value"]))
            found[name] = {}
            for k, entry, x in entries:
                found[name].setdefault(k, {})[entry] = x
        return found
