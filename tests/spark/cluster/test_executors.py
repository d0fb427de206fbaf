"""What executors are sent, and what they are asked before a pipeline is claimed."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pyspark import SparkFiles
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import ConfigurationError
from holdfast.spark.cluster.executors import REQUIRED, _looker, check_executors, send_holdfast
from holdfast.storage import HdfsStorage, ObjectStoreStorage


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


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
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
