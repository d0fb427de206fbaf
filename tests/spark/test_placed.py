"""Jobs that are told where to run; the lab shows that Spark obeys, this that nothing is changed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from holdfast.errors import ConfigurationError
from holdfast.spark.executors import REQUIRED, check_executors, send_holdfast
from holdfast.spark.hosts import is_cluster
from holdfast.spark.placed import Placer, task_host


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


def test_an_index_runs_on_each_host(spark: SparkSession) -> None:
    indexes = Placer(spark.sparkContext).indexes(["h1", None, "h2"])
    assert indexes.map(lambda i: i * 10).collect() == [0, 10, 20]


def test_executors_get_this_holdfast_once(spark: SparkSession) -> None:
    send_holdfast(spark.sparkContext)
    send_holdfast(spark.sparkContext)
    with zipfile.ZipFile(SparkFiles.get("holdfast.zip")) as archive:
        names = archive.namelist()
    assert "holdfast/__init__.py" in names
    assert "holdfast/spark/task.py" in names


def test_executors_are_asked_for_packages(spark: SparkSession) -> None:
    check_executors(spark.sparkContext, ["h1", "h2"])
    wanted = {**REQUIRED, "pyarrow": (9999,), "no-such-package": (1, 2)}
    with pytest.raises(ConfigurationError) as caught:
        check_executors(spark.sparkContext, ["h1"], wanted)
    assert "pyarrow is " in str(caught.value)
    assert "no-such-package is missing" in str(caught.value)
    assert "-m pip install 'no-such-package>=1.2' 'pyarrow>=9999'" in str(caught.value)


def test_a_local_session_is_no_cluster(spark: SparkSession) -> None:
    assert not is_cluster(spark.sparkContext)
