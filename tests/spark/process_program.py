"""A pipeline with every kind of state in a process of its own, for tests that kill it.

    python process_program.py WORK_DIR '{"option": value, …}'

WORK_DIR/in and WORK_DIR/control hold one Parquet file per epoch each; output goes to four sinks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast as hf

EVENTS = "user string, amount long, ts timestamp"
CONTROL = "name string, limit long"
SINKS = ("out", "copy", "alerts", "late")


def max_of(a: str, b: str) -> str:
    """A merge of the user's own."""
    return max(a, b)


class Account(hf.KeyedProcess):
    """Uses every kind of state, both clocks, and broadcast state."""

    output = "user string, seq long, what string, seen string"
    side_outputs = {"alerts": "user string, seq long, amount long, limit long"}  # noqa: RUF012

    seq = hf.ValueState("long", default=0)
    profile = hf.ValueState("struct<rows:long,last:timestamp,tags:array<string>>")
    brief = hf.ValueState("long", ttl=0.035)
    awake = hf.ValueState("long", ttl="25 s", ttl_clock="event", ttl_on="read")
    total = hf.ReducingState("long", "sum")
    word = hf.ReducingState("string", max_of, ttl="40 s", ttl_clock="event")
    mean = hf.AggregatingState(
        "struct<s:long,n:long>",
        create=lambda: {"s": 0, "n": 0},
        add=lambda a, x: {"s": a["s"] + x, "n": a["n"] + 1},
        result=lambda a: (a["s"], a["n"]),
    )
    log = hf.ListState("long")
    recent = hf.ListState("struct<n:long>", ttl="30 s", ttl_clock="event")
    items = hf.MapState("long", "string")
    fresh = hf.MapState("string", "long", ttl=0.03, ttl_on="read")
    limits = hf.BroadcastState("string", "long")

    def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
        for row in rows:
            if row.limit < 0:
                self.limits.pop(row.name)
            else:
                self.limits[row.name] = row.limit

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            self._take(row, ctx)
            limit = self.limits.get(f"limit {row.amount % 3}")
            if limit is not None and row.amount > limit:
                ctx.side_output("alerts", (key.user, self.seq.value, row.amount, limit))
            ctx.metrics.add("rows")
            yield self._shown(key, "row")

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield self._shown(key, f"{ctx.timer_clock} timer {when:%M:%S.%f}")
        if ctx.timer_clock == "event" and self.seq.value % 3 == 0:
            self.log.clear()
            self.items.clear()
            self.total.clear()
        elif ctx.timer_clock == "processing" and self.seq.value % 4 == 0:
            ctx.timers.set(ctx.processing_time + timedelta(milliseconds=25), "processing")

    def _take(self, row: Any, ctx: Any) -> None:
        amount = row.amount
        tags = self.profile.value["tags"][-2:] if self.profile.exists() else []
        self.profile.value = (amount, row.ts, [*tags, f"t{amount % 5}"])
        if amount % 3 == 0:
            self.brief.value = amount
        if amount % 4 == 0:
            self.awake.value = amount
        self.total.add(amount)
        self.word.add(f"w{amount % 50}")
        self.mean.add(amount)
        self.log.append(amount)
        self.recent.append((amount,))
        self.items[amount % 6] = f"i{amount}"
        self.fresh[f"f{amount % 4}"] = amount
        if amount % 11 == 0:
            self.log.set([amount, amount + 1])
            del self.items[amount % 6]
        if amount % 13 == 0:
            self.recent.clear()
            self.fresh.clear()
        if amount % 17 == 0:
            for when in ctx.timers.list()[:2]:
                ctx.timers.delete(when)
        ctx.timers.set(row.ts + timedelta(seconds=20))
        if amount % 2 == 0:
            ctx.timers.set(ctx.processing_time + timedelta(milliseconds=15), "processing")

    def _shown(self, key: Any, what: str) -> tuple[Any, ...]:
        self.seq.value += 1
        seen = [
            self.brief.value,
            self.awake.value,
            self.total.value,
            self.word.value,
            self.mean.value,
            list(self.log)[-3:],
            len(self.recent),
            sorted(self.items.items()),
            self.fresh.get("f1"),
            sorted(self.fresh),
            sorted(self.limits.items()),
        ]
        return key.user, self.seq.value, what, repr(seen)


def pipeline(spark: SparkSession, work: Path) -> hf.Pipeline:
    def files(schema: str, folder: str) -> Any:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(work / folder))

    events = hf.stream(files(EVENTS, "in")).with_watermark("ts", "5 s", allowed_lateness="2 s")
    control = hf.stream(files(CONTROL, "control"))
    result = events.key_by("user").connect(control).broadcast(Account())
    out, copy, alerts, late = (hf.sinks.parquet(str(work / name)) for name in SINKS)
    return result.write_to(out, copy, alerts=alerts, late=late)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.spark.programs import run_to_end

    run_to_end("accounts", pipeline)


if __name__ == "__main__":
    main()
