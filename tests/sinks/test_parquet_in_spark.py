from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.checkpoint.entry import StagedOutput
from holdfast.sinks import SinkContext, parquet
from holdfast.testing import SinkTests

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if (running := SparkSession.getActiveSession()) is not None:
        yield running  # somebody else's to stop
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .getOrCreate()
    )
    yield session
    session.stop()


def test_spark_reads_published_epochs_and_nothing_else(
    spark: SparkSession,
    tmp_path: Path,
    make_context: Callable[..., SinkContext],
    stage: Callable[..., StagedOutput],
) -> None:
    for column in (None, "epoch"):
        out = tmp_path / str(column)
        sink = parquet(out, epoch_column=column)
        sink.open(make_context())
        outputs = [stage(sink, e, p, ("kelp", e * 10 + p)) for e in (0, 11) for p in (0, 1)]
        sink.commit(outputs, maybe_repeated=False)
        stage(sink, 12, 0, ("not yet", 0))
        rows = spark.read.parquet(str(out))
        assert rows.columns == ["word", "n", *([] if column is None else [column])]
        assert sorted(row.n for row in rows.collect()) == [0, 1, 110, 111]


def test_spark_reads_every_primitive_type_as_it_was(
    spark: SparkSession, tmp_path: Path, make_context: Callable[..., SinkContext]
) -> None:
    table = SinkTests().wide_table()
    sink = parquet(tmp_path / "out")
    sink.open(make_context(schema=table.schema))
    writer = sink.stager().open(0, 0, "wide", table.schema)
    writer.write(table)
    output = writer.close()
    assert output is not None
    sink.commit([output], maybe_repeated=False)
    read = spark.read.parquet(str(tmp_path / "out"))
    schema = (
        "flag boolean, byte tinyint, long bigint, double double, price decimal(10,2), "
        "text string, raw binary, day date, at timestamp, wall timestamp_ntz"
    )
    expected = spark.createDataFrame(table, schema)
    assert read.dtypes == expected.dtypes
    assert read.exceptAll(expected).count() == expected.exceptAll(read).count() == 0
