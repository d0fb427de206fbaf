"""Settings that belong to the session come from ``hf.configure``; without them there is one warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.spark.session import SESSION_SETTINGS

pytestmark = pytest.mark.spark

PROGRAM = """
import json, logging, sys
from pyspark.sql import SparkSession
import holdfast as hf
from holdfast.testing import EpochSource

told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("holdfast").addHandler(handler)
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
source = EpochSource(spark, "word string", sys.argv[1] + "/in")
source.add([("a",), ("a",)])
for start in range(2):
    sink = hf.sinks.memory("plain")
    query = hf.stream(source.df).key_by("word").aggregate(n=hf.count()).write_to(sink).start(
        "plain", sys.argv[1] + "/ck", trigger="available-now", local_dir=sys.argv[1] + "/local")
    query.await_termination()
print(json.dumps({"warnings": [t for t in told if "hf.configure" in t], "rows": sink.rows()}))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
def test_a_plain_session_works_with_one_warning(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["warnings"]) == 1
    assert all(name in result["warnings"][0] for name in SESSION_SETTINGS)
    assert result["rows"] == [{"word": "a", "n": 2}]


def test_the_test_session_has_all_that_configure_sets(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert {name: conf.get(name) for name in SESSION_SETTINGS} == SESSION_SETTINGS


def test_workers_of_a_local_session_have_holdfast_when_they_begin(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.python.daemon.module") == "holdfast.spark.jvm.daemon"

    def loaded(index: int) -> bool:
        import sys

        # Sent by value: nothing here imports Holdfast.
        return index == 0 and "holdfast.tasks.task" in sys.modules

    assert spark.sparkContext.parallelize([0], 1).map(loaded).collect() == [True]


@pytest.mark.parametrize(
    ("master", "preload", "daemon"),
    [
        ("local[2]", None, "holdfast.spark.jvm.daemon"),
        ("local[2]", False, None),
        ("spark://nn:7077", None, None),
        ("spark://nn:7077", True, "holdfast.spark.jvm.daemon"),
    ],
)
def test_a_daemon_is_told_to_import_only_what_is_there(
    master: str, preload: bool | None, daemon: str | None
) -> None:
    class Builder(SparkSession.Builder):
        def __init__(self) -> None:
            self._options = {}

    builder = hf.configure(Builder().master(master), preload=preload)
    assert builder._options.get("spark.python.daemon.module") == daemon
