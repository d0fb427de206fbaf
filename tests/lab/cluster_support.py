"""A pipeline on a lab, as tests see it: its input, its driver, and whether its results are right."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import holdfast as hf
from bench.lab import Lab
from bench.lab.spark import TRUSTING
from bench.services.daemon import ServiceError, wait_until

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A driver that has fewer hosts waits for them, and one whose host is cut waits for Spark to notice.
ANSWER_S = 240.0
_LOG_CHARACTERS = 6000


# For processes that live for seconds.
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 " + " ".join(TRUSTING)
_SETTINGS = {"spark.driver.extraJavaOptions": _JAVA, "spark.executor.extraJavaOptions": _JAVA}


class DriverEndedError(Exception):
    """The driver has ended; ``kind`` is that of its error, if it said any."""

    def __init__(self, words: str, kind: str | None) -> None:
        super().__init__(words)
        self.kind = kind


class Driver:
    """The program that runs the pipeline, on one of the lab's hosts."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._events: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def answer(self, within_s: float = ANSWER_S) -> Any:
        """What the program answers to the last command."""
        try:
            words = self._said.get(timeout=within_s)
        except queue.Empty:
            raise ServiceError(f"no answer within {within_s:g} s; see {self.log}") from None
        if words is None:
            raise self._ended()
        if words["answer"] == "failed":
            raise DriverEndedError(words["value"], words["kind"])
        return words["value"]

    def ask(self, command: str, within_s: float = ANSWER_S) -> Any:
        self.send(command)
        return self.answer(within_s)

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("look")
        return found

    def await_event(self, name: str, within_s: float = ANSWER_S) -> None:
        deadline = time.monotonic() + within_s
        while self._events.get(timeout=max(0.1, deadline - time.monotonic())) != name:
            pass

    def stop(self) -> None:
        self.ask("stop")
        code = self.process.wait(60)
        assert code == 0, f"{code}; its log ends with\n{self.log.read_text()[-_LOG_CHARACTERS:]}"
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        self._listener.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not sent any more
                    pipe.close()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _listen(self) -> None:
        lines: IO[str] | None = self.process.stdout
        assert lines is not None
        for line in lines:
            if not line.startswith("{"):
                continue
            words = json.loads(line)
            if "event" in words:
                self._events.put(words["event"])
            else:
                self._said.put(words)
        self._said.put(None)

    def _ended(self) -> DriverEndedError:
        code = self.process.wait(10)
        last = self.log.read_text()[-_LOG_CHARACTERS:]
        return DriverEndedError(f"the driver ended with {code}; its log ends with\n{last}", None)


class Cluster:
    """A lab, a pipeline's input and output, and its drivers."""

    def __init__(self, lab: Lab, work: Path, **options: Any) -> None:
        self.lab = lab
        self.work = work
        self.checkpoint_dir = str(options.pop("checkpoint_dir", "")) or f"{lab.hdfs_url}/ck"
        self.local_dir = lab.local_disk / "holdfast"
        self.options = {
            "checkpoint_dir": self.checkpoint_dir,
            "local_dir": str(self.local_dir),
            "partitions": len(lab.workers),
            "checkpoint_interval": "1h",
            **options,
        }
        (work / "in").mkdir(parents=True)
        self._epochs = 0
        self._drivers = 0

    # Input and drivers

    def add(self, rows: int, keys: int, *, first: int = 0) -> None:
        """One more epoch of input: words from ``first`` to ``first + keys``."""
        random = np.random.default_rng(self._epochs)
        words = random.permutation(np.arange(rows) % keys) + first
        table = pa.table(
            {
                "word": pa.array([f"{word * 2654435761 % 2**64:016x}" for word in words.tolist()]),
                "amount": pa.array(random.integers(-1000, 1000, rows)),
            }
        )
        path = self.work / "in" / f"{self._epochs:06d}.parquet"
        hidden = path.with_name(f".{path.name}")
        pq.write_table(table, hidden)
        # Spark takes files in the order of their times.
        os.utime(hidden, (1_700_000_000 + self._epochs,) * 2)
        hidden.rename(path)
        self._epochs += 1

    def start(
        self, host: str = "drv", conf: dict[str, str] | None = None, **options: Any
    ) -> Driver:
        """A driver that runs the pipeline; ``conf`` is for Spark, the rest for Holdfast."""
        driver = self.begin(host, conf, **options)
        driver.answer()
        return driver

    def begin(
        self,
        host: str = "drv",
        conf: dict[str, str] | None = None,
        program: str = "cluster_program.py",
        **options: Any,
    ) -> Driver:
        """A driver that is about to."""
        self._drivers += 1
        log = self.lab.logs / f"driver-{self._drivers}.log"
        words = [str(HERE / program), str(self.work), json.dumps({**self.options, **options})]
        command, variables = self.lab.command(host, [sys.executable, *words])
        settings = {**_SETTINGS, "spark.driver.host": host, **(conf or {})}
        given = shlex.join(f"--conf={name}={value}" for name, value in settings.items())
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        variables |= {"PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell", "PYTHONPATH": path}
        with log.open("w") as errors:
            process = subprocess.Popen(
                command, env=os.environ | variables, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        return Driver(process, log)

    # Hosts

    def everyone_is_back(self) -> None:
        """Start and heal whatever is not up, and wait for it."""
        workers = self.lab.workers
        for host in self.lab.hosts:
            if self.lab.is_cut(host):
                self.lab.heal(host)
        down = [host for host in workers if self.lab._missing(host)]
        if down:
            self.lab._start(down)
        wait_until(lambda: self.lab.alive_workers() == list(workers), "Spark has all hosts", 90)
        wait_until(lambda: self.lab.live_datanodes() == list(workers), "HDFS has all hosts", 90)

    def local_files(self, host: str) -> dict[str, set[str]]:
        """Names of files in a host's ``local_dir``, by claim."""
        root = self.lab.disk(host) / self.local_dir.name
        found: dict[str, set[str]] = {}
        for folder in root.glob("*/*"):
            found[folder.name] = {path.name for path in folder.iterdir()}
        return found

    # Results

    def expected(self) -> set[tuple[str, int, int]]:
        """What a batch makes of all input: word, count, sum."""
        rows = ds.dataset(self.work / "in", format="parquet").to_table()
        groups = rows.group_by("word").aggregate([("amount", "count"), ("amount", "sum")])
        return _rows(groups, "word", "amount_count", "amount_sum")

    def check(self, host: str = "nn") -> dict[str, Any]:
        """Output and state equal batch, ``verify`` passes, ``placement`` works: what was found."""
        expected = self.expected()
        out = ds.dataset(self.work / "out", format="parquet", partitioning="hive").to_table()
        assert out.group_by(["word", "epoch"]).aggregate([]).num_rows == out.num_rows, (
            "an epoch was published twice"
        )
        assert _rows(hf.fold(out, key="word", epoch="epoch"), "word", "n", "total") == expected, (
            "output differs from batch"
        )
        if self.options.get("flow"):
            self._check_endings({word for word, _, _ in expected})
        command = [sys.executable, str(HERE / "cluster_check.py")]
        with self.lab.run(
            host, [*command, self.checkpoint_dir, str(self.work)], stdout=subprocess.PIPE
        ) as checker:
            assert checker.stdout is not None
            found: dict[str, Any] = json.loads(checker.stdout.read().splitlines()[-1])
        state = pq.read_table(self.work / "state.parquet")
        assert state.num_rows == len(expected)
        names = state.column_names
        assert _rows(state, *names[1:4]) == expected, "state differs from batch"
        for command_name in ("verify", "placement"):
            code, words = found[command_name]
            assert code == 0, words
        return found

    def _check_endings(self, words: set[str]) -> None:
        """Of each letter the newest count is that of the words it ends; no epoch came twice."""
        out = ds.dataset(self.work / "endings", format="parquet", partitioning="hive").to_table()
        assert out.group_by(["ending", "epoch"]).aggregate([]).num_rows == out.num_rows
        newest = out.group_by("ending").aggregate([("words", "max")])
        found = dict(_rows(newest, "ending", "words_max"))
        assert found == Counter(word[-1] for word in words), (
            "results that were keyed again differ from batch"
        )


def _rows(table: pa.Table, *columns: str) -> set[tuple[Any, ...]]:
    return set(zip(*(table[name].to_pylist() for name in columns), strict=True))


def hosts_of(placement: Iterable[dict[str, Any]]) -> list[str]:
    """The host of each partition."""
    return [placed["host"] for placed in sorted(placement, key=lambda p: int(p["partition"]))]


def load_of(placement: Iterable[dict[str, Any]]) -> Counter[str]:
    """How many partitions each host has."""
    return Counter(hosts_of(placement))
