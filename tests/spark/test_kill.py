"""kill -9 of the driver at every window: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.support import assert_equals_batch, more_input, run_program, start_program

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("quick_java"),
]

# Together with killing.WINDOWS every step of an epoch, a checkpoint and a start, and all that is
# real here and simulated nowhere: a process that is gone, local files, Parquet files.
WINDOWS = [
    "checkpoint.after_store=kill@2",
    "storage.local.after_link=kill@9",
    "epoch.recorded=kill@3",
    "start.claimed=kill",
    "collect.after_entry=kill",
    "sink.parquet.after_rename=kill@2",
]
# The simulator stops drivers at these in thousands of runs.
MORE_WINDOWS = [
    "checkpoint.start=kill@2",
    "epoch.start=kill@2",
    "log.before_claim=kill",
    "log.after_claim=kill",
    "log.before_create=kill@3",
    "log.after_create=kill@3",
    "start.published=kill",
    "collect.before_entry=kill",
    "collect.after_objects=kill",
    "sink.parquet.before_link=kill@2",
]


@pytest.mark.parametrize(
    "windows", [WINDOWS, pytest.param(MORE_WINDOWS, marks=pytest.mark.soak)], ids=["some", "more"]
)
def test_nothing_is_lost_or_doubled_by_kills_at_every_step(
    spark: SparkSession, tmp_path: Path, windows: list[str]
) -> None:
    """Each process is killed and the next one takes over."""
    options: dict[str, Any] = {"durability": "epoch", "keep_last": 2}
    for number, window in enumerate(windows):
        more_input(tmp_path, epochs=4, rows=300, keys=60, seed=number)
        code, output = run_program(tmp_path, window, **options)
        assert code == -signal.SIGKILL, f"{window} was not reached:\n{output}"
    code, output = run_program(tmp_path, **options)
    assert (code, "DONE" in output.splitlines()) == (0, True), output
    assert_equals_batch(spark, tmp_path)


@pytest.mark.soak
def test_random_kills_end_with_the_result_of_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Kills at random moments of a running pipeline."""
    seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed)
    kills = 0
    while kills < 10:
        more_input(
            tmp_path,
            epochs=6,
            rows=chance.randrange(1, 3000),
            keys=chance.randrange(1, 500),
            seed=chance.randrange(10**6),
        )
        process = start_program(tmp_path, checkpoint_interval=chance.choice([0.1, 0.3, 1.0]))
        assert process.stdout is not None
        # Mostly while epochs run; now and then already while it starts.
        if chance.random() < 0.8:
            lines = iter(process.stdout.readline, "")
            started = any(line.startswith("STARTED") for line in lines)
            assert started, f"seed {seed}: the program did not start"
        kill = threading.Timer(chance.random() * 3.0, process.kill)
        kill.start()
        process.communicate(timeout=300)
        kill.cancel()
        assert process.returncode in (0, -signal.SIGKILL), f"seed {seed}"
        kills += process.returncode == -signal.SIGKILL
    code, output = run_program(tmp_path)
    assert code == 0, f"seed {seed}: {output}"
    assert_equals_batch(spark, tmp_path)
