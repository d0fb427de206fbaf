"""Runs trials one after another, each in a fresh process, and ends what it started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.kit import proc
from bench.kit.data import Dataset, link_input
from bench.kit.sampling import Sampler
from bench.kit.trial import MARK, Contender, Note, Outcome, Trial

__all__ = ["Finished", "Harness", "Settings", "TrialError", "end_tree", "run_child", "sweep"]

_ROOT = Path(__file__).resolve().parents[2]


class TrialError(Exception):
    """A contender could not be measured; the message says why."""


@dataclass(frozen=True)
class Settings:
    """What is the same for every contender."""

    partitions: int = 2
    driver_memory: str = "6g"
    timeout_s: float = 900.0


@dataclass(frozen=True)
class Finished:
    """A trial that came to its end, with what was seen from outside."""

    trial: Trial
    dataset: Dataset
    outcome: Outcome
    sampler: Sampler
    wall_s: float
    """Of the whole process, with the start of the JVM."""


@dataclass
class Harness:
    """One benchmark's trials."""

    folder: Path
    """``data`` is the cache; ``work`` is emptied before and after every trial; ``logs`` stay."""
    settings: Settings

    @property
    def cache(self) -> Path:
        """Where generated data is kept."""
        return self.folder / "data"

    def run(
        self,
        contender: Contender,
        dataset: Dataset,
        epochs: int,
        *,
        checkpoint_interval_s: float | None = 2.0,
        stepped: bool = False,
        code: Path | None = None,
        on_epoch: Callable[[int], None],
    ) -> Finished:
        """Run one contender on the first ``epochs`` epochs of a dataset, or raise TrialError."""
        work = self.folder / f"work-{os.getpid()}"
        shutil.rmtree(work, ignore_errors=True)
        sweep(self.folder)
        link_input(dataset, self.cache, epochs, work / "input")
        trial = Trial(
            contender=contender,
            input=str(work / "input"),
            work=str(work / "state"),
            epochs=epochs,
            partitions=self.settings.partitions,
            driver_memory=self.settings.driver_memory,
            checkpoint_interval_s=checkpoint_interval_s,
            stepped=stepped,
        )
        log = self.folder / "logs" / f"{contender}-{dataset.name}.log"
        began = time.monotonic()
        try:
            outcome, sampler = self._run_child(trial, log, on_epoch, code or _ROOT)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        rows = sum(e.rows for e in outcome.epochs)
        expected = _rows(dataset, epochs)
        if rows != expected:
            raise TrialError(f"{contender} read {rows} rows of {expected}; see {log}")
        return Finished(trial, dataset, outcome, sampler, time.monotonic() - began)

    def _run_child(
        self, trial: Trial, log: Path, on_epoch: Callable[[int], None], code: Path
    ) -> tuple[Outcome, Sampler]:
        state = Path(trial.work)
        state.mkdir(parents=True)
        request = state.parent / "trial.json"
        request.write_bytes(msgspec.json.encode(trial))
        note, sampler = run_child(
            ["bench.kit.worker", str(request)],
            log,
            on_epoch,
            folder=state.parent,
            watched=state / "checkpoint",
            timeout_s=self.settings.timeout_s,
            code=code,
        )
        if note.outcome is None:
            raise TrialError(f"{trial.contender} failed: {note.error}; see {log}")
        return note.outcome, sampler


def run_child(
    arguments: Sequence[str],
    log: Path,
    on_epoch: Callable[[int], None],
    *,
    folder: Path,
    watched: Path,
    timeout_s: float,
    code: Path = _ROOT,
) -> tuple[Note, Sampler]:
    """Run a module in a process of its own, of this checkout or another; its last note, and what was seen from outside.

    A note without an outcome says in ``error`` why there is none.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=code,
            env=_environment(folder, code),
            stdin=subprocess.PIPE,  # its end tells the child that we are gone
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
        )
        sampler = Sampler(child.pid, watched)
        late = threading.Event()
        timer = threading.Timer(timeout_s, _end_late, [child.pid, late])
        timer.start()
        try:
            note = _listen(child, on_epoch)
        finally:
            timer.cancel()
            sampler.stop()
            end_tree(child.pid)
            child.wait()
    if note.outcome is None and note.error is None:
        why = f"it ended with code {child.returncode}"
        note = Note(error=f"not done after {timeout_s:.0f} s" if late.is_set() else why)
    return note, sampler


def _listen(child: subprocess.Popen[str], on_epoch: Callable[[int], None]) -> Note:
    """Follow the child's notes until one says how it went, or its output ends."""
    last = Note()
    assert child.stdout is not None
    for line in child.stdout:
        if not line.startswith(MARK):
            continue
        note = msgspec.json.decode(line.removeprefix(MARK), type=Note)
        if note.epoch is not None:
            on_epoch(note.epoch)
        else:
            last = note
            break
    return last


def sweep(folder: Path) -> None:
    """Remove what harnesses left that were killed."""
    for left in folder.glob("work-*"):
        if not Path("/proc", left.name.removeprefix("work-")).exists():
            shutil.rmtree(left, ignore_errors=True)


def _end_late(root: int, late: threading.Event) -> None:
    late.set()
    end_tree(root)


def end_tree(root: int) -> None:
    """End a child of ours with everything that it started."""
    # Children first noted, then ended: once a parent is gone, nothing leads to them.
    for process in proc.tree(root):
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _environment(work: Path, code: Path) -> dict[str, str]:
    variables = dict(os.environ)
    variables["PYSPARK_PYTHON"] = sys.executable
    variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    variables["TMPDIR"] = str(work)
    # What is installed of Holdfast is this checkout's: the folder of the code comes before it.
    paths = [str(code), str(code / "src"), variables.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return variables


def _rows(dataset: Dataset, epochs: int) -> int:
    built = dataset.keys * min(epochs, dataset.build) // dataset.build if dataset.build else 0
    return built + max(0, epochs - dataset.build) * dataset.rows
