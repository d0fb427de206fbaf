"""kill -9 of a pipeline with sessions, a join, a loop, results keyed again and seven sinks at once.

What it published and kept in the end is, row by row, what a run that nobody killed did.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.flow.flow_program import SINKS
from tests.spark.killing import EPOCHS_PER_RUN, TASK_WINDOWS, WINDOWS, Program
from tests.spark.support import write_epoch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("quick_java"),
]

# One each in the midst of storing, of a checkpoint and of a task; the others are soak tests.
WINDOWS_HERE = ["store.piece=kill@9", "checkpoint.after_entry=kill@2", "task.before_report=kill@2"]
EPOCHS = EPOCHS_PER_RUN * len([*WINDOWS, *TASK_WINDOWS])


def add_input(work: Path, seed: int, rows: int = 40) -> None:
    """One more epoch of both streams."""
    chance = np.random.default_rng(seed)
    number = len(list((work / "in").glob("*.parquet")))
    begin = np.datetime64("2026-01-01", "us") + np.timedelta64(number * 10, "s")
    for folder, value, time in (("in", "amount", "ts"), ("right", "price", "at")):
        times = begin + chance.integers(-12_000_000, 12_000_000, rows).astype("timedelta64[us]")
        users = np.char.add("u", chance.integers(0, 12, rows).astype(str))
        table = {
            "user": pa.array(users),
            value: pa.array(chance.integers(0, 500, rows)),
            time: pa.array(times, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        }
        write_epoch(work / folder, number, pa.table(table))


@pytest.fixture(scope="module")
def program(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = Path(__file__).with_name("flow_program.py")
    return Program(
        spark,
        path,
        SINKS,
        add_input,
        lambda: tmp_path_factory.mktemp("clean"),
        hints=(".ends", "_due"),
        emptied=frozenset({"rounds.rows"}),
    )


def test_kills_change_nothing(program: Program, tmp_path: Path) -> None:
    program.kill_at(tmp_path, WINDOWS_HERE)
    program.assert_equals_clean(tmp_path)


@pytest.mark.soak
def test_kills_at_every_window_change_nothing(program: Program, tmp_path: Path) -> None:
    program.kill_at(tmp_path, [*WINDOWS, *TASK_WINDOWS])
    program.assert_equals_clean(tmp_path)


@pytest.mark.soak
def test_random_kills_change_nothing(program: Program, tmp_path: Path) -> None:
    program.kill_at_random(tmp_path, kills=4, epochs=EPOCHS)
    program.assert_equals_clean(tmp_path)
