"""The experiment: state is built once per size, then the host that holds it is killed, again and again."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from bench.kit.recovery.bound import bound, small_reads
from bench.kit.recovery.hosts import CANDIDATES, SplitLab, wait_for
from bench.kit.recovery.program import DriverProgram
from bench.kit.recovery.records import Bound, Built, Failure, Restore
from bench.kit.recovery.text import Text, touching

__all__ = ["Experiment", "Pipe"]

_LONG_S = 600.0
_LOOK_S = 0.02


@dataclass
class Pipe:
    """One word count: its input, and where its checkpoint is."""

    text: Text
    folder: Path
    engine: str
    checkpoint: str
    more: int = 0
    """How many small epochs were added to the input."""

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return f"words-{self.text.megabytes}"

    @property
    def source(self) -> Path:
        """The folder that the stream reads."""
        return self.folder / "input"

    def feed(self, data: bytes | None = None) -> None:
        """Some more text, to be the next epoch."""
        half = self.folder / "half.txt"
        half.write_bytes(self.text.more(self.more) if data is None else data)
        half.rename(self.source / f"more-{self.more:04d}.txt")
        self.more += 1


class Experiment:
    """Runs pipelines on a lab, and breaks it."""

    def __init__(self, lab: SplitLab, work: Path, cache: Path, console: Console) -> None:
        self.lab = lab
        self.work = work
        self.cache = cache
        self.console = console
        self.rate: str | None = None
        self._driver: DriverProgram | None = None
        self._engine = ""
        self._pipe: Pipe | None = None
        self._holder = ""

    # ---- pipelines

    def build(self, megabytes: int, engine: str = "holdfast") -> tuple[Pipe, Built]:
        """Process all of a text and put it into a checkpoint."""
        text = Text(megabytes)
        folder = self.work / f"{engine}-{megabytes}"
        pipe = Pipe(text, folder, engine, f"{self.lab.hdfs_url}/{engine}-{megabytes}")
        text.write(self.cache, pipe.source)
        self.limit(None)
        self._use_engine(engine)
        began = time.monotonic()
        self.open(pipe)
        seconds = time.monotonic() - began
        stored = local = None
        if engine == "holdfast":
            found = self._ask("runs")
            files = self.lab.local_files(self._holder, pipe.name)
            stored = found["stored_bytes"]
            local = sum(files.get(name, 0) for name in found["runs"])
        built = Built(engine, megabytes, text.records, text.keys, seconds, stored, local)
        self.console.print(f"built {_words(built)}")
        return pipe, built

    def open(self, pipe: Pipe) -> None:
        """Let this pipeline run, and process all of its input."""
        if self._pipe is pipe:
            return
        self._use_engine(pipe.engine)
        if self._pipe is not None:
            self._ask("stop")
        self._pipe = pipe
        pipe.feed()
        self._start()
        self._ran()
        if pipe.engine == "holdfast":
            self._hold_alone(pipe)

    def _hold_alone(self, pipe: Pipe) -> None:
        """One host has all state on its disk, and the other nothing."""
        names = self._ask("runs")["runs"]
        wait_for(
            lambda: self.lab.has_runs(self._holder, pipe.name, names),
            f"the state on {self._holder}",
            _LONG_S,
        )
        if self.lab.local_files(_other(self._holder), pipe.name).keys() & set(names):
            # It was here before. The driver knows that and would count on it.
            self._ask("stop")
            self.lab.wipe(_other(self._holder), pipe.name)
            self._start()
            pipe.feed()
            self._ran()

    def limit(self, rate: str | None) -> None:
        """Change the speed of all cables."""
        if rate != self.rate:
            self.lab.rate(rate)
            self.rate = rate

    # ---- failures

    def lose_host(self, pipe: Pipe, repeat: int) -> Failure:
        """Kill the host with the state; another one goes on. Then the host returns, empty."""
        self.open(pipe)
        lost = self._holder
        spare = _other(lost)
        names = self._ask("runs")["runs"] if pipe.engine == "holdfast" else []
        if self.lab.local_files(spare, pipe.name).keys() & set(names):
            raise RuntimeError(f"{spare} has the state before {lost} is killed")
        if self.lab.arrangement == "local":
            # Else HDFS makes them meanwhile, over the cable that is measured.
            wait_for(lambda: self.lab.copies_to_make() == 0, "all copies in HDFS", _LONG_S)
        before = self.lab.bytes(spare)
        killed = time.monotonic()
        self.lab.kill(lost)
        pipe.feed()
        watch = _Watch(self.lab, spare, pipe.name, names)
        answer = self._ran()
        usable = watch.wait(self._ask("runs")["runs"]) if names else None
        after = self.lab.bytes(spare)
        told = self._ask("recovery", since=killed) if names else {}
        failure = self._failure(
            "host",
            repeat,
            killed,
            answer,
            told,
            usable=usable,
            wire=(after[0] - before[0], after[1] - before[1]),
        )
        self._bring_back(lost)
        return failure

    def lose_executor(self, pipe: Pipe, repeat: int) -> Failure:
        """Kill the executor with the state; its host starts another."""
        self.open(pipe)
        killed = time.monotonic()
        self.lab.kill_executors(self._holder)
        pipe.feed()
        answer = self._ran()
        failure = self._failure(
            "executor", repeat, killed, answer, self._ask("recovery", since=killed)
        )
        self._wait_for_executors()
        return failure

    def lose_driver(self, pipe: Pipe, repeat: int) -> Failure:
        """Kill the driver; another takes over at once."""
        self.open(pipe)
        assert self._driver is not None
        pipe.feed()
        killed = time.monotonic()
        self._driver.kill()
        self._driver = None
        self._use_engine(pipe.engine)
        assert self._driver is not None
        started = self._driver.ready
        self._pipe = pipe
        began = self._start()
        answer = self._ran()
        failure = self._failure("driver", repeat, killed, answer, {})
        steps = {
            "session": started - killed,
            "start": began["at"] - began["began"],
            "epoch": answer["committed"] - began["at"],
        }
        self._wait_for_executors()
        return _with_steps(failure, steps)

    def restore(self, pipe: Pipe, share: float) -> Restore:
        """Start with empty local disks, and an epoch that touches a share of the keys."""
        self.open(pipe)
        names = self._ask("runs")["runs"]
        self._ask("stop")
        for host in CANDIDATES:
            self.lab.wipe(host, pipe.name)
        pipe.feed(touching(pipe.text.keys, share, pipe.more))
        began = self._start()["began"]
        watches = [_Watch(self.lab, host, pipe.name, names) for host in CANDIDATES]
        first = self._ask("epochs", after=0)["at"]
        answer = self._ran()
        full = watches[CANDIDATES.index(self._holder)].wait(self._ask("runs")["runs"])
        for watch in watches:
            watch.stop()
        return Restore(
            pipe.text.megabytes,
            self.rate,
            max(1, round(pipe.text.keys * share)),
            first - began,
            full - began,
            answer["committed"] - began,
        )

    def bound(self, pipe: Pipe, share: float, bytes_per_second: float) -> Bound:
        """What an epoch on a share of the keys could do at best after a restore, at this rate."""
        self.open(pipe)
        found = self._ask("runs")
        path = f"{pipe.checkpoint}/{found['largest']}".removeprefix(self.lab.hdfs_url)
        reads = small_reads(self.lab, CANDIDATES[0], path, "word")
        return bound(pipe.text, share, found["stored_bytes"], bytes_per_second, reads)

    def mend(self) -> None:
        """After something went wrong: whole hosts, and a new driver with the next pipeline."""
        self.close()
        for host in CANDIDATES:
            self.lab.start(host)

    def close(self) -> None:
        """End the driver."""
        if self._driver is not None:
            self._driver.kill()
            self._driver = None
        self._pipe = None

    # ---- inside

    def _use_engine(self, engine: str) -> None:
        if self._driver is not None and self._engine == engine:
            return
        self.close()
        self._engine = engine
        self._driver = DriverProgram(self.lab, engine, self.lab.logs / f"driver-{engine}.log")
        self._wait_for_executors()

    def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self._driver is not None
        return self._driver.ask(what, **arguments)

    def _start(self) -> dict[str, Any]:
        assert self._pipe is not None
        return self._ask(
            "start",
            name=self._pipe.name,
            source=str(self._pipe.source),
            checkpoint=self._pipe.checkpoint,
            local=str(self.lab.local_disk / self._pipe.name),
        )

    def _ran(self) -> dict[str, Any]:
        answer = self._ask("run")
        self._holder = answer["host"] if "host" in answer else _newest_store(self.lab)
        return answer

    def _failure(
        self,
        kind: str,
        repeat: int,
        killed: float,
        answer: dict[str, Any],
        told: dict[str, Any],
        usable: float | None = None,
        wire: tuple[int, int] | None = None,
    ) -> Failure:
        assert self._pipe is not None
        detected = told.get("detected")
        failure = Failure(
            kind=kind,
            engine=self._engine,
            megabytes=self._pipe.text.megabytes,
            arrangement=self.lab.arrangement,
            rate=self.rate,
            repeat=repeat,
            committed_s=answer["committed"] - killed,
            detected_s=None if detected is None else detected - killed,
            usable_s=None if usable is None else usable - killed,
            wire_in=None if wire is None else wire[0],
            wire_out=None if wire is None else wire[1],
            steps=told.get("steps", {}),
            events=told.get("events", []),
            note=f"{answer['restarts']} restarts" if answer.get("restarts") else "",
        )
        self.console.print(_told(failure))
        return failure

    def _bring_back(self, host: str) -> None:
        assert self._pipe is not None
        self.lab.wipe(host, self._pipe.name)
        began = time.monotonic()
        self.lab.start(host)
        self._wait_for_executors()
        if self._engine == "holdfast":
            self._ask("looked_at", host=host, since=began)

    def _wait_for_executors(self) -> None:
        """Until every candidate has one: the next failure begins from the same place."""
        self._ask("executors", least=len(CANDIDATES))


def _other(host: str) -> str:
    (other,) = (candidate for candidate in CANDIDATES if candidate != host)
    return other


class _Watch:
    """Sees from outside when runs arrive on a host's disk."""

    def __init__(self, lab: SplitLab, host: str, pipeline: str, names: list[str]) -> None:
        self._seen: dict[str, float] = {}
        self._stop = threading.Event()
        self._lab, self._host, self._pipeline, self._names = lab, host, pipeline, names
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_S) and len(self._seen) < len(self._names):
            here = self._lab.local_files(self._host, self._pipeline)
            for name in self._names:
                if name in here:
                    self._seen.setdefault(name, time.monotonic())

    def wait(self, still: list[str]) -> float:
        """The moment the host had all of those that are ``still`` needed.

        An epoch may merge small runs: those it replaced were read, and never need to arrive.
        """
        needed = [name for name in self._names if name in still]
        if not needed:
            self.stop()
            raise RuntimeError("a merge replaced every run: when the state was there isn't known")
        wait_for(lambda: all(n in self._seen for n in needed), f"runs on {self._host}", _LONG_S)
        self.stop()
        return max(self._seen[name] for name in needed)

    def stop(self) -> None:
        """Give up."""
        self._stop.set()
        self._thread.join()


def _newest_store(lab: SplitLab) -> str:
    """The host on which Spark's RocksDB has written last."""
    newest = {}
    for host in CANDIDATES:
        folders = lab.spark_folder(host).rglob("*StateStoreId*")
        newest[host] = max((f.stat().st_mtime for f in folders if f.exists()), default=0.0)
    return max(newest, key=lambda host: newest[host])


def _with_steps(failure: Failure, steps: dict[str, float]) -> Failure:
    return msgspec.structs.replace(failure, steps=steps)


def _words(built: Built) -> str:
    kept = "" if built.stored_bytes is None else f", {built.stored_bytes / 1e6:.0f} MB stored"
    return (
        f"{built.megabytes} MB ({built.engine}): {built.records:,} records, {built.keys:,} keys"
        f"{kept}, {built.seconds:.0f} s"
    )


def _told(f: Failure) -> str:
    parts = [
        f"{f.kind} killed, {f.megabytes} MB, {f.engine}, {f.arrangement}, {f.rate or 'unlimited'}:"
    ]
    if f.detected_s is not None:
        parts.append(f"noticed {f.detected_s:.2f} s,")
    if f.usable_s is not None:
        parts.append(f"usable {f.usable_s:.2f} s,")
    parts.append(f"committed {f.committed_s:.2f} s")
    if f.wire_in is not None:
        parts.append(f"({f.wire_in / 1e6:.2f} MB in)")
    return " ".join(parts) + (f" [{f.note}]" if f.note else "")
