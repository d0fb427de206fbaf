"""Jobs that are told where to run; the lab shows that Spark obeys, this that nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from holdfast.spark.jvm.placed import Placer, task_host


def test_a_placed_frame_has_the_same_rows_in_the_same_partitions(spark: SparkSession) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("id", "cast(id as string) as word")
    placed = Placer(spark.sparkContext).frame(frame, ["nowhere", None, "h1", None])
    assert placed.schema == frame.schema

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [str(batch.column("id").to_pylist())]
            yield pa.RecordBatch.from_pydict({"rows": rows, "host": [task_host()]})

    found = placed.mapInArrow(seen, "rows string, host string").collect()
    expected = frame.mapInArrow(seen, "rows string, host string").collect()
    assert [row.rows for row in found] == [row.rows for row in expected]
    # A task knows Spark's name for its host; without a placed stage before it, it doesn't.
    assert all(row.host for row in found)
    assert not any(row.host for row in expected)


def test_a_thread_that_spark_has_not_met_can_place_a_frame(spark: SparkSession) -> None:
    found = []

    def place() -> None:
        frame = spark.range(0, 10, 1, 2)
        found.append(Placer(spark.sparkContext).frame(frame, [None, None]).count())

    thread = InheritableThread(target=place)
    thread.start()
    thread.join()
    assert found == [10]


def test_an_index_runs_on_each_host(spark: SparkSession) -> None:
    indexes = Placer(spark.sparkContext).indexes(["h1", None, "h2"])
    assert indexes.map(lambda i: i * 10).collect() == [0, 10, 20]
