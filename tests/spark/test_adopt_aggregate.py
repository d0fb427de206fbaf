"""An aggregation of Spark's, adopted, goes on as if it had been Holdfast's from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.spark.adopt import adopt
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
    return kept.write_to(hf.sinks.parquet(str(work / "out")))


def go_on(pipeline: hf.Pipeline, work: Path) -> None:
    query = pipeline.start("moved", work / "ck", trigger="available-now", local_dir=work / "local")
    query.await_termination()
    assert query.exception is None


@pytest.mark.parametrize("provider", support.PROVIDERS)
def test_every_aggregate_goes_on_with_the_state_of(
    provider: str, spark: SparkSession, tmp_path: Path
) -> None:
    keys = ["word", "size"]
    add_input(tmp_path, files=3)
    functions = [support.spark_expression(a).alias(name) for name, a in AGGREGATES.items()]
    old = run_spark(
        stream(spark, tmp_path).groupBy(*keys).agg(*functions), tmp_path, provider=provider
    )
    pipeline = program(spark, tmp_path, keys, AGGREGATES)
    adopted = adopt(pipeline, "moved", tmp_path / "ck", old)
    expected = batch(spark, tmp_path, keys, AGGREGATES)
    assert (adopted.epoch, adopted.rows, adopted.warnings) == (
        2,
        {"aggregate.groups": len(expected)},
        (),
    )
    assert_same(results(tmp_path, 2), expected)
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}

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
