"""Trials in interleaved rounds (A B C D, A B C D), with progress on the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from bench.kit.data import Dataset, generate
from bench.kit.harness import Finished, Harness, TrialError
from bench.kit.trial import Contender

__all__ = ["Job", "Rounds"]


@dataclass(frozen=True)
class Job:
    """A trial that is repeated ``rounds`` times."""

    label: str
    contender: Contender
    dataset: Dataset
    epochs: int
    rounds: int = 1
    checkpoint_interval_s: float | None = 2.0
    stepped: bool = False
    code: Path | None = None
    """The root of another checkout, if its code is to run instead of this one's."""

    @property
    def key(self) -> tuple[str, str]:
        """What results are found by."""
        return self.label, self.dataset.name


@dataclass
class Rounds:
    """Runs jobs, round by round: what other work disturbs, it disturbs for all of them."""

    harness: Harness
    console: Console
    budget_s: float | None = None
    """Repeats that would not end in this time are left out, and that is said."""
    finished: dict[tuple[str, str], list[Finished]] = field(default_factory=dict)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> None:
        """Generate what is missing, then run all rounds."""
        began = time.monotonic()
        with self._progress() as progress:
            for dataset in dict.fromkeys(job.dataset for job in jobs):
                self._generate(dataset, progress)
            for number in range(max(job.rounds for job in jobs)):
                for job in jobs:
                    if number < job.rounds and job.key not in self.failed:
                        self._run_one(job, number, progress, began)

    def _generate(self, dataset: Dataset, progress: Progress) -> None:
        task = progress.add_task(f"data {dataset.name}", total=dataset.all_epochs, visible=False)
        for _ in generate(dataset, self.harness.cache):
            progress.update(task, advance=1, visible=True)
        progress.remove_task(task)

    def _run_one(self, job: Job, number: int, progress: Progress, began: float) -> None:
        name = f"{job.label} on {job.dataset.name}"
        before = self.finished.get(job.key, [])
        if before and self.budget_s is not None:
            expected = 1.2 * max(f.wall_s for f in before)
            if time.monotonic() - began + expected > self.budget_s:
                self.left_out.append(f"round {number + 1} of {name}")
                return
        task = progress.add_task(f"round {number + 1}: {name}", total=job.epochs)
        try:
            finished = self.harness.run(
                job.contender,
                job.dataset,
                job.epochs,
                checkpoint_interval_s=job.checkpoint_interval_s,
                stepped=job.stepped,
                code=job.code,
                on_epoch=lambda epoch: progress.update(task, completed=epoch + 1),
            )
        except TrialError as error:
            self.failed[job.key] = str(error)
            progress.console.print(f"[red]{name}: {error}")
        else:
            self.finished.setdefault(job.key, []).append(finished)
            progress.update(task, completed=job.epochs)
            if not self.console.is_terminal:  # there the bars appear at the end only
                later = [epoch.rows / epoch.seconds for epoch in finished.outcome.epochs[1:]]
                rate = f", {max(later):,.0f} rows/s in its best epoch" if later else ""
                self.console.print(f"round {number + 1}: {name}, {finished.wall_s:.0f} s{rate}")
        progress.stop_task(task)

    def _progress(self) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            refresh_per_second=2,
        )

    def why_missing(self, label: str, data: str) -> str:
        """Why a trial has no result."""
        return self.failed.get((label, data), f"{label} on {data} was not run")
