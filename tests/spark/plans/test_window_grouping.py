"""Windows, sessions and top-n are the same whether rows are grouped before they are sent or not."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.choices import SortOrder
from holdfast.operators.window.spec import WindowSpec
from holdfast.spark.jvm.grouping import preaggregated
from holdfast.spark.plans.base import OperatorPlan
from holdfast.state.schema import HASH
from tests.operators.epochs import EpochResult, Epochs

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long, ts timestamp"
LENGTH_S = 40
Rows = list[tuple[str | None, int, datetime.datetime | None]]


def some_rows(seed: int, first_s: int) -> Rows:
    """Rows of a stretch of time, some at the same time, and a few from long before."""
    chance = random.Random(seed)
    zero = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    rows: Rows = [("a", 1, None), ("b", 2, zero.replace(year=1000))]
    for _ in range(200):
        behind = chance.choice([0, 0, 0, 1, 3]) * chance.uniform(0, LENGTH_S)
        at = zero + datetime.timedelta(seconds=first_s + chance.uniform(0, LENGTH_S) - behind)
        if chance.random() < 0.3:
            at = at.replace(microsecond=0)
        rows.append((chance.choice([None, *"abcdefgh"]), chance.randint(-9, 9), at))
    return rows


@pytest.mark.parametrize(
    "window", [hf.session("2 s"), hf.session("7 s"), hf.tumbling("5 s"), hf.sliding("6 s", "2 s")]
)
@pytest.mark.parametrize("lateness", ["0 s", "3 s"])
def test_grouped_or_not(spark: SparkSession, window: WindowSpec, lateness: str) -> None:
    empty = spark.readStream.format("rate").load().selectExpr("'' k", "value v", "timestamp ts")
    stream = hf.stream(empty).with_watermark("ts", "1 s", allowed_lateness=lateness)
    windows = stream.key_by("k").window(window)
    plan = windows.aggregate(n=hf.count(), v=hf.sum("v")).plan()
    late, fewer = compare(spark, plan)
    assert late > 10
    assert fewer > 10


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("timed", [True, False], ids=["by time", "by value"])
def test_first_rows_or_all(spark: SparkSession, timed: bool, n: int) -> None:
    empty = spark.readStream.format("rate").load().selectExpr("'' k", "value v", "timestamp ts")
    rows = hf.stream(empty)
    if timed:
        rows = rows.with_watermark("ts", "1 s", allowed_lateness="3 s")
    by: list[str | tuple[str, SortOrder]] = (
        [("ts", "desc"), "v"] if timed else ["v", ("ts", "desc")]
    )
    plan = rows.key_by("k").top(n, by=by).plan()
    assert plan.may_preaggregate
    late, fewer = compare(spark, plan)
    assert (late > 10) == timed
    assert fewer > 10


def test_first_rows_of_what_was_joined_and_grouped_before(spark: SparkSession) -> None:
    """What is below the sort by one number is shuffled and sorted as ever."""
    empty = spark.readStream.format("rate").load().selectExpr("'' k", "value v", "timestamp ts")
    rows = hf.stream(empty).with_watermark("ts", "1 s", allowed_lateness="3 s")
    plan = rows.key_by("k").top(1, by=[("ts", "desc"), "v"]).plan()
    names = spark.createDataFrame([(c, c.upper()) for c in "abcd"], "k string, name string")

    def joined(frame: DataFrame) -> DataFrame:
        for hint in ("broadcast", "merge", "shuffle_hash"):
            frame = frame.join(names.hint(hint), "k", "left").drop("name")
        return frame.groupBy("k", "ts").agg(F.max("v").alias("v")).select("k", "v", "ts")

    late, fewer = compare(spark, plan, joined)
    assert late > 10
    assert fewer > 10


def test_rows_are_not_left_out_where_they_would_be_missed(spark: SparkSession) -> None:
    empty = spark.readStream.format("rate").load().selectExpr("'' k", "value v", "timestamp ts")
    keyed = hf.stream(empty).with_watermark("ts", "1 s").key_by("k", "ts")
    by_value = keyed.top(1, by="v")
    until = keyed.top(1, by=[("ts", "desc")], until="ts", output_mode="append")
    many = keyed.top(1000, by=[("ts", "desc")])
    assert not any(stream.plan().may_preaggregate for stream in (by_value, until, many))


def compare(
    spark: SparkSession,
    plan: OperatorPlan,
    before: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> tuple[int, int]:
    """Run epochs both ways; how many rows were late, and how many fewer were sent."""
    lifted, grouped = Epochs(plan.operator), Epochs(plan.operator)
    watermark: int | None = None
    late = fewer = 0
    for number in range(4):
        rows = some_rows(number, number * LENGTH_S)
        frame = before(spark.createDataFrame(rows, SCHEMA).repartition(2))
        clock = lifted.clock(number, watermark)
        plan.at(clock)
        made = preaggregated(spark, plan.preaggregate(frame))
        each, groups = (
            _as_input(table.toArrow(), plan.operator.input_schema)
            for table in (plan.lift(frame, first=False), made.frame)
        )
        fewer += each.num_rows - groups.num_rows
        one, other = lifted.run(each, clock), grouped.run(groups, clock)
        assert _words(one) == _words(other)
        late += one.late_rows + sum(side.num_rows for side in one.sides.values())
        greatest = max(at.timestamp() for _, _, at in rows if at is not None)
        watermark = max(watermark or 0, int(greatest * 1000) - 1000)
    for table in (schema.table for schema in plan.operator.tables if schema.timed is None):
        assert lifted.rows(table) == grouped.rows(table)
    return late, fewer


def _as_input(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """As tasks get it: Spark's hash is signed."""
    hashes = table.column(HASH).combine_chunks().view(pa.uint64())
    return table.set_column(0, schema.field(0), hashes).cast(schema)


def _words(result: EpochResult) -> list[Any]:
    sides = {name: sorted(map(repr, side.to_pylist())) for name, side in result.sides.items()}
    return [sorted(map(repr, result.rows)), sides, result.late_rows, dict(result.greatest_ms)]
