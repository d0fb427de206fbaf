"""Pipelines of several operators: what they compute, how they restart, and what they say of themselves."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.spark.flow.graph import build_graph
from holdfast.testing import EpochSource
from tests.spark.support import step_on

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long"


def start(pipeline: hf.Pipeline, work: Path, **options: Any) -> Any:
    return pipeline.start(
        "flow", work / "ck", trigger="manual", local_dir=work / "local", **options
    )


def seen(name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in hf.sinks.memory_table(name).to_pylist())


class Seen(hf.KeyedProcess):
    output = "p struct<k:string,v:long>, n long"
    n = hf.ReducingState("long")
    words = hf.MapState("string", "long")

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        self.n.add(len(rows))
        self.words["all"] = self.words.get("all", 0) + len(rows)
        yield key.p, min(self.n.value, self.words["all"])


def test_keys_that_are_structs(spark: SparkSession, tmp_path: Path) -> None:
    """A null struct, one of nulls and one with a null are keys of their own, as to Spark's groupBy."""
    source = EpochSource(spark, "p struct<k:string,v:long>, f double", tmp_path / "in")
    rows = hf.stream(source.df)
    # Its fields can't be null, those of the state can.
    made = F.struct(F.lit(1).alias("one"), F.struct("f").alias("inner")).alias("made")
    pipeline = hf.pipeline(
        rows.key_by("p").aggregate(n=hf.count()).write_to(hf.sinks.memory("structs")),
        rows.key_by("p").process(Seen()).write_to(hf.sinks.memory("seen")),
        rows.key_by(made).aggregate(n=hf.count()).write_to(hf.sinks.memory("made")),
    )
    epoch: list[Any] = [(("a", 1), 0.0), (("a", None), -0.0), ((None, None), 1.0), (None, None)]
    for _ in range(2):
        query = start(pipeline, tmp_path)
        source.add([*epoch, epoch[0]])
        query.step()
        query.stop()

    def last(name: str) -> set[str]:
        table = hf.sinks.memory_table(name).to_pylist()
        return {repr(row) for row in table[len(table) // 2 :]}

    batch = source.rows_so_far()
    counts = {
        (repr(r.p and r.p.asDict()), r["count"]) for r in batch.groupBy("p").count().collect()
    }
    expected = {f"{{'p': {key}, 'n': {n}}}" for key, n in counts}
    assert len(expected) == 4
    assert last("structs") == last("seen") == expected
    groups = batch.groupBy(made).count().collect()
    assert last("made") == {
        repr({"made": row.made.asDict(recursive=True), "n": row["count"]}) for row in groups
    }


def test_a_diamond_with_two_sources_and_three_sinks(spark: SparkSession, tmp_path: Path) -> None:
    one = EpochSource(spark, SCHEMA, tmp_path / "one")
    two = EpochSource(spark, SCHEMA, tmp_path / "two")
    both = hf.stream(one.df).union(hf.stream(two.df))
    counts = both.key_by("k").aggregate(n=hf.count(), total=hf.sum("v")).named("counts")
    large, small = counts.filter("n > 1"), counts.filter("n = 1")
    again = large.union(small).key_by("n").aggregate(keys=hf.count()).named("again")
    pipeline = hf.pipeline(
        counts.write_to(hf.sinks.memory("diamond")),
        again.write_to(hf.sinks.memory("again")),
        large.select("k").write_to(hf.sinks.memory("large")),
        hf.stream(two.df).filter("v > 3").write_to(hf.sinks.memory("plain")),
    )
    query = start(pipeline, tmp_path)
    one.add([("a", 1), ("b", 2)])
    two.add([("a", 3), ("c", 4)])
    query.step()
    query.checkpoint()
    assert seen("diamond") == [("a", 2, 4), ("b", 1, 2), ("c", 1, 4)]
    assert seen("again") == [(1, 2), (2, 1)]
    assert seen("large") == [("a",)]
    assert seen("plain") == [("c", 4)]
    progress = query.progress[-1]
    assert progress.operators["counts"]["rows"] == 4
    assert progress.operators["again"]["rows"] == 3
    assert progress.state_rows == 5
    # One source alone moves, and a restart in between with other partitions.
    query.stop()
    query = start(pipeline, tmp_path, partitions=3)
    two.add([("a", 5)])
    query.step()
    query.stop()
    assert seen("diamond")[1:3] == [("a", 3, 9), ("b", 1, 2)]
    assert ("c", 4) in seen("plain")
    assert ("a", 5) in seen("plain")


def test_results_with_two_readers_are_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    calls = tmp_path / "calls"
    calls.mkdir()

    class Counting(hf.KeyedProcess):
        output = "k string, n long"
        n = hf.ValueState("long", default=0)

        def process(self, key: Any, rows: Any, ctx: Any) -> Any:
            import uuid

            (calls / f"{key.k}-{uuid.uuid4().hex}").touch()
            self.n.value += len(rows)
            yield key.k, self.n.value

    counted = hf.stream(source.df).key_by("k").process(Counting()).named("counted")
    pipeline = hf.pipeline(
        counted.key_by("n").aggregate(c=hf.count()).write_to(hf.sinks.memory("reader-1")),
        counted.key_by("k").aggregate(m=hf.max("n")).write_to(hf.sinks.memory("reader-2")),
        counted.filter("n > 0").write_to(hf.sinks.memory("reader-3")),
    )
    assert "several readers" in pipeline.explain()
    query = start(pipeline, tmp_path, partitions=2)
    source.add([(f"k{i}", i) for i in range(20)])
    query.step()
    query.stop()
    assert seen("reader-1") == [(1, 20)]
    assert len(seen("reader-2")) == len(seen("reader-3")) == 20
    assert len(list(calls.iterdir())) == 20


def test_a_name_finds_its_state_when_the_program_around_it_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    rows = hf.stream(source.df)
    counts = rows.key_by("k").aggregate(n=hf.count()).named("counts")
    query = start(counts.write_to(hf.sinks.memory("moved")), tmp_path)
    source.add([("a", 1), ("a", 2)])
    query.step()
    query.stop()
    # Another operator stands before it now, and one behind it.
    positive = rows.key_by("v").drop_duplicates().named("once")
    counts = positive.key_by("k").aggregate(n=hf.count()).named("counts")
    most = counts.key_by(F.lit(0).alias("all")).aggregate(most=hf.max("n")).named("most")
    pipeline = hf.pipeline(
        counts.write_to(hf.sinks.memory("moved")), most.write_to(hf.sinks.memory("most"))
    )
    query = start(pipeline, tmp_path)
    source.add([("a", 3), ("a", 3), ("b", 4)])
    query.step()
    query.stop()
    assert seen("moved") == [("a", 2), ("a", 3), ("b", 1)]
    assert seen("most") == [(0, 3)]


def test_windows_of_the_results_of_windows_are_the_same_windows(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, "k string, ts timestamp", tmp_path / "in")
    rows = hf.stream(source.df).with_watermark("ts", "0 s")
    counts = rows.key_by("k").window(hf.tumbling("10 s")).aggregate(n=hf.count())
    most = counts.window(hf.tumbling("10 s")).aggregate(keys=hf.count(), most=hf.max("n"))
    query = start(most.named("most").write_to(hf.sinks.memory("most-of")), tmp_path)

    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)

    source.add([("a", at(1)), ("a", at(9)), ("b", at(5)), ("b", at(10)), ("c", at(30))])
    # The watermark of the epoch behind these rows closes both levels at once.
    for _ in range(5):
        step_on(query)
        if query.progress[-1].watermark_ms is not None:
            break
    query.stop()
    assert seen("most-of") == [(at(0), at(10), 2, 2), (at(10), at(20), 1, 1)]


def test_explain_names_operators_state_and_stages(spark: SparkSession) -> None:
    source = EpochSource(spark, "k string, v long, ts timestamp")
    rows = hf.stream(source.df).with_watermark("ts", "10 s")
    sums = rows.key_by("k").window(hf.tumbling("1 minute")).aggregate(total=hf.sum("v"))
    best = sums.key_by("window_end").top(3, ("total", "desc"), until="window_end").named("best")
    text = best.write_to(hf.sinks.memory("best")).explain()
    for words in (
        "watermark main: greatest event time - 10000 ms",
        "1. window: append tumbling windows of 60000 ms",
        "state window.windows: by k | window_start",
        "2. best: top 3 by window_end",
        "reads window",
        "shuffle by hash of window_end",
        "results to sink-0: rows in memory as 'best'",
    ):
        assert words in text


def test_sinks_choose_columns_without_a_stage_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    counts = hf.stream(source.df).key_by("k").aggregate(n=hf.count(), total=hf.sum("v"))
    renamed = counts.select(F.col("total").alias("sum"), "k").select(
        "k", "sum", F.col("k").alias("again")
    )
    doubled = counts.select("k", (F.col("n") * 2).alias("n"))
    pipeline = hf.pipeline(
        counts.write_to(hf.sinks.memory("all")),
        renamed.write_to(hf.sinks.memory("renamed-columns")),
        doubled.write_to(hf.sinks.memory("doubled")),
    )
    text = pipeline.explain()
    assert "emit-2" in text, "what computes something needs a stage"
    assert "emit-1" not in text
    query = start(pipeline, tmp_path)
    source.add([("a", 1), ("a", 2), ("b", 5)])
    query.step()
    query.stop()
    assert hf.sinks.memory_table("renamed-columns").schema.names == ["k", "sum", "again"]
    assert seen("renamed-columns") == [("a", 3, "a"), ("b", 5, "b")]
    assert seen("all") == [("a", 2, 3), ("b", 1, 5)]
    assert seen("doubled") == [("a", 4), ("b", 2)]


def test_rows_in_a_loop_survive_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")

    def body(rows: hf.Stream) -> tuple[hf.Stream, hf.Stream]:
        less = rows.with_column("v", F.col("v") - 1)
        return less.filter("v > 0"), less.filter("v <= 0")

    def pipeline() -> hf.Pipeline:
        out = hf.stream(source.df).iterate(body, name="countdown")
        return out.key_by("k").aggregate(n=hf.count()).write_to(hf.sinks.memory("loop"))

    source.add([("a", 3), ("b", 2), ("c", 1)])
    query = start(pipeline(), tmp_path, partitions=2)
    query.step()
    assert query.progress[-1].metrics == {"countdown.records": 2}
    query.stop()
    query = start(pipeline(), tmp_path, partitions=3)
    records = []
    for _ in range(2):
        step_on(query)
        records.append(query.progress[-1].metrics["countdown.records"])
    query.stop()
    assert records == [1, 0]
    assert seen("loop") == [("a", 1), ("b", 1), ("c", 1)]


def test_loops_without_a_name_are_numbered(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")

    def body(rows: hf.Stream) -> tuple[hf.Stream, hf.Stream]:
        less = rows.with_column("v", F.col("v") - 1)
        return less.filter("v > 0"), less.filter("v <= 0")

    out = hf.stream(source.df).iterate(body).iterate(body)
    source.add([("a", 2)])
    query = start(out.write_to(hf.sinks.memory("two loops")), tmp_path)
    query.step()
    query.stop()
    assert query.progress[-1].metrics == {"loop.records": 1, "loop-2.records": 0}


def test_priorities_are_those_of_the_operators(spark: SparkSession, tmp_path: Path) -> None:
    rows = hf.stream(EpochSource(spark, SCHEMA, tmp_path / "in").df).key_by("k")
    first = rows.aggregate(n=hf.count()).named("first", priority=2)
    pipeline = hf.pipeline(
        first.key_by("n").aggregate(keys=hf.count()).named("again").write_to(hf.sinks.noop()),
        rows.top(1, by="v").named("top", priority=1).write_to(hf.sinks.noop()),
    )
    assert build_graph(pipeline).priorities == {"first": 2, "top": 1}
    with pytest.raises(hf.InputError, match="priority -1"):
        first.named("first", priority=-1)
