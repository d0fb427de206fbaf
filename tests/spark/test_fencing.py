"""Two drivers on one directory: the first stops for good, in a way a supervisor understands."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast import failpoints
from holdfast.checkpoint.log import Log
from holdfast.errors import FencedError
from holdfast.storage import open_storage
from holdfast.testing import EpochSource
from tests.spark.support import assert_equals_batch, more_input, run_program, start_program

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("quick_java")]


def test_a_second_driver_fences_the_first(spark: SparkSession, tmp_path: Path) -> None:
    more_input(tmp_path, epochs=6, rows=300, keys=40)
    first = start_program(tmp_path, trigger=0.1, checkpoint_interval=0.2)
    assert first.stdout is not None
    assert any(line.startswith("STARTED") for line in iter(first.stdout.readline, ""))
    code, output = run_program(tmp_path)
    assert code == 0, output
    rest, _ = first.communicate(timeout=120)
    assert first.returncode == FencedError.EXIT_CODE, rest
    assert "fenced by" in rest
    assert_equals_batch(spark, tmp_path)


def test_a_driver_whose_checkpoint_hangs_sees_that_another_took_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, "word string", tmp_path / "in")
    counts = hf.stream(source.df).key_by("word").aggregate(n=hf.count())
    query = counts.write_to(hf.sinks.memory("hung")).start(
        "q", tmp_path / "ck", checkpoint_interval="1h", local_dir=tmp_path / "local"
    )
    source.add([("a",)])
    query.spark_query.processAllAvailable()
    hangs, over = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        over.wait()

    def ask() -> None:
        with pytest.raises(FencedError):
            query.checkpoint()

    failpoints.arm("checkpoint.start", hang)
    try:
        asking = threading.Thread(target=ask)
        asking.start()
        assert hangs.wait(60)
        Log.claim(open_storage(tmp_path / "ck"), "q", "other", now_ms=lambda: 1, nonce=lambda: "x")
        with pytest.raises(FencedError, match="written by driver 'other'"):
            query.await_termination(60)
    finally:
        over.set()
        failpoints.disarm("checkpoint.start")
    asking.join(60)
    assert not asking.is_alive()
