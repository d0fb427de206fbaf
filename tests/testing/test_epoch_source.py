from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.errors import ConfigurationError, InputError
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark
SCHEMA = "word string, n long"
Epochs = dict[int, list[tuple[Any, ...]]]


def epochs_of(source: EpochSource, checkpoint: Path) -> Epochs:
    """What a query on this checkpoint location sees until there is no more."""
    seen: Epochs = {}

    def keep(batch: DataFrame, epoch: int) -> None:
        seen[epoch] = sorted(tuple(row) for row in batch.collect())

    query = (
        source.df.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return seen


def test_each_add_is_exactly_one_epoch(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA)
    # Twelve, so that numbers of one and two digits show whether the order is kept.
    added = {n: [("kelp", n)] * (n % 3) for n in range(12)}
    assert [source.add(rows) for rows in added.values()] == list(range(12))
    assert len(source) == 12
    assert epochs_of(source, tmp_path / "ck") == added


def test_epochs_added_while_a_query_runs_come_after_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("kelp", 0)])
    seen: Epochs = {}

    def add_more(batch: DataFrame, epoch: int) -> None:
        seen[epoch] = [tuple(row) for row in batch.collect()]
        if epoch < 3:
            source.add([("kelp", epoch + 1)])

    query = (
        source.df.writeStream.foreachBatch(add_more)
        .option("checkpointLocation", str(tmp_path / "ck"))
        .start()
    )
    try:
        while len(seen) < 4:
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == {n: [("kelp", n)] for n in range(4)}


def test_a_copied_checkpoint_replays_the_same_epochs(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("kelp", 0)])
    assert epochs_of(source, tmp_path / "ck") == {0: [("kelp", 0)]}
    shutil.copytree(tmp_path / "ck", tmp_path / "copy")
    source.add([("kelp", 1), ("rock", 1)])
    source.add([])
    rest: Epochs = {1: [("kelp", 1), ("rock", 1)], 2: []}
    assert epochs_of(source, tmp_path / "ck") == rest
    again = EpochSource(spark, SCHEMA, tmp_path / "in")
    assert epochs_of(again, tmp_path / "copy") == rest


def test_a_source_opened_again_goes_on_counting(spark: SparkSession, tmp_path: Path) -> None:
    assert EpochSource(spark, SCHEMA, tmp_path / "in").add([("kelp", 0)]) == 0
    again = EpochSource(spark, SCHEMA, str(tmp_path / "in"))
    assert len(again) == 1
    assert again.add([("kelp", 1)]) == 1
    assert epochs_of(again, tmp_path / "ck") == {0: [("kelp", 0)], 1: [("kelp", 1)]}


def test_rows_may_come_in_any_form(spark: SparkSession) -> None:
    pandas = pytest.importorskip("pandas")
    schema = StructType([StructField("word", StringType()), StructField("n", LongType())])
    source = EpochSource(spark, schema)
    source.add([("tuple", 1), {"n": 2, "word": "dictionary"}, {"word": "partial"}])
    source.add(pa.table({"word": ["arrow"], "n": pa.array([4], pa.int32())}))
    source.add(pandas.DataFrame({"word": ["pandas"], "n": [5]}))
    source.add(spark.createDataFrame([("row", 6)], schema).collect())
    rows = {tuple(row) for row in source.rows_so_far().collect()}
    assert rows == {
        ("tuple", 1),
        ("dictionary", 2),
        ("partial", None),
        ("arrow", 4),
        ("pandas", 5),
        ("row", 6),
    }


def test_values_mean_what_they_mean_to_spark(spark: SparkSession) -> None:
    schema = (
        "b boolean, i int, d double, p decimal(10,2), s string, r binary, day date, "
        "at timestamp, wall timestamp_ntz"
    )
    naive = datetime(2026, 7, 1, 12, 30, 0, 5)
    aware = datetime(2026, 7, 1, 12, 30, tzinfo=timezone(timedelta(hours=5)))
    rows = [
        (True, -1, 0.5, Decimal("1.25"), "größer", b"\x00", date(1969, 12, 31), naive, naive),
        (None, None, None, None, None, None, None, aware, None),
        (None,) * 9,
    ]
    source = EpochSource(spark, schema)
    source.add(rows)
    expected = spark.createDataFrame(rows, schema)
    assert sorted(map(repr, source.rows_so_far().collect())) == sorted(
        map(repr, expected.collect())
    )


def test_nested_values_are_possible(spark: SparkSession) -> None:
    source = EpochSource(spark, "k struct<a: int, b: array<string>>, m map<string, long>")
    source.add([((1, ["x", "y"]), {"z": 2})])
    [row] = source.rows_so_far().collect()
    assert row.asDict(recursive=True) == {"k": {"a": 1, "b": ["x", "y"]}, "m": {"z": 2}}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("kelp",), "not a row"),
        (("kelp", 1, 2), "not a row"),
        ("kelp", "not a row"),
        ({"word": "kelp", "m": 1}, "unknown columns"),
        (("kelp", "one"), "column 'n' is int64"),
        (("kelp", 1.5), "column 'n' is int64"),
        (("kelp", 2**70), "column 'n' is int64"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    spark: SparkSession, tmp_path: Path, row: object, words: str
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path)
    with pytest.raises(InputError, match=words):
        source.add([row])
    assert len(source) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["_schema.json"]


def test_another_schema_on_the_same_path_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    EpochSource(spark, SCHEMA, tmp_path)
    with pytest.raises(ConfigurationError, match="another schema"):
        EpochSource(spark, "word string, n int", tmp_path)
    with pytest.raises(ConfigurationError, match="another schema"):
        EpochSource(spark, SCHEMA, tmp_path, crashes=True)


def test_a_path_that_spark_takes_for_a_pattern_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="pattern"):
        EpochSource(spark, SCHEMA, tmp_path / "in[1]")
    assert list(tmp_path.iterdir()) == []


def test_sentinels_need_a_source_that_crashes(spark: SparkSession) -> None:
    source = EpochSource(spark, SCHEMA)
    with pytest.raises(InputError, match="can't crash"):
        source.add([EpochSource.CRASH])
    assert len(source) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
def test_a_sentinel_kills_the_driver_once_and_its_epoch_passes_then(tmp_path: Path) -> None:
    program = Path(__file__).with_name("crashing_program.py")

    def run() -> int:
        with (tmp_path / "log").open("ab") as log:
            command = [sys.executable, str(program), str(tmp_path)]
            environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
            done = subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)
            return done.returncode

    def published() -> dict[str, Any]:
        return {p.stem: json.loads(p.read_text()) for p in sorted((tmp_path / "out").iterdir())}

    assert run() == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert published() == {"0": [["kelp", 0]]}
    driver = json.loads((tmp_path / "in" / "_driver.json").read_text())
    assert all(ends(pid) for pid in driver["pids"])
    assert run() == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert published() == {"0": [["kelp", 0]], "1": [["kelp", 1], ["rock", 1]]}
    assert run() == 0, (tmp_path / "log").read_text()
    whole = {"0": [["kelp", 0]], "1": [["kelp", 1], ["rock", 1]], "2": [], "3": [["kelp", 3]]}
    assert published() == whole


def ends(pid: int) -> bool:
    """Whether a process is gone, now or within a minute."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ending = select.poll()  # select() knows no descriptor above 1023
        ending.register(descriptor, select.POLLIN)
        return bool(ending.poll(60_000))
    finally:
        os.close(descriptor)


def test_rows_so_far_are_all_rows_without_sentinels(spark: SparkSession) -> None:
    source = EpochSource(spark, SCHEMA, crashes=True)
    assert source.rows_so_far().count() == 0
    source.add([("kelp", 0), EpochSource.CRASH])
    source.add([("rock", 1)])
    rows = source.rows_so_far()
    assert rows.columns == ["word", "n"]
    assert sorted(tuple(row) for row in rows.collect()) == [("kelp", 0), ("rock", 1)]


def test_the_testing_package_needs_no_spark() -> None:
    check = "import sys, holdfast.testing; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
