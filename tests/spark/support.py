"""Input, processes and comparisons for tests of whole pipelines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.reader import stored_tables
from holdfast.state.hashing import FULL_RANGE
from holdfast.storage import open_storage

PROGRAM = Path(__file__).with_name("programs.py")


def write_epoch(folder: Path, number: int, table: pa.Table) -> None:
    """One file, and so one epoch; Spark's file source takes files by time of modification."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:06d}.parquet"
    hidden = folder / f".{number:06d}.tmp"
    pq.write_table(table, hidden)
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(path)


def step_on(query: Any, seconds: float = 60.0) -> None:
    """Run the next epoch; without input that is when the next tick comes."""
    deadline = time.monotonic() + seconds
    while not query.step():
        assert time.monotonic() < deadline, f"no epoch came within {seconds} s"


def more_input(work: Path, epochs: int, rows: int, keys: int, seed: int = 1) -> None:
    """Add epochs behind those that are there."""
    random = np.random.default_rng(seed)
    there = len(list((work / "in").glob("*.parquet")))
    for number in range(there, there + epochs):
        words = np.char.add("w", random.integers(0, keys, rows).astype(str))
        stamps = np.datetime64("2026-01-01", "us") + random.integers(0, 10**12, rows)
        table = pa.table(
            {
                "word": pa.array(words),
                "amount": pa.array(random.integers(-1000, 1000, rows)),
                "ts": pa.array(stamps.astype("datetime64[us]")),
            }
        )
        write_epoch(work / "in", number, table)


def start_program(work: Path, failpoints: str = "", **options: Any) -> subprocess.Popen[str]:
    """The program in a process of its own."""
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


def run_program(work: Path, failpoints: str = "", **options: Any) -> tuple[int, str]:
    """Run it to its end: exit code (negative: the signal) and output."""
    process = start_program(work, failpoints, **options)
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def batch(spark: SparkSession, work: Path) -> DataFrame:
    """What Spark's own batch engine makes of all input."""
    rows = spark.read.parquet(str(work / "in"))
    return rows.groupBy("word").agg(
        F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("ts").alias("last")
    )


def state_table(work: Path) -> pa.Table:
    """The state that the last checkpoint keeps, read from storage."""
    storage = open_storage(work / "ck")
    entry = read_log(storage).last_checkpoint
    assert entry is not None
    view = stored_tables(entry, storage)["aggregate.groups"]
    return pa.concat_tables(list(view.scan(FULL_RANGE)))


def as_set(frame: DataFrame) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.collect()}


def assert_equals_batch(spark: SparkSession, work: Path) -> None:
    """Published changes folded in epoch order equal batch, each (key, epoch) once; so does state."""
    expected = as_set(batch(spark, work))
    published = spark.read.parquet(str(work / "out"))
    twice = published.groupBy("word", "epoch").count().filter("count > 1")
    assert twice.count() == 0
    assert as_set(hf.fold(published, key="word", epoch="epoch")) == expected
    state = state_table(work)
    rows = zip(*(state[c].to_pylist() for c in state.column_names[1:]), strict=True)
    assert set(rows) == expected
    assert state.num_rows == len(expected)
