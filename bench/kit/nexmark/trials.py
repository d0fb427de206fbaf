"""Runs jobs one after another, each engine in a process of its own, and keeps what came of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress

from bench.kit.data import Dataset
from bench.kit.harness import (
    Finished,
    Harness,
    TrialError,
    run_child,
    sweep,
)
from bench.kit.nexmark.data import is_made, link_input
from bench.kit.nexmark.task import Engine, Input, Job, Task
from bench.kit.rounds import Rounds
from bench.kit.sampling import Sampler
from bench.kit.stats import Row, best, row_of
from bench.kit.trial import Note, Trial

__all__ = ["Trials"]

OnEpoch = Callable[[int], None]


@dataclass
class Trials:
    """All trials of the benchmark."""

    harness: Harness
    console: Console
    rows: list[Row] = field(default_factory=list)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    """By job and engine: why it has no result."""
    versions: dict[str, str] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job], rounds: int) -> None:
        """Generate what is missing, then run all rounds; the engines take turns."""
        with Rounds(self.harness, self.console)._progress() as progress:
            for data in dict.fromkeys(job.input for job in jobs):
                self._generate(data, progress)
            for number in range(1, rounds + 1):
                for job in jobs:
                    for engine in job.engines:
                        if (job.name, engine) not in self.failed:
                            self._run_one(job, engine, number, progress)

    def best(self, job: str, engine: Engine = "holdfast") -> Row | None:
        """The fastest repeat."""
        return best(self.rows, engine, job)

    def _generate(self, data: Input, progress: Progress) -> None:
        if is_made(data, self.harness.cache):
            return
        name = f"data {data.kind} {', '.join(data.streams)}"
        task = progress.add_task(name, total=data.epochs * len(data.streams))
        request = self.harness.folder / f"input-{os.getpid()}.json"
        request.parent.mkdir(parents=True, exist_ok=True)
        request.write_bytes(msgspec.json.encode(data))
        arguments = ["bench.kit.nexmark.data", str(request), str(self.harness.cache)]
        try:
            self._child(arguments, _log(self, "data"), lambda _: progress.advance(task))
        finally:
            request.unlink()
        progress.remove_task(task)
        if not is_made(data, self.harness.cache):
            raise TrialError(f"{name} could not be made; see {_log(self, 'data')}")

    def _run_one(self, job: Job, engine: Engine, number: int, progress: Progress) -> None:
        name = f"{job.name} on {engine}"
        task = progress.add_task(f"round {number}: {name}", total=job.input.epochs)
        try:
            finished = self._trial(job, engine, lambda n: progress.update(task, completed=n + 1))
        except TrialError as error:
            self.failed[job.name, engine] = str(error)
            progress.console.print(f"[red]{name}: {error}", markup=True)
        else:
            row = row_of(finished, number, job.warm_up, engine)
            self.rows.append(row)
            self.versions = finished.outcome.versions
            progress.update(task, completed=job.input.epochs)
            if not self.console.is_terminal:  # there the bars appear at the end only
                rate = f"{row.rows_per_s:,.0f} events/s"
                self.console.print(f"round {number}: {name}, {finished.wall_s:.0f} s, {rate}")
        progress.stop_task(task)

    def _trial(self, job: Job, engine: Engine, on_epoch: OnEpoch) -> Finished:
        work = self.harness.folder / f"work-{os.getpid()}"
        shutil.rmtree(work, ignore_errors=True)
        sweep(self.harness.folder)
        epochs = link_input(job.input, self.harness.cache, work / "input")
        settings = self.harness.settings
        trial = Trial(
            contender=engine,
            input=str(work / "input"),
            work=str(work / "state"),
            epochs=epochs,
            partitions=settings.partitions,
            driver_memory=settings.driver_memory,
        )
        task = Task(engine, job.name, job.rows, job.input.streams, trial)
        request = work / "task.json"
        request.write_bytes(msgspec.json.encode(task))
        Path(trial.work).mkdir()
        log = _log(self, f"{engine}-{job.name}")
        began = time.monotonic()
        try:
            arguments = ["bench.kit.nexmark.worker", str(request)]
            note, sampler = self._child(arguments, log, on_epoch, Path(trial.work))
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if note.outcome is None:
            raise TrialError(f"{note.error} (see {log.name})")
        # A name and the rows of an epoch are all that is read of it.
        dataset = Dataset(job.name, keys=0, rows=job.rows, epochs=epochs)
        return Finished(trial, dataset, note.outcome, sampler, time.monotonic() - began)

    def _child(
        self, arguments: list[str], log: Path, on_epoch: OnEpoch, state: Path | None = None
    ) -> tuple[Note, Sampler]:
        folder = state.parent if state else self.harness.folder
        return run_child(
            arguments,
            log,
            on_epoch,
            folder=folder,
            watched=(state or folder / "none") / "checkpoint",
            timeout_s=self.harness.settings.timeout_s,
        )


def _log(trials: Trials, name: str) -> Path:
    return trials.harness.folder / "logs" / f"nexmark-{name}.log"
