"""kill -9 of a pipeline with all state kinds, timers, TTL, broadcast state and four sinks at once.

What it published and kept in the end is, row by row, what a run that nobody killed did.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.killing import EPOCHS_PER_RUN, Program
from tests.spark.process_program import SINKS
from tests.spark.support import write_epoch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("quick_java"),
]

WINDOWS_HERE = ["checkpoint.before_acknowledge=kill@3", "task.start=kill@2"]
MORE_WINDOWS = ["store.piece=kill@9", *WINDOWS_HERE, "task.before_report=kill@2"]
EPOCHS = EPOCHS_PER_RUN * len(MORE_WINDOWS)


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


@pytest.fixture(scope="module")
def program(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = Path(__file__).with_name("process_program.py")
    return Program(spark, path, SINKS, add_input, lambda: tmp_path_factory.mktemp("clean"))


def test_kills_change_nothing(program: Program, tmp_path: Path) -> None:
    """At the windows that matter to tasks with every kind of state, and to sinks that were told twice."""
    # With as much input as more windows get: with less, not every table is used.
    program.kill_at(tmp_path, WINDOWS_HERE, EPOCHS // len(WINDOWS_HERE))
    program.assert_equals_clean(tmp_path)


@pytest.mark.soak
def test_kills_at_more_windows_change_nothing(program: Program, tmp_path: Path) -> None:
    program.kill_at(tmp_path, MORE_WINDOWS)
    program.assert_equals_clean(tmp_path)


@pytest.mark.soak
def test_random_kills_change_nothing(program: Program, tmp_path: Path) -> None:
    program.kill_at_random(tmp_path, kills=4, epochs=EPOCHS)
    program.assert_equals_clean(tmp_path)
