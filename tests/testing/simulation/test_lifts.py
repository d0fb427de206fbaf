"""What programs make of rows is what Spark's plans make of them, for operators that are the same."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.operators.input_rows import TAG
from holdfast.testing.simulation.graphs import Alarms
from holdfast.testing.simulation.processing import Steps
from holdfast.testing.simulation.program import Program
from holdfast.testing.simulation.programs import PROGRAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def planned(spark: SparkSession) -> dict[tuple[str, str], Any]:
    """The operators of programs, as users write them."""
    import holdfast as hf

    def stream(program: str, source: int = 0) -> Any:
        from holdfast.spark.types import spark_schema
        from holdfast.testing import EpochSource

        rows = PROGRAMS[program]().rows(source, 0, Random(0))
        return hf.stream(EpochSource(spark, spark_schema(rows.schema)).df)

    def timed(program: str, lateness: float) -> Any:
        rows = stream(program).with_watermark("ts", 1, allowed_lateness=lateness)
        return rows.key_by("k")

    left, right = stream("join").with_watermark("ts", 1), stream("join", 1)
    right = right.with_watermark("at", 0.6, allowed_lateness=0.3, idle_timeout=2)
    totals = {"n": hf.count(), "total": hf.sum("x"), "most": hf.max("x")}
    return {
        ("aggregate", "totals"): stream("aggregate")
        .key_by("k")
        .aggregate(
            n=hf.count(),
            with_x=hf.count("x"),
            total=hf.sum("x"),
            least=hf.min("x"),
            most=hf.max("x"),
            mean=hf.avg("x"),
            words=hf.collect_set("word", limit=3),
            log=hf.collect_list("x", by="number", limit=12),
        ),
        ("process", "steps"): stream("process")
        .with_watermark("ts", 1.5, allowed_lateness=0.5)
        .key_by("k")
        .process(Steps()),
        ("window", "windows"): timed("window", 1.5)
        .window(hf.tumbling(2, offset=0.3))
        .aggregate(**totals),
        ("sliding", "windows"): timed("sliding", 1.5)
        .window(hf.sliding(3, 2), emit=hf.emit(early_every=0.9), output_mode="retract")
        .aggregate(**totals),
        ("session", "sessions"): timed("session", 0.9).window(hf.session(0.4)).aggregate(**totals),
        ("chain", "totals"): stream("chain").key_by("k").aggregate(**totals),
        ("sides", "alarms"): timed("sides", 0).process(Alarms()),
        ("derived", "first"): stream("derived")
        .with_watermark("ts", 1)
        .key_by("k", "x")
        .drop_duplicates(within_watermark=True),
        ("top", "best"): stream("top").key_by("k").top(3, by=("x", "desc")),
        ("join", "pairs"): left.join(right, on="k", between=(-0.4, 0.9), how="left"),
    }


def many_rows(program: Program, source: int) -> pa.Table:
    """Batches enough to have everything in them."""
    tables = [program.rows(source, i, Random(i)) for i in range(20)]
    # Of a table in several chunks Spark leaves rows out.
    return pa.concat_tables(tables).combine_chunks()


def test_operators_and_their_rows_are_those_of_sparks_plans(spark: SparkSession) -> None:
    for (name, stage), result in planned(spark).items():
        program = PROGRAMS[name]()
        operator, plan = program.stage(stage).operator, result.plan(stage)
        assert operator.describe() == plan.operator.describe()
        assert operator.describe_states() == plan.operator.describe_states()
        assert operator.tables == plan.operator.tables
        for number, port in enumerate(program.stage(stage).ports):
            assert port.name == plan.ports[number]
            source = port.feeds[0].source
            assert source is not None
            rows = many_rows(program, source)
            frame = spark.createDataFrame(rows).coalesce(1)
            assert_alike(
                program.lift(stage, number, rows),
                plan.lift(frame, first=False, port=number).toArrow(),
                operator.input_schema,
            )


def assert_alike(ours: pa.Table, sparks: pa.Table, wanted: pa.Schema) -> None:
    assert ours.column_names == sparks.column_names == wanted.names
    for name, kind in zip(wanted.names[1:], wanted.types[1:], strict=True):
        assert ours.schema.field(name).type == kind
        assert sparks.schema.field(name).type == kind
    assert ours.schema.types[0] == sparks.schema.types[0] == pa.int64()
    if TAG in ours.column_names:
        # A batch that was made here may lie in several partitions.
        assert ours.column(TAG).to_pylist() == sorted(ours.column(TAG).to_pylist())
    assert ours.to_pylist() == sparks.to_pylist()
