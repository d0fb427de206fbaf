"""Programs that are killed, and the comparison of what they leave with a run that nobody killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.reader import stored_tables
from holdfast.cli.app import app
from holdfast.state.hashing import FULL_RANGE
from holdfast.storage import open_storage

# The five crash windows of a sink, and around an epoch; test_kill.py has every other step. Most are
# soak tests: the simulator kills drivers and tasks at all of them.
WINDOWS = [
    "store.piece=kill@9",
    "checkpoint.after_pre_commit=kill@2",
    "checkpoint.after_entry=kill@2",
    "checkpoint.before_acknowledge=kill@3",
    "epoch.before_record=kill@2",
    "sink.parquet.before_rename=kill@3",
]
# These kill a Python worker: the pipeline fails, and continues when it is started again.
TASK_WINDOWS = ["task.start=kill@2", "task.before_report=kill@2"]
EPOCHS_PER_RUN = 3


@dataclass
class Program:
    """A pipeline in a process of its own; ``WORK/in`` has a file per epoch."""

    spark: SparkSession
    path: Path
    sinks: Sequence[str]
    add_input: Callable[[Path, int], None]
    """Adds one more epoch, made from a seed."""
    new_folder: Callable[[], Path]
    hints: tuple[str, ...] = (".due.",)
    """In the names of tables of hints: those may be there or not."""
    emptied: frozenset[str] = frozenset()
    """Tables that may have no rows in the end."""
    _clean: dict[int, Any] = field(default_factory=dict)

    def start(self, work: Path, failpoints: str = "", **options: Any) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "HOLDFAST_FAILPOINTS": failpoints,
            "PYSPARK_PYTHON": sys.executable,
        }
        return subprocess.Popen(
            [sys.executable, str(self.path), str(work), json.dumps(options)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, work: Path, failpoints: str = "", **options: Any) -> tuple[int, str]:
        process = self.start(work, failpoints, **options)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def finish(self, work: Path) -> None:
        """To the end of the input, and once more: the second run finds ticks alone."""
        for _ in range(2):
            code, output = self.run(work)
            assert (code, "DONE" in output.splitlines()) == (0, True), output

    def kill_at(
        self, work: Path, windows: Sequence[str], epochs_per_run: int = EPOCHS_PER_RUN
    ) -> None:
        """Each window kills a run, and the next run takes over."""
        seed = 0
        for window in windows:
            for _ in range(epochs_per_run):
                self.add_input(work, seed)
                seed += 1
            code, output = self.run(work, window, durability="epoch", keep_last=2)
            if window in TASK_WINDOWS:
                assert code != 0, f"{window} was not reached:\n{output}"
            else:
                assert code == -signal.SIGKILL, f"{window} was not reached:\n{output}"
        self.finish(work)

    def kill_at_random(self, work: Path, kills: int, epochs: int) -> None:
        """Kills at random moments, with other intervals and partitions each time.

        With ``epochs`` as in another test, mostly: then its clean run is this one's too.
        """
        seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(10**6)))
        print(f"HOLDFAST_SEED={seed}")
        chance = random.Random(seed)
        added = done = 0
        while done < kills:
            for _ in range(5):
                self.add_input(work, added)
                added += 1
            interval, partitions = chance.choice([0.1, 0.3, 1.0]), chance.choice([1, 2, 3])
            process = self.start(work, checkpoint_interval=interval, partitions=partitions)
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any(line.startswith("STARTED") for line in lines), f"seed {seed}: no start"
            kill = threading.Timer(chance.random() * 4.0, process.kill)
            kill.start()
            process.communicate(timeout=300)
            kill.cancel()
            assert process.returncode in (0, -signal.SIGKILL), f"seed {seed}"
            done += process.returncode == -signal.SIGKILL
        for more in range(added, epochs):
            self.add_input(work, more)
        self.finish(work)

    def published(self, work: Path) -> dict[str, Counter[Any]]:
        found = {}
        for sink in self.sinks:
            frame = self.spark.read.parquet(str(work / sink)).select("*", "_metadata.file_name")
            found[sink] = Counter(tuple(map(str, row)) for row in frame.collect())
        return found

    def state(self, work: Path) -> dict[str, list[str]]:
        """The live rows of each table, hints aside."""
        storage = open_storage(work / "ck")
        entry = read_log(storage).last_checkpoint
        assert entry is not None
        tables = {}
        for name, view in stored_tables(entry, storage).items():
            if not any(hint in name for hint in self.hints):
                rows = [row for piece in view.scan(FULL_RANGE) for row in piece.to_pylist()]
                tables[name] = sorted(map(str, rows))
        return tables

    def clean(self, epochs: int) -> tuple[dict[str, Counter[Any]], dict[str, list[str]]]:
        """The results of a run that nobody kills, with so much input."""
        if epochs not in self._clean:
            work = self.new_folder()
            for seed in range(epochs):
                self.add_input(work, seed)
            self.finish(work)
            self._clean[epochs] = self.published(work), self.state(work)
        result: tuple[dict[str, Counter[Any]], dict[str, list[str]]] = self._clean[epochs]
        return result

    def assert_equals_clean(self, work: Path) -> None:
        """What was published and kept is, row by row, that of a clean run."""
        epochs = len(list((work / "in").glob("*.parquet")))
        expected_output, expected_state = self.clean(epochs)
        found = self.published(work)
        for sink in self.sinks:
            assert found[sink] == expected_output[sink], sink
            assert found[sink], f"nothing in {sink}"
        kept = self.state(work)
        assert kept == expected_state
        used = {name for name, rows in kept.items() if rows}
        assert used | self.emptied == set(kept) | self.emptied, "every table is in use"
        verified = CliRunner().invoke(app, ["verify", str(work / "ck")])
        assert verified.exit_code == 0, verified.output
