"""kill -9 of the driver at every window: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.support import (
    assert_equals_batch,
    make_input,
    run_program,
    start_program,
    write_epoch,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# The five crash windows of the design, then every other step of an epoch, a checkpoint, a start.
WINDOWS = [
    "checkpoint.start=kill@2",
    "store.piece=kill@2",
    "storage.local.after_link=kill@9",
    "checkpoint.after_store=kill@2",
    "checkpoint.after_pre_commit=kill@2",
    "checkpoint.after_entry=kill@2",
    "checkpoint.before_acknowledge=kill@2",
    "epoch.start=kill@3",
    "epoch.before_record=kill@3",
    "epoch.recorded=kill@4",
    "log.before_claim=kill",
    "log.after_claim=kill",
    "log.before_create=kill@2",
    "log.after_create=kill@2",
    "start.claimed=kill",
    "collect.before_entry=kill",
    "collect.after_entry=kill",
    "collect.after_objects=kill",
    "sink.parquet.before_link=kill@2",
    "sink.parquet.before_rename=kill@2",
    "sink.parquet.after_rename=kill@2",
]


@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_is_lost_or_doubled_after_a_kill_at(
    window: str, spark: SparkSession, tmp_path: Path
) -> None:
    make_input(tmp_path, epochs=8, rows=400, keys=60)
    options: dict[str, Any] = {"durability": "epoch", "keep_last": 2}
    code, output = run_program(tmp_path, window, **options)
    assert code == -signal.SIGKILL, f"the failpoint was not reached:\n{output}"
    code, output = run_program(tmp_path, **options)
    assert (code, output.strip().endswith("DONE")) == (0, True), output
    assert_equals_batch(spark, tmp_path)


def test_random_kills_end_with_the_result_of_batch(spark: SparkSession, tmp_path: Path) -> None:
    """At least 20 kills at random moments of a running pipeline."""
    seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed)
    kills, epochs = 0, 0
    while kills < 20:
        make_input_more(tmp_path, epochs, 6, chance)
        epochs += 6
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


def make_input_more(work: Path, first: int, count: int, chance: random.Random) -> None:
    """More epochs of random size and keys."""
    scratch = work / "new"
    make_input(
        scratch, count, chance.randrange(1, 3000), chance.randrange(1, 500), chance.randrange(10**6)
    )
    for number, path in enumerate(sorted((scratch / "in").glob("*.parquet"))):
        write_epoch(work / "in", first + number, pq.read_table(path))
        path.unlink()
