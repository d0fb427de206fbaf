"""Windows, joins, deduplication and top-n equal the same queries of Spark's batch engine.

A batch knows no lateness: each row gets the watermark that the log records for its epoch, and what
came too late by it is left out there too.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.testing import EpochSource
from tests.spark.support import step_on

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

LEFT = "k string, v long, ts timestamp"
RIGHT = "k string, w long, at timestamp"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SINKS = ("tumbling", "sliding", "pairs", "alone", "semi", "once", "best", "updated")

Epoch = list[tuple[str | None, int, int]]
"""Key, value, and when, in ms."""


def pipeline(left: EpochSource, right: EpochSource) -> hf.Pipeline:
    rows = hf.stream(left.df).with_watermark("ts", "2 s")
    others = hf.stream(right.df).with_watermark("at", "2 s")
    keyed = rows.key_by("k")
    near: dict[str, Any] = {"between": ("-3 s", "1 s")}
    tumbling = keyed.window(hf.tumbling("5 s")).aggregate(n=hf.count(), total=hf.sum("v"))
    results: dict[str, hf.ResultStream] = {
        "tumbling": tumbling.named("tumbling"),
        "sliding": rows.window(hf.sliding("6 s", "2 s")).aggregate(n=hf.count()).named("sliding"),
        "updated": keyed.window(hf.tumbling("4 s"), output_mode="retract")
        .aggregate(most=hf.max("v"))
        .named("updated"),
        "pairs": rows.join(others, "k", **near).named("pairs"),
        "alone": rows.join(others, "k", how="left", **near).named("alone"),
        "semi": rows.join(others, "k", how="semi", **near).named("semi"),
        "once": rows.key_by("k").drop_duplicates().named("once"),
    }
    results["best"] = (
        results["tumbling"]
        .key_by("window_end")
        .top(1, [("total", "desc"), "k"], until="window_end", output_mode="append")
        .named("best")
    )
    return hf.pipeline(*(results[name].write_to(hf.sinks.memory(name)) for name in SINKS))


def add(source: EpochSource, epoch: Epoch) -> None:
    source.add([(k, v, BEGIN + timedelta(milliseconds=ms)) for k, v, ms in epoch])


class Run:
    """A pipeline that is fed epoch by epoch, and started anew when its partitions change."""

    def __init__(self, pipeline: Callable[[], hf.Pipeline]) -> None:
        self.work = Path(tempfile.mkdtemp(prefix="flow-"))
        self.pipeline = pipeline
        self.partitions = 0
        self.query: Any = None

    def epoch(self, partitions: int) -> int | None:
        """Run the epoch that was added last; its watermark."""
        if partitions != self.partitions:
            self.partitions = partitions
            if self.query is not None:
                self.query.stop()
            self.query = self.pipeline().start(
                "flow",
                self.work / "ck",
                trigger="manual",
                local_dir=self.work / "local",
                partitions=partitions,
            )
        self.step_until(lambda progress: progress.rows > 0)
        watermark: int | None = self.query.progress[-1].watermark_ms
        return watermark

    def finish(self, *sources: EpochSource) -> None:
        """Input has ended: all that waits comes out."""
        for source in sources:
            source.end()
        while self.query.step():
            pass
        assert not self.query.is_active

    def step_until(self, reached: Callable[[Any], bool]) -> None:
        for _ in range(6):
            step_on(self.query)
            if reached(self.query.progress[-1]):
                return
        pytest.fail(f"it never came to it: {self.query.progress[-3:]}")


def run(spark: SparkSession, epochs: list[tuple[Epoch, Epoch]], partitions: list[int]) -> Any:
    """The watermark of each epoch, and what every sink got."""
    folder = Path(tempfile.mkdtemp(prefix="flow-in-"))
    left = EpochSource(spark, LEFT, folder / "left")
    right = EpochSource(spark, RIGHT, folder / "right")
    pipe = Run(lambda: pipeline(left, right))
    marks: list[int | None] = []
    for (rows, others), count in zip(epochs, partitions, strict=True):
        add(left, rows)
        add(right, others)
        marks.append(pipe.epoch(count))
    pipe.finish(left, right)
    return marks, {name: hf.sinks.memory_table(name).to_pylist() for name in SINKS}


def with_marks(
    spark: SparkSession, epochs: list[Epoch], marks: list[int | None], schema: str
) -> DataFrame:
    rows = [
        (k, v, BEGIN + timedelta(milliseconds=ms), mark)
        for epoch, mark in zip(epochs, marks, strict=True)
        for k, v, ms in epoch
    ]
    return spark.createDataFrame(rows, f"{schema}, mark long")


def in_time(time: Column) -> Column:
    """Whether something at this time is behind the watermark."""
    return F.col("mark").isNull() | (F.unix_millis(time) > F.col("mark"))


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    def plain(value: Any) -> Any:
        return value.astimezone(timezone.utc) if isinstance(value, datetime) else value

    return Counter(tuple(plain(v) for v in row.values()) for row in rows)


def batch(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return counted([row.asDict() for row in frame.collect()])


def windowed(rows: DataFrame, *window: str) -> DataFrame:
    """Each row in each of its windows that had not closed when it came."""
    cut = rows.select("*", F.window("ts", *window).alias("w")).filter(in_time(F.col("w.end")))
    return cut.select("*", F.col("w.start").alias("s"), F.col("w.end").alias("e"))


def expected(rows: DataFrame, others: DataFrame) -> dict[str, Counter[tuple[Any, ...]]]:
    tumbling = (
        windowed(rows, "5 seconds").groupBy("k", "s", "e").agg(F.count("*"), F.sum("v").alias("t"))
    )
    left = rows.filter(in_time(F.col("ts"))).drop("mark")
    right = others.filter(in_time(F.col("at"))).drop("mark")
    near = [
        left.k == right.k,
        right["at"] >= left.ts - F.expr("interval 3 seconds"),
        right["at"] <= left.ts + F.expr("interval 1 second"),
    ]
    both = [left.k, left.v, left.ts, right.w, right["at"]]
    ranked = tumbling.selectExpr(
        "*", "row_number() OVER (PARTITION BY e ORDER BY t DESC, k ASC) AS place"
    )
    return {
        "tumbling": batch(tumbling),
        "sliding": batch(
            windowed(rows, "6 seconds", "2 seconds").groupBy("s", "e").agg(F.count("*"))
        ),
        "updated": batch(windowed(rows, "4 seconds").groupBy("k", "s", "e").agg(F.max("v"))),
        "pairs": batch(left.join(right, near).select(*both)),
        "alone": batch(left.join(right, near, "left").select(*both)),
        "semi": batch(left.join(right, near, "left_semi")),
        "once": batch(left.select("k").distinct()),
        "best": batch(ranked.filter("place = 1").drop("place")),
    }


KEYS = st.sampled_from(["a", "b", "c", None])
ROWS = st.lists(
    st.tuples(KEYS, st.integers(-5, 5), st.integers(-9_000, 9_000)), min_size=1, max_size=25
)
EPOCHS = st.lists(st.tuples(ROWS, ROWS), min_size=3, max_size=6)
PARTITIONS = st.sampled_from([1, 2, 3])


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(EPOCHS, PARTITIONS, PARTITIONS)
def test_operators_equal_batch(
    spark: SparkSession, epochs: list[tuple[Epoch, Epoch]], before: int, after: int
) -> None:
    # Time goes on from epoch to epoch, and many rows are behind the watermark by then.
    moved = [
        ([(k, v, ms + 6_000 * n) for k, v, ms in a], [(k, v, ms + 6_000 * n) for k, v, ms in b])
        for n, (a, b) in enumerate(epochs)
    ]
    marks, got = run(spark, moved, [before] * 2 + [after] * (len(moved) - 2))
    rows = with_marks(spark, [a for a, _ in moved], marks, LEFT)
    others = with_marks(spark, [b for _, b in moved], marks, RIGHT)
    for name, wanted in expected(rows, others).items():
        if name == "updated":
            found = counted(hf.fold(pa.Table.from_pylist(got[name])).to_pylist())
        elif name == "once":
            found = counted([{"k": row["k"]} for row in got[name]])
        else:
            found = counted(got[name])
        assert found == wanted, name


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, min_size=2, max_size=4), PARTITIONS)
def test_sessions_equal_batch_if_nothing_is_late(
    spark: SparkSession, epochs: list[Epoch], partitions: int
) -> None:
    """What lateness does to sessions, batch can't say; the tests of the operator do."""
    source = EpochSource(spark, LEFT, Path(tempfile.mkdtemp(prefix="flow-in-")) / "in")

    def sessions() -> hf.Pipeline:
        rows = hf.stream(source.df).with_watermark("ts", "30 minutes")
        cut = rows.key_by("k").window(hf.session("3 s")).aggregate(n=hf.count())
        return cut.write_to(hf.sinks.memory("sessions"))

    pipe = Run(sessions)
    for epoch in epochs:
        add(source, epoch)
        pipe.epoch(partitions)
    pipe.finish(source)
    rows = with_marks(spark, epochs, [None] * len(epochs), LEFT)
    cut = rows.groupBy("k", F.session_window("ts", "3 seconds").alias("w"))
    wanted = cut.agg(F.count("*").alias("n")).select("k", "w.start", "w.end", "n")
    assert counted(hf.sinks.memory_table("sessions").to_pylist()) == batch(wanted)
