"""Jobs that are told where to run; the lab shows that Spark obeys, this that nothing is changed."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyspark import InheritableThread, SparkFiles
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import ConfigurationError
from holdfast.spark.cluster.executors import REQUIRED, _looker, check_executors, send_holdfast
from holdfast.spark.cluster.host_wait import SETTING, waiting_for_hosts
from holdfast.spark.cluster.hosts import is_cluster
from holdfast.spark.jvm.placed import Placer, task_host
from holdfast.storage import HdfsStorage, ObjectStoreStorage


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


def test_executors_get_this_holdfast_once(spark: SparkSession) -> None:
    send_holdfast(spark.sparkContext)
    send_holdfast(spark.sparkContext)
    with zipfile.ZipFile(SparkFiles.get("holdfast.zip")) as archive:
        names = archive.namelist()
    assert "holdfast/__init__.py" in names
    assert "holdfast/tasks/task.py" in names


def test_executors_are_asked_for_packages(spark: SparkSession) -> None:
    check_executors(spark.sparkContext, ["h1", "h2"], {"pyspark": (4, 1)})
    wanted = {"pyarrow": (9999,), "no-such-package": (1, 2)}
    with pytest.raises(ConfigurationError) as caught:
        check_executors(spark.sparkContext, ["h1"], wanted)
    assert "pyarrow is " in str(caught.value)
    assert "no-such-package is missing" in str(caught.value)
    assert "-m pip install 'no-such-package>=1.2' 'pyarrow>=9999'" in str(caught.value)


def test_hosts_are_asked_for_what_the_package_says_it_needs() -> None:
    def lowest(extra: str) -> dict[str, tuple[int, ...]]:
        wanted = [Requirement(line) for line in requires("holdfast") or []]
        chosen = [r for r in wanted if (r.marker is None) == (extra == "")]
        return {
            r.name: tuple(int(n) for n in next(iter(r.specifier)).version.split("."))
            for r in chosen
            if r.marker is None or r.marker.evaluate({"extra": extra})
        }

    assert lowest("") == REQUIRED
    assert lowest("hdfs") == HdfsStorage.packages
    assert lowest("object-store") == ObjectStoreStorage.packages


def test_a_host_that_has_imported_another_holdfast_is_told() -> None:
    _, same = _looker({}, hf.__version__)()
    assert same == []
    _, other = _looker({}, "99.1")()
    assert other == [("holdfast", f"is {hf.__version__}, but the driver has 99.1")]


def test_the_wait_for_hosts_lasts_as_long_as_the_last_who_needs_it(spark: SparkSession) -> None:
    conf: Any = spark.sparkContext._jsc.sc().conf()
    conf.set(SETTING, "7s")
    try:
        with waiting_for_hosts(spark.sparkContext):
            with pytest.raises(ZeroDivisionError), waiting_for_hosts(spark.sparkContext):
                raise ZeroDivisionError
            assert conf.get(SETTING) == "600s"
        assert conf.get(SETTING) == "7s"
    finally:
        conf.remove(SETTING)


def test_a_local_session_is_no_cluster(spark: SparkSession) -> None:
    assert not is_cluster(spark.sparkContext)


@pytest.mark.slow
def test_executors_of_one_host_share_local_dir_and_wait_only_for_pipelines(tmp_path: Path) -> None:
    program = Path(__file__).with_name("neighbours_program.py")
    # Every process has another working directory, so there each executor sees a folder of its own.
    folders = [str(tmp_path / "shared"), "/proc/self/cwd/not-shared", "/proc/nobody/writes/here"]
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "work"), *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    waits, shared, apart, unwritable = map(json.loads, done.stdout.splitlines()[-4:])
    assert waits == ["", "600s", ""]
    assert shared is None
    assert "local_dir /proc/self/cwd/not-shared on " in apart
    assert "isn't shared: executor " in apart
    assert "mount one volume of the host into each" in apart
    assert list((tmp_path / "shared").iterdir()) == []
    assert unwritable is None, "whether hosts can write is found out by others, in better words"
