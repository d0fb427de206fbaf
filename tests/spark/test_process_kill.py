"""kill -9 of a pipeline with all state kinds, timers, TTL, broadcast state and four sinks at once.

What it published and kept in the end is, row by row, what a run that nobody killed did.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.checkpoint.log import read_log
from holdfast.cli.app import app
from holdfast.recovery.reader import stored_tables
from holdfast.state.hashing import FULL_RANGE
from holdfast.storage import open_storage
from tests.spark.process_program import SINKS
from tests.spark.support import write_epoch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("quick_java"),
]

PROGRAM = Path(__file__).with_name("process_program.py")
EPOCHS_PER_RUN = 3
WINDOWS = [
    "store.piece=kill@9",
    "checkpoint.after_store=kill@2",
    "checkpoint.after_pre_commit=kill@2",
    "checkpoint.after_entry=kill@2",
    "checkpoint.before_acknowledge=kill@3",
    "epoch.start=kill@2",
    "epoch.before_record=kill@2",
    "log.after_create=kill@3",
    "start.claimed=kill",
    "start.published=kill",
    "collect.after_entry=kill",
    "sink.parquet.before_rename=kill@3",
    "sink.parquet.after_rename=kill@2",
]
# These kill a Python worker: the pipeline fails, and continues when it is started again.
TASK_WINDOWS = ["task.start=kill@2", "task.before_report=kill@2"]
EPOCHS = EPOCHS_PER_RUN * len([*WINDOWS, *TASK_WINDOWS])


def add_input(work: Path, seed: int, rows: int = 60) -> None:
    """One more epoch of events and of control rows."""
    chance = np.random.default_rng(seed)
    number = len(list((work / "in").glob("*.parquet")))
    begin = np.datetime64("2026-01-01", "us") + np.timedelta64(number * 10, "s")
    times = begin + chance.integers(-15_000_000, 15_000_000, rows).astype("timedelta64[us]")
    users = np.char.add("u", chance.integers(0, 12, rows).astype(str))
    events = {
        "user": pa.array(users),
        "amount": pa.array(chance.integers(0, 500, rows)),
        "ts": pa.array(times, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
    }
    names = [f"limit {chance.integers(0, 3)}" for _ in range(2)]
    limits = chance.integers(-100, 500, 2)
    write_epoch(work / "in", number, pa.table(events))
    write_epoch(work / "control", number, pa.table({"name": names, "limit": pa.array(limits)}))


def start(work: Path, failpoints: str = "", **options: Any) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "HOLDFAST_FAILPOINTS": failpoints,
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(work), json.dumps(options)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(work: Path, failpoints: str = "", **options: Any) -> tuple[int, str]:
    process = start(work, failpoints, **options)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def finish(work: Path) -> None:
    """To the end of the input, and once more: the second run finds ticks alone."""
    for _ in range(2):
        code, output = run(work)
        assert (code, "DONE" in output.splitlines()) == (0, True), output


def published(spark: SparkSession, work: Path) -> dict[str, Counter[Any]]:
    found = {}
    for sink in SINKS:
        frame = spark.read.parquet(str(work / sink))
        found[sink] = Counter(tuple(map(str, row)) for row in frame.collect())
    return found


def state(work: Path) -> dict[str, list[str]]:
    """The live rows of each table; hints of timers aside, which may be there or not."""
    storage = open_storage(work / "ck")
    entry = read_log(storage).last_checkpoint
    assert entry is not None
    tables = {}
    for name, view in stored_tables(entry, storage).items():
        if ".due." not in name:
            rows = [row for piece in view.scan(FULL_RANGE) for row in piece.to_pylist()]
            tables[name] = sorted(map(str, rows))
    return tables


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of runs that nobody kills, by how much input they had."""
    known: dict[int, Any] = {}

    def result(epochs: int) -> Any:
        if epochs not in known:
            work = tmp_path_factory.mktemp("clean")
            for seed in range(epochs):
                add_input(work, seed)
            finish(work)
            known[epochs] = published(spark, work), state(work)
        return known[epochs]

    return result


def assert_equals_clean(spark: SparkSession, work: Path, clean: Any) -> None:
    epochs = len(list((work / "in").glob("*.parquet")))
    expected_output, expected_state = clean(epochs)
    found = published(spark, work)
    for sink in SINKS:
        assert found[sink] == expected_output[sink], sink
        assert found[sink], f"nothing in {sink}"
    kept = state(work)
    assert kept == expected_state
    assert {name for name, rows in kept.items() if rows} == set(kept), "every table is in use"
    verified = CliRunner().invoke(app, ["verify", str(work / "ck")])
    assert verified.exit_code == 0, verified.output


def test_kills_at_every_window_change_nothing(
    spark: SparkSession, tmp_path: Path, clean: Any
) -> None:
    seed = 0
    for window in [*WINDOWS, *TASK_WINDOWS]:
        for _ in range(EPOCHS_PER_RUN):
            add_input(tmp_path, seed)
            seed += 1
        code, output = run(tmp_path, window, durability="epoch", keep_last=2)
        if window in TASK_WINDOWS:
            assert code != 0, f"{window} was not reached:\n{output}"
        else:
            assert code == -signal.SIGKILL, f"{window} was not reached:\n{output}"
    finish(tmp_path)
    assert_equals_clean(spark, tmp_path, clean)


def test_random_kills_change_nothing(spark: SparkSession, tmp_path: Path, clean: Any) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed)
    added = kills = 0
    while kills < 6:
        for _ in range(5):
            add_input(tmp_path, added)
            added += 1
        interval = chance.choice([0.1, 0.3, 1.0])
        process = start(tmp_path, checkpoint_interval=interval, partitions=chance.choice([1, 2, 3]))
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("STARTED") for line in lines), f"seed {seed}: it did not start"
        kill = threading.Timer(chance.random() * 4.0, process.kill)
        kill.start()
        process.communicate(timeout=300)
        kill.cancel()
        assert process.returncode in (0, -signal.SIGKILL), f"seed {seed}"
        kills += process.returncode == -signal.SIGKILL
    # As much input as the other test had, mostly: then its clean run is this one's too.
    for more in range(added, EPOCHS):
        add_input(tmp_path, more)
    finish(tmp_path)
    assert_equals_clean(spark, tmp_path, clean)
