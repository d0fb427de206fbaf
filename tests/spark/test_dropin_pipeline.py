"""The drop-in in a pipeline: batch DataFrames, starts that are refused, and errors on the way."""

# ruff: noqa: N803 - the names are PySpark's

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark import errors as spark_errors
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import holdfast as hf
from holdfast.errors import ConfigurationError, InputError, ProcessingError
from holdfast.spark.query import Query
from tests.spark import dropin_processors as processors
from tests.spark.dropin_support import PROTOBUF
from tests.spark.support import write_epoch

pytestmark = pytest.mark.spark

ROWS = [("a", 1), ("b", 2), ("a", 3), (None, 7), ("b", 5)]


@pytest.fixture(scope="module", autouse=True)
def _by_value() -> Iterator[None]:
    """Spark's workers don't have this folder on their path."""
    import sys

    modules = (processors, sys.modules[__name__])
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "id string, v long").repartition(3)


def transform(grouped: Any, processor: Any, **given: Any) -> Any:
    name = "transformWithStateInPandas" if processor.pandas else "transformWithState"
    arguments = {"outputStructType": processor.output, "outputMode": "Append", "timeMode": "None"}
    return getattr(grouped, name)(statefulProcessor=processor, **(arguments | given))


@pytest.mark.slow
@pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
@pytest.mark.parametrize("kind", [processors.ThreeKinds, processors.Prompt, processors.Seeded])
def test_a_batch_equals_sparks(
    spark: SparkSession, kind: type[Any], pandas: bool, require: Callable[[str, str], None]
) -> None:
    require("google", PROTOBUF)
    df = frame(spark).coalesce(1).orderBy("v")
    processor = kind()
    processor.pandas = pandas
    given: dict[str, Any] = {}
    if kind is processors.Prompt:
        given["timeMode"] = "ProcessingTime"
    if kind is processors.Seeded:
        seeds = spark.createDataFrame(
            [("a", 10.0, "ten"), ("z", 1.0, "one")], "id string, amount double, note string"
        )
        given["initialState"] = seeds.groupBy("id")
    theirs = transform(df.groupBy("id"), processor, **given)
    ours = transform(hf.stream(df).groupBy("id"), processor, **given)
    assert ours.schema == theirs.schema
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))


class Counted(StatefulProcessor):
    """Counts rows; a key that is bad is more than it can take."""

    output = "id string, n long"
    pandas = False

    def __init__(self, fields: str = "n long", kind: str = "value") -> None:
        self.fields, self.kind = fields, kind

    def init(self, handle: Any) -> None:
        if self.kind == "value":
            self.n = handle.getValueState("n", self.fields)
        else:
            handle.getListState("n", self.fields)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        values = [row.v for row in rows]
        if key[0] == "bad":
            raise ValueError(f"can't stand {values}")
        (n,) = self.n.get() or (0,)
        self.n.update((n + len(values),))
        yield Row(id=key[0], n=n + len(values))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    rows = spark.readStream.schema("id string, v long, ts timestamp")
    return rows.option("maxFilesPerTrigger", 1).parquet(str(folder))


def put(folder: Path, number: int, *rows: tuple[str, int]) -> None:
    stamp = pd.Timestamp("2024-01-01", tz="UTC").to_pydatetime()
    dicts = [{"id": name, "v": v, "ts": stamp} for name, v in rows]
    schema = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    write_epoch(folder, number, pa.Table.from_pylist(dicts, schema))


def started(df: DataFrame, work: Path, processor: Any, sink: Any) -> Query:
    pipeline = transform(hf.stream(df).groupBy("id"), processor).write_to(sink)
    query: Query = pipeline.start("counts", work / "ck", trigger="available-now")
    return query


@pytest.mark.slow
def test_a_restart_continues_and_refuses_what_it_cannot_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in", 0, ("a", 1), ("b", 2), ("a", 3))
    df = stream_of(spark, tmp_path / "in")
    started(df, tmp_path, Counted(), hf.sinks.memory("first")).await_termination()
    with pytest.raises(ConfigurationError, match=r"state 'n' was a value .* is now a list"):
        started(df, tmp_path, Counted(kind="list"), hf.sinks.memory("first"))
    with pytest.raises(ConfigurationError, match=r"'n' was struct<n:bigint> .* now struct<n:int>"):
        started(df, tmp_path, Counted("n int"), hf.sinks.memory("first"))
    put(tmp_path / "in", 1, ("a", 4), ("c", 5))
    sink = hf.sinks.memory("first")
    started(df, tmp_path, Counted(), sink).await_termination()
    found = {(row["id"], row["n"]) for row in sink.table().to_pylist()}
    assert found >= {("a", 3), ("c", 1)}


@pytest.mark.slow
def test_an_error_of_the_processor_reaches_who_waits(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", 0, ("a", 1), ("bad", 2))
    df = stream_of(spark, tmp_path / "in")
    query = started(df, tmp_path, Counted(), hf.sinks.noop())
    with pytest.raises(
        ProcessingError, match=r"Counted\.handleInputRows raised ValueError"
    ) as caught:
        query.await_termination()
    assert "id='bad'" in str(caught.value)
    assert "can't stand [2]" in str(caught.value)


def test_init_runs_once_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", 0, ("a", 1))
    # The driver works on a copy: what it does is seen only in what it leaves behind.
    marks = tmp_path / "marks"
    marks.mkdir()

    class Marked(Counted):
        def init(self, handle: Any) -> None:
            super().init(handle)
            (marks / str(len(list(marks.iterdir())))).touch()

    transformed = transform(hf.stream(stream_of(spark, tmp_path / "in")).groupBy("id"), Marked())
    transformed.plan()
    transformed.plan()
    assert len(list(marks.iterdir())) == 1


def test_arguments_are_checked_where_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", 0, ("a", 1))
    df = stream_of(spark, tmp_path / "in")
    grouped = hf.stream(df).groupBy("id")
    late = hf.stream(df.withWatermark("ts", "1 second")).groupBy("id")

    def condition(grouped: Any, **given: Any) -> str | None:
        with pytest.raises(spark_errors.PySparkException) as caught:
            transform(grouped, Counted(), **given)
        return caught.value.getCondition()

    assert condition(grouped, timeMode="Bogus") == "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE"
    assert condition(grouped, outputMode="bogus") == "STREAMING_OUTPUT_MODE.INVALID"
    assert (
        condition(grouped, outputMode="Complete") == "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"
    )
    assert condition(late, eventTimeColumnName="no") == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert (
        condition(grouped, eventTimeColumnName="n")
        == "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK"
    )
    with pytest.raises(InputError, match="names 'n', which is bigint and no timestamp"):
        transform(late, Counted(), eventTimeColumnName="n")
    with pytest.raises(InputError, match="is no StatefulProcessor"):
        grouped.transformWithState(cast(Any, object()), "n long", "Append", "None")
    with pytest.raises(InputError, match="names column 'nope'"):
        transform(hf.stream(df).groupBy("nope"), Counted())
    with pytest.raises(InputError, match=r"Counted needs keys, and groupBy\(\) names no column"):
        transform(hf.stream(df).groupBy(), Counted())
    with pytest.raises(InputError, match=r"field 'n'.*no type 'strange'"):
        transform(grouped, Counted(), outputStructType="n strange")
    seeds = spark.createDataFrame([(1, 2)], "id int, n long")
    with pytest.raises(InputError, match="grouped by id int, the stream by id string"):
        transform(grouped, Counted(), initialState=seeds.groupBy("id"))
    with pytest.raises(InputError, match="no grouped batch DataFrame"):
        transform(grouped, Counted(), initialState=df.groupBy("id"))


def test_fields_that_are_never_null_are_refused_where_spark_refuses_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Strict(Counted):
        def init(self, handle: Any) -> None:
            super().init(handle)
            handle.getValueState("strict", "n long NOT NULL")

    put(tmp_path / "in", 0, ("a", 1))
    session = spark.newSession()
    assert transform(hf.stream(stream_of(session, tmp_path / "in")).groupBy("id"), Strict())
    session.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")
    with pytest.raises(spark_errors.PySparkRuntimeError) as caught:
        transform(hf.stream(stream_of(session, tmp_path / "in")).groupBy("id"), Strict())
    assert caught.value.getCondition() == "TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE"
    assert "strict" in str(caught.value)


def test_the_watermark_of_the_dataframe_is_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", 0, ("a", 1))
    df = stream_of(spark, tmp_path / "in").withWatermark("ts", "5 seconds")
    transformed = transform(hf.stream(df).groupBy("id"), Counted(), timeMode="EventTime")
    assert [(s.watermark.column, s.watermark.delay_ms) for s in transformed.inputs] == [
        ("ts", 5000)
    ]
    assert transformed.plan().operator.needs_ticks
