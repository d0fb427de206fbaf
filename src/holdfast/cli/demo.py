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
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast.errors import ProcessingError

__all__ = ["demo"]

console = Console()
_FILES = 16
_WORDS = 200_000
_LOG = "driver.log"


@dataclass
class _Run:
    """What the two driver processes told."""

    rows: int = 0
    epochs: int = 0
    seconds: float = 0.0
    recovery_s: float = 0.0
    restart_s: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)


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
    with console.status("writing the input"):
        _generate(work / "in", rows)
    run = _stream(work, rows)
    console.print(_result(run, rows))
    ok = run.summary["equal"] and not run.summary["lost"] and not run.summary["duplicated"]
    console.print(
        f"\nLook next: [bold]holdfast checkpoints {work / 'ck'}[/], [bold]holdfast verify "
        f"{work / 'ck'}[/], [bold]holdfast state {work / 'ck'} --limit 5[/]; "
        "README.md and docs/tutorial.md."
    )
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


def _stream(work: Path, rows: int) -> _Run:
    run = _Run()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("rows", total=rows, rate="")
        driver = _start(work)
        killed = None
        for event in _events(driver):
            run.epochs += 1
            run.rows = int(event["done"])
            run.seconds += float(event["seconds"])
            progress.update(
                bar, completed=run.rows, rate=f"{event['rows'] / event['seconds']:,.0f} rows/s"
            )
            if run.epochs >= _FILES // 2:
                os.kill(driver.pid, signal.SIGKILL)
                killed = time.monotonic()
                break
        driver.wait()
        if killed is None:
            raise _failed(work, "the demo's driver ended before it could be killed")
        progress.console.print(
            f"  [red]SIGKILL[/] to the driver (process {driver.pid}) after epoch {run.epochs - 1}"
        )
        driver = _start(work)
        for event in _events(driver):
            if "summary" in event:
                run.summary = event["summary"]
                continue
            if not run.recovery_s:
                run.recovery_s = time.monotonic() - killed
                run.restart_s = float(event["ready_s"])
                progress.console.print(
                    f"  restarted: continues at epoch {event['epoch']}, whose result was there "
                    f"{run.recovery_s:.1f} s after the kill"
                )
            run.seconds += float(event["seconds"])
            run.rows = int(event["done"])
            progress.update(
                bar, completed=run.rows, rate=f"{event['rows'] / event['seconds']:,.0f} rows/s"
            )
        if driver.wait() != 0 or not run.summary:
            raise _failed(work, "the demo's second driver failed")
    return run


def _start(work: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast.spark.demo_driver", str(work)]
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
        ("  of which Holdfast's restore", f"{run.restart_s:.2f} s"),
        ("lost", f"{summary['lost']:,}"),
        ("duplicated", f"{summary['duplicated']:,}"),
        ("equal to batch", equal),
        ("throughput (epochs)", f"{rows / run.seconds:,.0f} rows/s"),
    ):
        table.add_row(name, value)
    return table
