"""Rows become buffer rows: what is refused, and what the plans look like."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

import holdfast.aggregates as hf
from holdfast.errors import ConfigurationError, InputError
from holdfast.spark.jvm.grouping import preaggregated
from holdfast.spark.plans.lift import AggregatePlan, plan_aggregate
from holdfast.spark.types import arrow_type, spark_schema, spark_type
from holdfast.state.schema import HASH

pytestmark = pytest.mark.spark

COUNT = {"n": hf.count()}


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


@pytest.fixture(scope="module")
def events(own: SparkSession) -> DataFrame:
    return own.createDataFrame(
        [("a", 1, 1.0, {"x": 1}, (7,)), ("b", 2, -0.0, None, (8,)), ("a", 3, 0.0, None, (9,))],
        "word string, amount int, price double, tags map<string,int>, place struct<id:int>",
    )


class TestRefusals:
    def test_an_unknown_column_is_named_with_those_there_are(self, events: DataFrame) -> None:
        with pytest.raises(InputError, match=r"names column 'wrd'.*word, amount, price"):
            plan_aggregate(events, "op", ["wrd"], COUNT)
        with pytest.raises(InputError, match="aggregate 'total' names column 'x'"):
            plan_aggregate(events, "op", ["word"], {"total": hf.sum("x")})

    def test_a_key_of_an_unsupported_type(self, events: DataFrame) -> None:
        for key in ("tags", F.array("word").alias("words"), F.struct("word", "tags").alias("s")):
            with pytest.raises(InputError, match=r"column '(tags|words|s\.tags)' of type"):
                plan_aggregate(events, "op", [key], COUNT)
        twice = F.struct("word", F.lit(1).alias("Word")).alias("s")
        with pytest.raises(InputError, match="struct 's' can't be a key: it has two fields named"):
            plan_aggregate(events, "op", [twice], COUNT)

    def test_a_key_with_a_collation(self, own: SparkSession) -> None:
        frame = own.sql("SELECT 'a' COLLATE UNICODE_CI AS word")
        with pytest.raises(InputError, match="'word' has the collation UNICODE_CI"):
            plan_aggregate(frame, "op", ["word"], COUNT)

    def test_an_aggregate_over_an_unsupported_type(self, events: DataFrame) -> None:
        with pytest.raises(InputError, match="column 'tags' of type map<string,int>"):
            plan_aggregate(events, "op", ["word"], {"m": hf.max("tags")})
        with pytest.raises(InputError, match="'s': sum can't take column 'word' of type string"):
            plan_aggregate(events, "op", ["word"], {"s": hf.sum("word")})

    def test_a_key_expression_without_a_name(self, events: DataFrame) -> None:
        with pytest.raises(InputError, match=r"key '\(amount \+ 1\)' is an expression"):
            plan_aggregate(events, "op", [F.col("amount") + 1], COUNT)

    @pytest.mark.parametrize(
        ("keys", "aggregates"),
        [
            (["word", "word"], COUNT),
            (["word"], {"word": hf.count()}),
            (["word"], {"N": hf.count(), "n": hf.count()}),
        ],
    )
    def test_two_columns_of_one_name(
        self, events: DataFrame, keys: list[str], aggregates: dict[str, hf.Aggregate]
    ) -> None:
        with pytest.raises(InputError, match="two columns of the result would be named"):
            plan_aggregate(events, "op", keys, aggregates)

    def test_a_column_tied_to_a_dataframe(self, events: DataFrame) -> None:
        with pytest.raises(InputError, match=r"tied to a DataFrame.*F.col"):
            plan_aggregate(events, "op", [events["word"]], COUNT)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: F.sum("amount"),
            lambda: F.explode(F.array("amount")),
            lambda: F.row_number().over(Window.orderBy("amount")),
        ],
        ids=["aggregate", "generator", "window"],
    )
    def test_an_expression_over_several_rows(
        self, events: DataFrame, make: Callable[[], Column]
    ) -> None:
        with pytest.raises(InputError, match="not computed from one row alone"):
            plan_aggregate(events, "op", ["word"], {"x": hf.max(make())})

    def test_a_key_that_may_differ_when_an_epoch_is_repeated(self, events: DataFrame) -> None:
        with pytest.raises(InputError, match="may differ"):
            plan_aggregate(events, "op", [F.rand().alias("r")], COUNT)

    def test_nothing_to_do(self, events: DataFrame) -> None:
        with pytest.raises(InputError, match="needs a key"):
            plan_aggregate(events, "op", [], COUNT)
        with pytest.raises(InputError, match="no aggregate"):
            plan_aggregate(events, "op", ["word"], {})

    def test_things_that_are_no_aggregates_or_columns(self, events: DataFrame) -> None:
        foreign: object = F.sum("amount")
        with pytest.raises(InputError, match=r"'x' is .*, which is no aggregate"):
            plan_aggregate(events, "op", ["word"], {"x": foreign})  # type: ignore[dict-item]
        with pytest.raises(InputError, match="'x' was given 7, which is no column"):
            plan_aggregate(events, "op", ["word"], {"x": hf.sum(7)})

    def test_a_sketch_without_its_library(
        self, events: DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "datasketches", None)
        with pytest.raises(ConfigurationError, match="pip install"):
            plan_aggregate(events, "op", ["word"], {"d": hf.approx_count_distinct("amount")})


class TestLifting:
    def test_keys_may_be_fields_expressions_and_odd_names(self, own: SparkSession) -> None:
        frame = own.createDataFrame([("a", (7,))], "`odd.name` string, place struct<id:int>")
        keys: list[str | Column] = [
            "odd.name",
            "place.id",
            F.upper(F.col("`odd.name`")).alias("loud word"),
        ]
        plan = plan_aggregate(frame, "op", keys, {"n": hf.count("place")})
        assert plan.operator.tables[0].key_names == ["odd.name", "id", "loud word"]
        assert list(plan.lift(frame).first() or ())[1:] == ["a", 7, "A", 1]

    def test_a_key_may_have_the_name_of_a_column_that_it_hides(self, events: DataFrame) -> None:
        keys = [F.upper("word").alias("word"), (F.col("amount") > 1).alias("amount")]
        wanted = {"least": hf.min("word"), "total": hf.sum("amount")}
        plan = plan_aggregate(events, "op", keys, wanted)
        rows = [("A", False, "a", 1), ("A", True, "a", 3), ("B", True, "b", 2)]
        for frame in (
            plan.lift(events),
            preaggregated(events.sparkSession, plan.preaggregate(events)).frame,
        ):
            assert sorted(tuple(row)[1:] for row in frame.collect()) == rows

    def test_a_stream_can_be_planned_and_its_batches_lifted(self, own: SparkSession) -> None:
        stream = own.readStream.format("rate").load()
        key = F.date_trunc("hour", "timestamp").alias("hour")
        plan = plan_aggregate(stream, "op", [key], {"last": hf.max("value")})
        batch = own.sql("SELECT TIMESTAMP '2024-01-01 12:34:56' AS timestamp, 7L AS value")
        assert plan.lift(batch).toArrow().schema.types[1:] == plan.operator.input_schema.types[1:]

    def test_it_is_one_projection(self, events: DataFrame) -> None:
        plan = plan_aggregate(events, "op", ["word"], {"n": hf.count(), "v": hf.variance("price")})
        tree = plan.lift(events)._jdf.queryExecution().analyzed().toString()
        assert tree.count("Project") == 1
        assert plan.lift(events).columns == [HASH, *plan.operator.input_schema.names[1:]]

    def test_zeros_and_nans_of_keys_are_one_each(self, own: SparkSession) -> None:
        doubles = pa.array([0.0, -0.0, float("nan"), -float("nan")])
        for kind in (pa.float64(), pa.float32()):
            frame = own.createDataFrame(pa.table({"x": doubles.cast(kind)}))
            lifted = plan_aggregate(frame, "op", ["x"], COUNT).lift(frame).toArrow()
            assert len(set(lifted.column(HASH).to_pylist())) == 2
            bits = lifted.column("x").combine_chunks().view(pa.binary(kind.bit_width // 8))
            assert len(set(bits.to_pylist())) == 2

    def test_a_weak_hash_is_shared_by_different_keys(self, own: SparkSession) -> None:
        frame = own.range(100)
        plan = plan_aggregate(frame, "op", ["id"], COUNT, weak_hash_bits=2)
        hashes = plan.lift(frame).select(HASH).distinct().toArrow().column(0).to_numpy()
        assert sorted(hashes.view("uint64").tolist()) == [0, 2**62, 2**63, 3 * 2**62]

    def test_a_sketch_cannot_be_lifted(self, events: DataFrame) -> None:
        plan = plan_aggregate(events, "op", ["word"], {"d": hf.approx_count_distinct("amount")})
        assert plan.must_preaggregate
        with pytest.raises(ValueError, match="pre-aggregation"):
            plan.lift(events)


EVERY = {
    "n": hf.count(),
    "total": hf.sum("amount"),
    "mean": hf.avg("price"),
    "least": hf.min("word"),
    "newest": hf.last("amount", by="price"),
    "words": hf.collect_set("word", limit=3),
    "list": hf.collect_list("word", by="amount", limit=3),
    "distinct": hf.approx_count_distinct("price"),
}


@pytest.fixture(scope="module")
def skewed(own: SparkSession) -> DataFrame:
    """40,000 rows in 4 partitions; half of them have key 0."""
    ids = own.range(0, 40_000, 1, 4)
    key = F.when(F.col("id") % 2 == 0, 0).otherwise(F.col("id") % 1000)
    return ids.select(
        key.alias("key"),
        F.concat(F.lit("w"), F.col("id") % 7).alias("word"),
        F.col("id").cast("int").alias("amount"),
        (F.col("id") % 100).cast("double").alias("price"),
    )


class TestPreaggregation:
    @pytest.mark.parametrize("chosen", [["n", "total"], ["n", "least", "newest"], list(EVERY)])
    def test_groups_are_those_of_each_partition_without_an_exchange(
        self, skewed: DataFrame, chosen: list[str]
    ) -> None:
        plan = plan_aggregate(skewed, "op", ["key"], {name: EVERY[name] for name in chosen})
        made = preaggregated(skewed.sparkSession, plan.preaggregate(skewed))
        assert "Exchange" not in made.frame._jdf.queryExecution().executedPlan().toString()
        assert "Shuffle" not in made.frame._jdf.queryExecution().toRdd().toDebugString()
        parts = made.frame.groupBy(F.spark_partition_id(), "key").count().toArrow()
        # 501 keys in each of 4 partitions, each once.
        assert parts.num_rows == 4 * 501
        assert set(parts.column("count").to_pylist()) == {1}
        totals = made.frame.groupBy("key").agg(F.sum("`n.count`").alias("n"))
        assert {r.key: r.n for r in totals.collect()} == {
            r.key: r["count"] for r in skewed.groupBy("key").count().collect()
        }

    def test_types_are_those_of_lifted_rows(self, events: DataFrame) -> None:
        aggregates = {name: a for name, a in EVERY.items() if name != "distinct"}
        plan = plan_aggregate(events, "op", ["word"], aggregates)
        lifted, grouped = (
            plan.lift(events).toArrow(),
            preaggregated(events.sparkSession, plan.preaggregate(events)).frame.toArrow(),
        )
        assert lifted.schema.names == grouped.schema.names == plan.operator.input_schema.names
        assert lifted.schema.types == grouped.schema.types
        assert lifted.schema.types[1:] == plan.operator.input_schema.types[1:]

    def test_it_knows_how_many_rows_it_grouped(self, skewed: DataFrame) -> None:
        plan = plan_aggregate(skewed, "op", ["key"], COUNT)
        made = preaggregated(skewed.sparkSession, plan.preaggregate(skewed.filter("key = 0")))
        assert made.frame.count() == 4
        assert made.source_rows() == 20_000

    def test_the_users_own_joins_keep_their_exchanges(self, skewed: DataFrame) -> None:
        session = skewed.sparkSession
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        try:
            names = session.range(1000).select(F.col("id").alias("key"), F.lit(1).alias("one"))
            joined = skewed.join(names, "key")
            plan = plan_aggregate(joined, "op", ["key"], COUNT)
            counts = preaggregated(joined.sparkSession, plan.preaggregate(joined)).frame.toArrow()
        finally:
            session.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        assert sum(counts.column("n.count").to_pylist()) == 40_000
        assert counts.num_rows == 501  # the join has brought equal keys together

    def test_an_empty_batch_has_no_groups(self, own: SparkSession) -> None:
        empty = own.createDataFrame([], "word string")
        plan: AggregatePlan = plan_aggregate(empty, "op", ["word"], COUNT)
        made = preaggregated(empty.sparkSession, plan.preaggregate(empty))
        assert made.frame.count() == 0
        assert made.source_rows() == 0


def test_spark_and_arrow_types_correspond() -> None:
    ddl = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(20,3), "
        "i string, j binary, k date, l timestamp, m timestamp_ntz"
    )
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    arrow = pa.schema([(f.name, arrow_type(f.name, f.dataType)) for f in schema.fields])
    assert spark_schema(arrow) == schema
    with pytest.raises(InputError, match="no Spark type"):
        spark_type(pa.month_day_nano_interval())
