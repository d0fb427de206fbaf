"""An aggregation of Spark's, adopted, goes on as if it had been Holdfast's from the start."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.failpoints import arm, disarm
from holdfast.spark.adopt import adopt, tables
from tests.spark import adopt_support as support
from tests.spark.adopt_support import add_input, assert_same, batch, results, run_spark, stream

pytestmark = [pytest.mark.spark, pytest.mark.slow]

AGGREGATES = {
    "n": hf.count(),
    "sizes": hf.count("size"),
    "whole": hf.sum("size"),
    "total": hf.sum("amount"),
    "ratios": hf.sum("ratio"),
    "smalls": hf.sum("small"),
    "prices": hf.sum("price"),
    "mean": hf.avg("size"),
    "mean_small": hf.avg("small"),
    "mean_price": hf.avg("price"),
    "least": hf.min("ratio"),
    "least_price": hf.min("price"),
    "latest": hf.max("at"),
    "again": hf.sum("amount"),
    "all_paid": hf.bool_and("paid"),
    "any_paid": hf.bool_or("paid"),
    "most_paid": hf.max("paid"),
    "spread": hf.stddev("amount"),
    "variance": hf.var_pop("size"),
    "newest": hf.last("word", by="at"),
    "oldest": hf.first("amount", by="at"),
}


def program(spark: SparkSession, work: Path, keys: Any, aggregates: Any) -> hf.Pipeline:
    kept = hf.stream(stream(spark, work)).key_by(*keys).aggregate(**aggregates)
    return kept.write_to(hf.sinks.parquet(str(work / "out"), epoch_column="epoch"))


def go_on(pipeline: hf.Pipeline, work: Path) -> None:
    query = pipeline.start("moved", work / "ck", trigger="available-now", local_dir=work / "local")
    query.await_termination()
    assert query.exception is None


@pytest.mark.parametrize("provider", support.PROVIDERS)
def test_every_aggregate_goes_on_with_the_state_of(
    provider: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["word", "size"]
    add_input(tmp_path, files=3)
    functions = [support.spark_expression(a).alias(name) for name, a in AGGREGATES.items()]
    old = run_spark(
        stream(spark, tmp_path).groupBy(*keys).agg(*functions), tmp_path, provider=provider
    )
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    pipeline = program(spark, tmp_path, keys, AGGREGATES)
    # Small states make one run; this one is cut as a large one would be.
    monkeypatch.setattr(tables, "_SMALL_BYTES", 0)
    monkeypatch.setattr(tables, "_TASK_BYTES", 5000)
    adopted = adopt(pipeline, "moved", tmp_path / "ck", old)
    expected = batch(spark, tmp_path, keys, AGGREGATES)
    assert (adopted.epoch, adopted.rows, adopted.warnings) == (
        2,
        {"aggregate.groups": len(expected)},
        (),
    )
    assert_same(results(tmp_path, 2), expected)

    add_input(tmp_path, files=2)
    go_on(pipeline, tmp_path)
    expected = batch(spark, tmp_path, keys, AGGREGATES)
    assert_same(results(tmp_path, 2), expected)
    published = spark.read.parquet(str(tmp_path / "out"))
    assert {row.epoch for row in published.select("epoch").distinct().collect()} == {3, 4}
    newest = published.filter("epoch = 4").drop("epoch").toArrow().to_pylist()
    found = support.by_key(newest, 2)
    assert found
    assert_same(found, {key: expected[key] for key in found})
    # The old query can be taken up again: nothing of it was touched.
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before


COUNTS = {"n": hf.count(), "total": hf.sum("amount")}


@pytest.mark.parametrize("provider", support.PROVIDERS)
def test_a_batch_that_was_cut_off_by_a_kill_is_read_again(
    provider: str, spark: SparkSession, tmp_path: Path
) -> None:
    add_input(tmp_path, files=4)
    script = Path(__file__).with_name("adopt_killed_query.py")
    command = [sys.executable, str(script), str(tmp_path), provider, "2"]
    killed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "old/offsets/2").exists()
    assert not (tmp_path / "old/commits/2").exists()
    pipeline = program(spark, tmp_path, ["word"], COUNTS)
    adopted = adopt(pipeline, "moved", tmp_path / "ck", tmp_path / "old")
    assert adopted.epoch == 1
    assert "batch 2 was begun" in adopted.warnings[0]
    go_on(pipeline, tmp_path)
    assert_same(results(tmp_path), batch(spark, tmp_path, ["word"], COUNTS))


def test_an_adoption_that_failed_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    add_input(tmp_path, files=1)
    old = run_spark(
        stream(spark, tmp_path).groupBy("word").agg(F.count("*"), F.sum("amount")), tmp_path
    )
    pipeline = program(spark, tmp_path, ["word"], COUNTS)
    for point in ("adopt.claimed", "adopt.written", "checkpoint.after_pre_commit"):
        arm(point, "fail")
        with pytest.raises((OSError, hf.StorageError), match="failpoint"):
            adopt(pipeline, "moved", tmp_path / "ck", old)
        disarm(point)
    assert adopt(pipeline, "moved", tmp_path / "ck", old).epoch == 0
    add_input(tmp_path, files=1)
    go_on(pipeline, tmp_path)
    assert_same(results(tmp_path), batch(spark, tmp_path, ["word"], COUNTS))


def test_a_total_over_everything_goes_on_under_a_constant_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_input(tmp_path, files=2)
    old = run_spark(
        stream(spark, tmp_path).agg(F.count("*"), F.sum("amount")), tmp_path, mode="complete"
    )
    by_word = program(spark, tmp_path, ["word"], COUNTS)
    with pytest.raises(hf.InputError, match=r"one total over everything.*F.lit"):
        adopt(by_word, "moved", tmp_path / "ck", old)
    key = F.lit(0).alias("all")
    pipeline = program(spark, tmp_path, [key], COUNTS)
    assert adopt(pipeline, "moved", tmp_path / "ck", old).rows == {"aggregate.groups": 1}
    add_input(tmp_path, files=1)
    go_on(pipeline, tmp_path)
    assert_same(results(tmp_path), batch(spark, tmp_path, [key], COUNTS))


def test_keys_that_are_expressions_and_named_anew_go_by_their_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_input(tmp_path, files=2)
    keys = [F.col("word").alias("w"), (F.col("amount") % 3).alias("rest")]
    frame = stream(spark, tmp_path).groupBy(*keys).agg(F.count("*"), F.sum("amount"))
    format_2 = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    old = run_spark(frame, tmp_path, **{format_2: "2"})
    assert "stateUniqueIds" in (old / "commits/1").read_text()
    pipeline = program(spark, tmp_path, keys, COUNTS)
    adopt(pipeline, "moved", tmp_path / "ck", old)
    add_input(tmp_path, files=2)
    go_on(pipeline, tmp_path)
    assert_same(results(tmp_path, 2), batch(spark, tmp_path, keys, COUNTS))


def test_keys_of_the_same_names_go_by_name_and_sources_are_continued_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    both = [tmp_path / "left", tmp_path / "right"]
    for work in both:
        add_input(work, files=2, seed=1 + both.index(work))

    def union() -> DataFrame:
        return stream(spark, both[0]).union(stream(spark, both[1]))

    old = run_spark(union().groupBy("word", "size").agg(F.count("*"), F.sum("amount")), tmp_path)
    pipeline = hf.stream(union()).key_by("size", "word").aggregate(**COUNTS)
    one = hf.stream(stream(spark, both[0])).key_by("size", "word").aggregate(**COUNTS)
    with pytest.raises(hf.InputError, match="reads 2 sources, the program 1"):
        adopt(one, "moved", tmp_path / "ck", old)
    adopt(pipeline, "moved", tmp_path / "ck", old)
    add_input(both[1], files=1, seed=7)
    go_on(pipeline.write_to(hf.sinks.noop()), tmp_path)
    rows = spark.read.parquet(*(str(work / "in") for work in both))
    expected = rows.groupBy("size", "word").agg(F.count("*").alias("n"), F.sum("amount"))
    assert_same(results(tmp_path, 2), support.by_key(expected.toArrow().to_pylist(), 2))


def test_a_decimal_sum_that_spark_has_lost_is_not_adopted_as_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_input(tmp_path, files=1)
    most = F.lit("9" * 38).cast("decimal(38,0)")
    frame = stream(spark, tmp_path).withColumn("most", most)
    old = run_spark(frame.groupBy("word").agg(F.try_sum("most")), tmp_path)
    program = hf.stream(frame).key_by("word").aggregate(total=hf.sum("most"))
    with pytest.raises(hf.ProcessingError, match="a decimal sum in the old state has overflowed"):
        adopt(program, "moved", tmp_path / "ck", old)


def test_another_source_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    rows = rows.option("numPartitions", 1).option("startTimestamp", 0)
    frame = rows.load().select("value", (F.col("value") % 3).alias("rest"))
    old = run_spark(frame.groupBy("rest").agg(F.count("*"), F.max("value")), tmp_path)
    program = hf.stream(frame).key_by("rest").aggregate(n=hf.count(), most=hf.max("value"))
    adopted = adopt(program, "moved", tmp_path / "ck", old)
    query = program.write_to(hf.sinks.noop()).start(
        "moved", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local"
    )
    query.step()
    query.step()
    query.stop()
    seen = 10 * (adopted.epoch + 3)
    found = results(tmp_path)
    assert sum(n for n, _ in found.values()) == seen
    assert max(most for _, most in found.values()) == seen - 1
