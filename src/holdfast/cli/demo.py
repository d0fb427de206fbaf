"""``holdfast demo``: a word count that is killed half-way, continues, and is compared with batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from holdfast.cli import show
from holdfast.errors import ProcessingError

__all__ = ["demo"]

console = show.console
_FILES = 16
_WORDS = 200_000
_LOG = "driver.log"
_PHASES = {
    "python": "Python starts, and imports PySpark",
    "spark": "Spark starts a JVM",
    "restore": "Holdfast reads the log, claims it and restores the state",
    "epochs": "epochs are streamed",
    "compare": "Spark computes the same in one batch, to compare with",
}


@dataclass
class _Run:
    """What the two driver processes told."""

    rows: int = 0
    epochs: int = 0
    seconds: float = 0.0
    recovery_s: float = 0.0
    restart_s: dict[str, float] = field(default_factory=dict)
    """How long each phase of the restart took."""
    summary: dict[str, Any] = field(default_factory=dict)

    def add(self, epoch: dict[str, Any], phases: _Phases) -> None:
        """An epoch is done."""
        self.rows = int(epoch["done"])
        self.seconds += float(epoch["seconds"])
        phases.advance(self.rows, epoch["rows"] / epoch["seconds"])


def demo(
    rows: Annotated[int, typer.Option(help="How many rows to stream.")] = 3_000_000,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to work; a new temporary folder unless given."),
    ] = None,
) -> None:
    """Run a word count, kill -9 its driver half-way, restart it, and compare with Spark's batch."""
    work = directory or Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    console.print(f"[bold]Holdfast demo[/]: {rows:,} rows, {_FILES} epochs, working in {work}")
    console.print(
        "One to two minutes on two cores: Spark is started twice, which takes most of the time."
    )
    with console.status("writing the input"):
        _generate(work / "in", rows)
    run = _stream(work, rows)
    console.print(_result(run, rows))
    ok = run.summary["equal"] and not run.summary["lost"] and not run.summary["duplicated"]
    console.print("\nLook next:")
    for words in (("checkpoints",), ("verify",), ("state", "--limit", 5)):
        line = show.command(words[0], work / "ck", *words[1:])
        # On one line, to be copied.
        console.print(f"  [bold]{escape(line)}[/]", soft_wrap=True, highlight=False)
    console.print("Read next: README.md and docs/tutorial.md.")
    raise typer.Exit(0 if ok else 1)


def _generate(folder: Path, rows: int) -> None:
    """Words with a long tail, amounts in cents: the same every time."""
    if folder.exists() and any(folder.iterdir()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    each = rows // _FILES
    for number in range(_FILES):
        picked = (random.pareto(0.7, each) * 10).astype(np.int64) % _WORDS
        words = pa.array(np.char.add("word-", picked.astype(str)))
        seconds = np.datetime64("2026-01-01T00:00:00", "us") + np.arange(each) + number * each
        table = pa.table(
            {"word": words, "amount": random.integers(1, 10_000, each), "ts": pa.array(seconds)}
        )
        pq.write_table(table, folder / f"{number:04d}.parquet")
        stamp = 1_700_000_000 + number
        os.utime(folder / f"{number:04d}.parquet", (stamp, stamp))


class _Phases:
    """Says what is going on while it goes on, and how long it took once it is over."""

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self._progress, self._bar = progress, bar
        self._what = ""
        self._began = 0.0

    def begin(self, what: str) -> float:
        """A phase begins, and the one before is over: how long that took."""
        now = time.monotonic()
        took = now - self._began
        if self._what:
            self._progress.console.print(f"  {took:5.1f} s  {self._what}", highlight=False)
        self._what, self._began = what, now
        if what and not self._progress.console.is_terminal:
            # There is no line that changes.
            self._progress.console.print(f"      …  {what}", highlight=False)
        self._progress.update(self._bar, description=what or "rows")
        return took

    def advance(self, rows: int, rate: float) -> None:
        """So many rows are done."""
        self._progress.update(self._bar, completed=rows, rate=f"{rate:,.0f} rows/s")


def _stream(work: Path, rows: int) -> _Run:
    run = _Run()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("rows", total=rows, rate="")
        phases = _Phases(progress, bar)
        killed = _until_killed(work, run, phases)
        _after_restart(work, run, phases, killed)
        phases.begin("")
    return run


def _until_killed(work: Path, run: _Run, phases: _Phases) -> float:
    """Stream half of the epochs, and kill the driver; when."""
    phases.begin(_PHASES["python"])
    driver = _start(work)
    for event in _events(driver):
        if "phase" in event:
            phases.begin(_PHASES[event["phase"]])
            continue
        run.add(event, phases)
        run.epochs += 1
        if run.epochs >= _FILES // 2:
            os.kill(driver.pid, signal.SIGKILL)
            killed = time.monotonic()
            driver.wait()
            phases.begin("")
            console.print(
                f"  [red]SIGKILL[/] to the driver (process {driver.pid}) after epoch "
                f"{run.epochs - 1}; it is started again"
            )
            return killed
    driver.wait()
    raise _failed(work, "the demo's driver ended before it could be killed")


def _after_restart(work: Path, run: _Run, phases: _Phases, killed: float) -> None:
    """Stream the rest, and compare."""
    phases.begin(f"{_PHASES['python']}, again")
    driver = _start(work)
    phase = "python"
    for event in _events(driver):
        if "phase" in event:
            what = _PHASES[event["phase"]]
            took = phases.begin(
                "the first epoch after the restart" if event["phase"] == "epochs" else what
            )
            run.restart_s.setdefault(phase, took)
            phase = event["phase"]
        elif "summary" in event:
            run.summary = event["summary"]
        else:
            if not run.recovery_s:
                run.recovery_s = time.monotonic() - killed
                run.restart_s[phase] = phases.begin(_PHASES["epochs"])
                console.print(
                    f"  restarted: continues at epoch {event['epoch']}, whose result was there "
                    f"{run.recovery_s:.1f} s after the kill"
                )
            run.add(event, phases)
    if driver.wait() != 0 or not run.summary:
        raise _failed(work, "the demo's second driver failed")


def _start(work: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast.cli.demo_driver", str(work)]
    # Spark has much to say when its driver is killed; it says it there.
    with (work / _LOG).open("a") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)


def _failed(work: Path, what: str) -> ProcessingError:
    said = (work / _LOG).read_text().splitlines()[-15:]
    return ProcessingError(f"{what}:\n" + "\n".join(said), hint=f"the rest is in {work / _LOG}")


def _events(driver: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def _result(run: _Run, rows: int) -> Table:
    table = Table(title="Killed once, nothing lost", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    summary = run.summary
    equal = "[green]yes[/]" if summary["equal"] else "[red]NO[/]"
    for name, value in (
        ("rows in", f"{rows:,}"),
        ("keys", f"{summary['keys']:,}"),
        ("recovery (kill to next result)", f"{run.recovery_s:.1f} s"),
        ("  Python starts", f"{run.restart_s['python']:.1f} s"),
        ("  Spark starts", f"{run.restart_s['spark']:.1f} s"),
        ("  Holdfast restores", f"{run.restart_s['restore']:.1f} s"),
        ("  the first epoch", f"{run.restart_s['epochs']:.1f} s"),
        ("lost", f"{summary['lost']:,}"),
        ("duplicated", f"{summary['duplicated']:,}"),
        ("equal to batch", equal),
        ("throughput (epochs)", f"{rows / run.seconds:,.0f} rows/s"),
    ):
        table.add_row(name, value)
    return table
