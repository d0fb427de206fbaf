"""Sources are read once in an epoch, each by itself, and only the columns that somebody looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.spark.flow import scans, slices
from holdfast.spark.flow.graph import build_graph
from holdfast.spark.flow.reading import readings
from holdfast.spark.jvm import partitions
from holdfast.testing import EpochSource
from tests.spark.flow.test_flow import seen, start
from tests.spark.support import step_on

pytestmark = pytest.mark.spark

WIDE = "k string, v long, ts timestamp, note string, `odd.name` string"


@pytest.fixture
def wide(spark: SparkSession, tmp_path: Path) -> EpochSource:
    return EpochSource(spark, WIDE, tmp_path / "in")


def used(pipeline: hf.Pipeline) -> list[tuple[str, ...]]:
    return [reading.used for reading in readings(build_graph(pipeline))]


def test_columns_that_nobody_looks_at_are_not_read(wide: EpochSource) -> None:
    rows = hf.stream(wide.df).with_watermark("ts", "1 s")
    windows = rows.key_by("k").window(hf.tumbling("10 s")).aggregate(n=hf.count())
    assert used(windows.write_to(hf.sinks.noop())) == [("k", "ts")]
    sums = rows.filter("`odd.name` > 'a'").key_by("k").aggregate(v=hf.sum("v"))
    both = hf.pipeline(windows.write_to(hf.sinks.noop()), sums.write_to(hf.sinks.noop()))
    assert used(both) == [("k", "v", "ts", "odd.name")]
    sketch = hf.stream(wide.df).key_by("k").aggregate(n=hf.approx_count_distinct("note"))
    assert used(sketch.write_to(hf.sinks.noop())) == [("k", "note")]


def test_a_sink_that_gets_all_rows_reads_all_columns(wide: EpochSource) -> None:
    everything = ("k", "v", "ts", "note", "odd.name")
    assert used(hf.stream(wide.df).write_to(hf.sinks.noop())) == [everything]


def test_a_column_is_read_though_nobody_looks_at_any(wide: EpochSource) -> None:
    counted = hf.stream(wide.df).key_by(F.lit(1).alias("all")).aggregate(n=hf.count())
    assert used(counted.write_to(hf.sinks.noop())) == [("k",)]


def test_steps_see_all_columns(wide: EpochSource, tmp_path: Path) -> None:
    def counted(df: DataFrame) -> DataFrame:
        return df.select("k", F.lit(len(df.columns)).alias("columns"))

    rows = hf.stream(wide.df)
    columns = rows.transform(counted).key_by("k").aggregate(most=hf.max("columns"))
    sums = rows.key_by("k").aggregate(v=hf.sum("v"))
    pipeline = hf.pipeline(
        columns.write_to(hf.sinks.memory("columns")), sums.write_to(hf.sinks.memory("sums"))
    )
    assert used(pipeline) == [("k", "v")]
    wide.add([("a", 1, None, "x", "y"), ("a", 2, None, "x", "y")])
    query = start(pipeline, tmp_path)
    query.step()
    query.stop()
    assert seen("columns") == [("a", 5)]
    assert seen("sums") == [("a", 3)]


@pytest.mark.slow
@pytest.mark.parametrize("pruned", [True, False], ids=["by partition", "by column"])
def test_each_source_is_read_by_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pruned: bool
) -> None:
    found: list[list[int] | None] = []
    look = partitions.partitions_of_union

    def looked(rdd: Any, expected: int) -> Any:
        found.append(look(rdd, expected) if pruned else None)
        return found[-1]

    monkeypatch.setattr(slices, "partitions_of_union", looked)
    monkeypatch.setattr(scans, "parts_of_batch", lambda session, columns: None)
    one = EpochSource(spark, "k string, v long", tmp_path / "one")
    two = EpochSource(spark, "k string, w string", tmp_path / "two")
    three = EpochSource(spark, "k string, v long", tmp_path / "three")
    counts = hf.stream(two.df).key_by("k").aggregate(most=hf.max("w"))
    # A loop needs ticks, which are a source beside the others.
    loop = hf.stream(three.df).iterate(
        lambda rows: (rows.filter("v > 9"), rows.filter("v <= 9")), name="none"
    )
    pipeline = hf.pipeline(
        hf.stream(one.df).key_by("k").aggregate(v=hf.sum("v")).write_to(hf.sinks.memory("one")),
        counts.write_to(hf.sinks.memory("two")),
        loop.write_to(hf.sinks.memory("three")),
    )
    one.add([("a", 1), ("b", 2)])
    two.add([("a", "x")])
    three.add([("c", 7)])
    query = start(pipeline, tmp_path)
    query.step()
    two.add([("a", "y"), ("b", "z")])
    step_on(query)
    one.add([("a", 5)])
    step_on(query)
    query.stop()
    assert seen("one") == [("a", 1), ("a", 6), ("b", 2)]
    assert seen("two") == [("a", "x"), ("a", "y"), ("b", "z")]
    assert seen("three") == [("c", 7)]
    assert len(found) >= 3
    if pruned:
        with_rows = [[count > 0 for count in (counts or [])[:3]] for counts in found]
        assert with_rows[0] == [True, True, True]
        assert [False, True, False] in with_rows
        assert [True, False, False] in with_rows
