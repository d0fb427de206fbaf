"""A process through Spark equals a plain Python loop with dicts, over restarts with other P.

What was late, expired or due is judged by the times that the log records for each epoch.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.checkpoint.entry import Checkpoint, EpochRecord
from holdfast.checkpoint.log import read_log
from holdfast.driver import pacing
from holdfast.spark.query import Query
from holdfast.storage import open_storage
from holdfast.testing import EpochSource
from tests.operators.everything import ACTS, SET_PROCESSING_TIMER, Everything, at
from tests.operators.process_oracle import Oracle, by_key

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

SCHEMA = "user string, part int, op long, a long, b long, ts timestamp"
NAMES = ["user", "part", "op", "a", "b", "ts"]
KEYS = ["user", "part"]
Row = tuple[Any, ...]


def rows(chance: random.Random, count: int) -> list[Row]:
    times = [None, at(chance.randrange(400)), at(chance.randrange(100, 110))]
    times.append(at(chance.randrange(100, 110)) + timedelta(microseconds=1))
    return [
        (
            chance.choice(["u", "v", "w", "x", None]),
            chance.choice([0, 0, 1, None]),
            chance.randrange(len(ACTS)),
            chance.randrange(11),
            chance.randrange(5),
            chance.choice(times),
        )
        for _ in range(count)
    ]


def records(checkpoint_dir: Path) -> list[EpochRecord]:
    """Every epoch that the log holds, in order."""
    log = read_log(open_storage(checkpoint_dir))
    entries = [log.entry(number) for number in log.numbers]
    return [r for entry in entries if isinstance(entry, Checkpoint) for r in entry.epochs]


def files_read(record: EpochRecord) -> int:
    """How many files the stream has read after an epoch: one per number in the source's log."""
    offset = json.loads(record.offsets.split("\n")[2])
    return int(offset["logOffset"]) + 1


def epochs_of(found: Sequence[EpochRecord], files: Sequence[list[Row]]) -> Iterator[Any]:
    """Each epoch with the rows that it read."""
    read = 0
    for record in found:
        until = files_read(record)
        yield record, [row for file in files[read:until] for row in file]
        read = until


class Pipeline:
    """One pipeline of :class:`Everything` that is started again and again."""

    def __init__(self, spark: SparkSession, work: Path, tag: str, lateness_ms: int) -> None:
        self.work, self.lateness_ms = work, lateness_ms
        self.source = EpochSource(spark, SCHEMA, work / "in")
        self.files: list[list[Row]] = []
        self.main = hf.sinks.memory(f"main-{tag}")
        self.late, self.notes = hf.sinks.memory(f"late-{tag}"), hf.sinks.memory(f"notes-{tag}")
        self.ms = itertools.count(1000, 3)
        self.metrics: dict[str, float] = {}

    def add(self, given: list[Row]) -> None:
        self.files.append(given)
        self.source.add(given)

    def start(self, **options: Any) -> Query:
        stream = hf.stream(self.source.df).with_watermark(
            "ts", "5 ms", allowed_lateness=self.lateness_ms / 1000
        )
        result = stream.key_by("user", "part").process(Everything())
        pipeline = result.write_to(self.main, late=self.late, notes=self.notes)
        chosen = {
            "checkpoint_interval": None,
            "keep_last": 10_000,
            "local_dir": self.work / "local",
            "clock": lambda: next(self.ms),
            "trigger": "available-now",
            **options,
        }
        return pipeline.start("everything", self.work / "ck", **chosen)

    def counted(self, query: Query) -> None:
        for progress in query.progress:
            for name, amount in progress.metrics.items():
                self.metrics[name] = self.metrics.get(name, 0) + amount

    def check(self) -> None:
        """All that was published is what the loop comes to."""
        oracle = Oracle(Everything(), NAMES, KEYS, self.lateness_ms)
        output: list[Any] = []
        late: list[Row] = []
        notes: list[Any] = []
        metrics: dict[str, float] = {}
        found = records(self.work / "ck")
        numbers = [record.epoch for record in found]
        assert numbers == sorted(set(numbers))
        assert files_read(found[-1]) == len(self.files)
        for record, given in epochs_of(found, self.files):
            assert record.rows == len(given)
            expected = oracle.epoch(given, record)
            output += expected.output
            late += expected.late
            notes += expected.sides.get("notes", [])
            for name, amount in expected.metrics.items():
                metrics[name] = metrics.get(name, 0) + amount
        assert by_key(self.main.table().to_pylist(), KEYS) == by_key(output, KEYS)
        seen = [tuple(row.values()) for row in self.late.table().to_pylist()]
        assert Counter(seen) == Counter(late)
        assert sorted(map(repr, self.notes.table().to_pylist())) == sorted(map(repr, notes))
        assert self.metrics == metrics


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.parametrize("number", range(3))
def test_files_restarts_and_changing_p_equal_the_loop(
    number: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed * 31 + number)
    # As many tasks as there are rows, at most: otherwise epochs this small have one.
    monkeypatch.setattr(pacing, "_TINY_ROWS", 1)
    monkeypatch.setattr(pacing, "_ROWS_PER_TASK", 1)
    pipeline = Pipeline(spark, tmp_path, f"{number}-{seed}", chance.choice([0, 20]))
    for partitions in (2, 1, 3):
        for _ in range(chance.randrange(2, 5)):
            pipeline.add(rows(chance, chance.randrange(0, 30)))
        query = pipeline.start(
            partitions=partitions, checkpoint_interval=chance.choice([None, 0.2])
        )
        assert query.await_termination(300), f"seed {seed}"
        pipeline.counted(query)
        pipeline.check()


def test_timers_fire_though_no_input_comes(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(spark, tmp_path, "ticks", 0)
    timer = ACTS.index(SET_PROCESSING_TIMER)
    pipeline.add([("u", 0, timer, 5, 0, at(50)), ("v", 1, timer, 10, 3, at(60))])
    query = pipeline.start(trigger=0.1, partitions=2)
    try:
        query.process_all_available()
        entries = len(read_log(open_storage(tmp_path / "ck")).numbers)
        pipeline.ms = itertools.count(5000, 3)
        until(lambda: len(query.progress) > 1, "no timer fired")
        query.checkpoint()
        fired = [row["step"] for row in pipeline.main.table().to_pylist()]
        assert sum("processing timer" in step for step in fired) == 2
        assert len(read_log(open_storage(tmp_path / "ck")).numbers) > entries
    finally:
        query.stop()
    pipeline.counted(query)
    pipeline.check()
