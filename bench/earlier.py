"""This Holdfast beside an earlier commit's, on the same data in the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from rich.table import Table

from bench.kit import plots
from bench.kit.data import Dataset
from bench.kit.program import Context, main
from bench.kit.report import Bar, Report, machine, ratio_of, thousands
from bench.kit.rounds import Job, Rounds
from bench.kit.stats import Row, best, row_of

_ROOT = Path(__file__).resolve().parents[1]
_VARIABLE = "HOLDFAST_BENCH_EARLIER"
_REACHED = 0.97
_NOW, _EARLIER = "now", "earlier"
_WARM_UP = {"tiny": 21}
"""Of the others the first three epochs don't count."""


def earlier(context: Context) -> Report:
    """Rows a second, CPU time and tiny epochs of this code over those of HOLDFAST_BENCH_EARLIER (HEAD~1)."""
    revision = _git("rev-parse", os.environ.get(_VARIABLE, "HEAD~1")).decode().strip()
    code = _code_of(revision, context.harness.folder / "revisions")
    context.console.print(f"earlier: {revision[:12]}")
    jobs = _jobs(context.quick, code)
    rounds = Rounds(context.harness, context.console)
    rounds.run(jobs)
    rows = [
        row_of(finished, repeat, _WARM_UP.get(data, 3), label)
        for (label, data), trials in rounds.finished.items()
        for repeat, finished in enumerate(trials, 1)
    ]
    ratios, reasons = _ratios(rows, rounds, jobs)
    chosen = [row for key in _keys(jobs) if (row := best(rows, *key)) is not None]
    context.console.print(_table(chosen))
    plots.rates(
        [row for row in chosen if row.data not in _WARM_UP],
        f"Holdfast now and at {revision[:12]} (longer is better)",
        context.picture,
    )
    first = next(iter(rounds.finished.values()), [None])[0]
    return Report(
        benchmark="earlier",
        quick=context.quick,
        machine=machine(first.outcome.versions if first else {}),
        settings={
            "earlier": revision,
            "checkpoint_interval_s": 2.0,
            "repeats": "interleaved; the fastest of each counts, of CPU time the least",
        },
        results=rows,
        ratios=ratios,
        reasons=reasons,
        bars={name: Bar(_REACHED, meaning=_meaning(name)) for name in ratios},
        left_out=rounds.left_out,
    )


def _jobs(quick: bool, code: Path) -> list[Job]:
    size, measured = (500_000, 80) if quick else (1_000_000, 300)
    repeats = 2 if quick else 3
    chosen = [
        ("holdfast", Dataset("uniform", size, size, 10)),
        ("holdfast", Dataset("zipf", size, size, 10, zipf=1.1)),
        ("keyed", Dataset("rows", size // 2, size // 2, 12)),
        ("batch", Dataset("columns", size, size, 10)),
        ("holdfast", Dataset("tiny", 100_000, 100, 20 + measured, build=1)),
    ]
    return [
        Job(label, contender, data, data.all_epochs, rounds=repeats, code=where)  # type: ignore[arg-type]
        for contender, data in chosen
        for label, where in ((_NOW, None), (_EARLIER, code))
    ]


def _keys(jobs: Sequence[Job]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(job.key for job in jobs))


def _ratios(
    rows: Sequence[Row], rounds: Rounds, jobs: Sequence[Job]
) -> tuple[dict[str, float | None], dict[str, str]]:
    ratios: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for data in dict.fromkeys(job.dataset.name for job in jobs):
        now, before = best(rows, _NOW, data), best(rows, _EARLIER, data)
        if now is None or before is None:
            ratios[data] = None
            reasons[data] = rounds.why_missing(_NOW if now is None else _EARLIER, data)
        elif data in _WARM_UP:
            ratios[data] = ratio_of(before.epoch_p50_s, now.epoch_p50_s)
        else:
            ratios[data] = ratio_of(now.rows_per_s, before.rows_per_s)
        spent = [_least_cpu(rows, label, data) for label in (_EARLIER, _NOW)]
        ratios[f"{data}_cpu"] = ratio_of(*spent)
        if ratios[f"{data}_cpu"] is None:
            reasons[f"{data}_cpu"] = "CPU time was not measured for both"
    return ratios, reasons


def _least_cpu(rows: Sequence[Row], label: str, data: str) -> float | None:
    spent = [
        row.cpu_s_per_million_rows for row in rows if (row.contender, row.data) == (label, data)
    ]
    return min((each for each in spent if each is not None), default=None)


def _meaning(name: str) -> str:
    data, _, cpu = name.partition("_")
    if cpu:
        return f"{data}: the earlier CPU time over that of now"
    if data in _WARM_UP:
        return f"{data}: the earlier p50 over that of now"
    return f"{data}: rows/s of now over the earlier ones"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        "data",
        "code",
        "rows/s",
        "median epoch",
        "CPU s/M rows",
        "others' cores",
        title="Now and earlier",
    )
    for row in rows:
        table.add_row(
            row.data,
            row.contender,
            thousands(row.rows_per_s),
            f"{row.epoch_p50_s:.3f} s",
            "—" if row.cpu_s_per_million_rows is None else f"{row.cpu_s_per_million_rows:.2f}",
            "—" if row.others_cpu is None else f"{row.others_cpu:.1f}",
        )
    return table


def _code_of(revision: str, folder: Path) -> Path:
    """A commit's files, in a folder of their own."""
    there = folder / revision
    if not there.exists():
        partial = there.with_suffix(".partial")
        with tarfile.open(fileobj=BytesIO(_git("archive", revision, "src", "bench"))) as files:
            files.extractall(partial, filter="data")
        partial.rename(there)
    return there


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    sys.exit(main("earlier", earlier))
