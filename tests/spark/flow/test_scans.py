"""Operators read straight from the scans of their sources, with plans that are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.driver.pacing import Pacing, StageShape
from holdfast.operators.base import Clock
from holdfast.spark.flow.scans import Scans, SourceRows
from holdfast.spark.jvm.frames import frame_of
from holdfast.spark.jvm.prepared import prepared
from holdfast.spark.plans.lift import AggregatePlan
from holdfast.spark.plans.times import TimeBound
from holdfast.testing import EpochSource
from tests.spark.flow.test_flow import seen, start
from tests.spark.support import step_on

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long"


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> EpochSource:
    return EpochSource(spark, SCHEMA, tmp_path / "in")


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """Per epoch, of which sources the scan was found."""
    found: list[list[bool]] = []
    rows = Scans.rows

    def noted(self: Scans, batch: DataFrame, *, ticks: bool) -> list[SourceRows]:
        made = rows(self, batch, ticks=ticks)
        found.append([each.scan is not None for each in made])
        return made

    monkeypatch.setattr(Scans, "rows", noted)
    return found


def sums(rows: hf.Stream, name: str) -> hf.Pipeline:
    return rows.key_by("k").aggregate(v=hf.sum("v")).write_to(hf.sinks.memory(name))


def run(pipeline: hf.Pipeline, source: EpochSource, work: Path, epochs: int = 3) -> Any:
    query = start(pipeline, work)
    for number in range(epochs):
        source.add([("a", number), ("b", 10), ("c", -1)])
        query.step()
    query.stop()
    return query


def test_a_source_is_scanned_and_spark_knows_how_many_rows(
    source: EpochSource, tmp_path: Path, scanned: list[list[bool]]
) -> None:
    rows = hf.stream(source.df.filter("v >= 0").select("k", (F.col("v") * 2).alias("v")))
    query = run(sums(rows, "scanned"), source, tmp_path)
    assert scanned == [[True]] * 3
    assert seen("scanned") == [("a", 0), ("a", 2), ("a", 6), ("b", 20), ("b", 40), ("b", 60)]
    told = [progress["numInputRows"] for progress in query.spark_query.recentProgress]
    # Spark may not have told of the last epoch yet.
    assert [rows for rows in told if rows][:2] == [3, 3]
    assert [progress.rows for progress in query.progress] == [2, 2, 2]


def test_sources_beside_each_other_are_scanned_each_by_itself(
    spark: SparkSession, source: EpochSource, tmp_path: Path, scanned: list[list[bool]]
) -> None:
    other = EpochSource(spark, "k string, w string", tmp_path / "other")
    most = hf.stream(other.df).key_by("k").aggregate(w=hf.max("w"))
    # A loop needs ticks, which are a source beside the others.
    loop = hf.stream(source.df).iterate(lambda rows: (rows.filter("v > 90"), rows), name="none")
    pipeline = hf.pipeline(
        most.write_to(hf.sinks.memory("other")), loop.write_to(hf.sinks.memory("loop"))
    )
    query = start(pipeline, tmp_path)
    source.add([("a", 1)])
    other.add([("a", "x"), ("b", "y")])
    step_on(query)
    other.add([("a", "z")])
    step_on(query)
    source.add([("c", 2)])
    step_on(query)
    query.stop()
    assert len(scanned) >= 3
    assert all(found == [True, True] for found in scanned)
    assert seen("other") == [("a", "x"), ("a", "z"), ("b", "y")]
    assert seen("loop") == [("a", 1), ("c", 2)]


def in_python(df: DataFrame) -> DataFrame:
    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    return df.mapInArrow(same, SCHEMA)


def joined(df: DataFrame) -> DataFrame:
    names = df.sparkSession.createDataFrame([("a",), ("b",), ("c",)], "k string")
    return df.join(names, "k")


@pytest.mark.parametrize("step", [in_python, joined])
def test_steps_that_are_not_known_are_left_to_spark(
    source: EpochSource,
    tmp_path: Path,
    scanned: list[list[bool]],
    step: Callable[[DataFrame], DataFrame],
) -> None:
    run(sums(hf.stream(step(source.df)), "left"), source, tmp_path)
    assert scanned == [[False]] * 3
    assert seen("left")[-3:] == [("c", -3), ("c", -2), ("c", -1)]


def test_a_union_of_the_users_own_is_one_source(
    spark: SparkSession, source: EpochSource, tmp_path: Path, scanned: list[list[bool]]
) -> None:
    other = EpochSource(spark, SCHEMA, tmp_path / "other")
    other.add([("z", 1)])
    rows = hf.stream(source.df.unionAll(other.df))
    run(sums(rows, "union"), source, tmp_path, epochs=2)
    assert scanned[0] == [True]
    assert seen("union") == [("a", 0), ("a", 1), ("b", 10), ("b", 20), ("c", -2), ("c", -1), ("z", 1)]  # fmt: skip


def test_steps_of_one_reader_are_taken_on_what_was_scanned(
    source: EpochSource, tmp_path: Path, scanned: list[list[bool]]
) -> None:
    def twice(df: DataFrame) -> DataFrame:
        return df.unionAll(df.select("k", (F.col("v") * 10).alias("v")))

    # Of a source with several readers each takes its steps in every epoch.
    rows = hf.stream(source.df)
    pipeline = hf.pipeline(sums(rows.transform(twice), "twice"), sums(rows, "once"))
    query = start(pipeline, tmp_path)
    for number in (1, 2):
        source.add([("a", number), ("b", 5)])
        query.step()
    query.stop()
    assert scanned == [[True]] * 2
    assert seen("twice") == [("a", 11), ("a", 33), ("b", 55), ("b", 110)]
    assert seen("once") == [("a", 1), ("a", 3), ("b", 5), ("b", 10)]


@pytest.mark.parametrize(
    ("value", "anew"),
    [
        ("v", False),
        ("v + year(current_date()) * 0", True),
    ],
    ids=["same", "time of day"],
)
def test_plans_are_made_once_if_they_are_always_the_same(
    source: EpochSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    anew: bool,
) -> None:
    made = []
    lift = AggregatePlan.lift

    def counted(self: AggregatePlan, frame: DataFrame, **how: Any) -> DataFrame:
        made.append(frame)
        return lift(self, frame, **how)

    totals = hf.stream(source.df).key_by("k").aggregate(v=hf.sum(F.expr(value).alias("value")))
    pipeline = totals.write_to(hf.sinks.memory("made"))
    monkeypatch.setattr(AggregatePlan, "lift", counted)
    run(pipeline, source, tmp_path, epochs=4)
    # Once for the first epoch, once for all others.
    assert len(made) == (4 if anew else 2)
    assert seen("made")[:4] == [("a", 0), ("a", 1), ("a", 3), ("a", 6)]


def test_plans_of_several_sources_of_one_operator_are_used_again(
    spark: SparkSession, source: EpochSource, tmp_path: Path, scanned: list[list[bool]]
) -> None:
    other = EpochSource(spark, SCHEMA, tmp_path / "other")
    both = hf.stream(source.df).union(hf.stream(other.df)).key_by("k", "v").drop_duplicates()
    query = start(both.write_to(hf.sinks.memory("both")), tmp_path)
    for number in range(3):
        source.add([("a", number), ("a", 0)])
        other.add([("a", number), ("b", number)])
        query.step()
    query.stop()
    assert scanned == [[True, True]] * 3
    assert seen("both") == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("grouped", [True, False])
def test_plans_that_are_used_again_read_the_rows_of_their_epoch(
    spark: SparkSession,
    tmp_path: Path,
    scanned: list[list[bool]],
    monkeypatch: pytest.MonkeyPatch,
    grouped: bool,
) -> None:
    shape = StageShape(2, preaggregate=grouped, shuffle=True)
    monkeypatch.setattr(Pacing, "next", lambda self, inputs=1: shape)
    # To Spark, scans of a source of its second interface are equal, whatever their offsets.
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    numbers = hf.stream(source.load().select((F.col("value") % 2).alias("k"), "value"))
    name = f"of-their-epoch-{grouped}"
    sums = numbers.key_by("k").aggregate(n=hf.count(), total=hf.sum("value"))
    query = start(sums.write_to(hf.sinks.memory(name)), tmp_path)
    for _ in range(4):
        query.step()
    query.stop()
    assert scanned == [[True]] * 4
    expected = [
        (odd, 5 * (epoch + 1), sum(range(odd, 10 * (epoch + 1), 2)))
        for odd in (0, 1)
        for epoch in range(4)
    ]
    assert seen(name) == expected


@pytest.mark.slow
def test_plans_that_are_used_again_go_by_the_time_of_their_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = EpochSource(spark, "k string, v long, ts timestamp", tmp_path / "in")
    rows = hf.stream(timed.df).with_watermark("ts", "2 s").key_by("k")
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for epoch in range(5):
        # Every epoch moves on by ten seconds, and has a row of the epoch before: too late by then.
        at = [begin + timedelta(seconds=10 * epoch + s) for s in (0, 1, 2, 9, -9)]
        timed.add([(f"k{i % 2}", epoch * 10 + i, time) for i, time in enumerate(at)])
    results = []
    for grouped in (True, False):
        shape = StageShape(2, preaggregate=grouped, shuffle=True)
        monkeypatch.setattr(Pacing, "next", lambda self, inputs=1, shape=shape: shape)
        sessions = rows.window(hf.session("3 s")).aggregate(n=hf.count(), v=hf.sum("v"))
        last = rows.top(1, by=[("ts", "desc"), "v"])
        query = start(
            hf.pipeline(
                sessions.write_to(hf.sinks.memory(f"sessions-{grouped}")),
                last.write_to(hf.sinks.memory(f"last-{grouped}")),
            ),
            tmp_path / str(grouped),
        )
        for _ in range(5):
            query.step()
        # In the first epoch nothing is late yet. Both operators count what is late for them.
        assert [progress.late_rows for progress in query.progress] == [0, 2, 2, 2, 2]
        assert {progress.preaggregated for progress in query.progress} == {grouped}
        query.stop()
        results.append((seen(f"sessions-{grouped}"), seen(f"last-{grouped}")))
    assert results[0] == results[1]
    assert all(len(rows) >= 5 for rows in results[0])


def test_a_changing_number_is_that_of_its_epoch(spark: SparkSession) -> None:
    number = TimeBound(lambda clock: clock.processing_time_ms)
    frame = spark.range(3).select((F.col("id") + number.column(F.col("id"))).alias("x"))
    plan = frame._jdf.queryExecution().sparkPlan()
    found = []
    for ms in (5, -(1 << 62), 7):
        number.at(Clock(0, ms))
        rdd = prepared(spark, plan).execute()
        found.append([row.x for row in frame_of(spark, rdd, frame._jdf.schema()).collect()])
    assert found == [[ms, ms + 1, ms + 2] for ms in (5, -(1 << 62), 7)]
