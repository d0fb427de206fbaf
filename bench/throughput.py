"""Steady throughput of count and sum per word, against Spark's own stores and the stateless floor."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.table import Table

from bench.kit import plots
from bench.kit.data import Dataset
from bench.kit.program import Context, main
from bench.kit.report import (
    Bar,
    Report,
    machine,
    mebibytes,
    phases_table,
    ratio_of,
    thousands,
)
from bench.kit.rounds import Job, Rounds
from bench.kit.stats import Row, best, row_of

_WARM_UP = 3
_BARS = {
    "rocksdb": Bar(4.0, meaning="Holdfast's rows/s over Spark's on RocksDB with changelog"),
    "heap": Bar(2.5, meaning="Holdfast's rows/s over Spark's on the heap store"),
    "floor": Bar(0.8, meaning="Holdfast's rows/s over the stateless floor's (1.25 × its time)"),
    "zipf_floor": Bar(1.0, meaning="the same on skewed keys, where it sends less"),
}


def throughput(context: Context) -> Report:
    """Rows a second in steady state, with checkpoints every 2 s."""
    jobs = _jobs(context.quick)
    rounds = Rounds(context.harness, context.console, budget_s=280 if context.quick else None)
    rounds.run(jobs)
    rows = [
        row_of(finished, repeat, _WARM_UP, label)
        for (label, _), trials in rounds.finished.items()
        for repeat, finished in enumerate(trials, 1)
    ]
    ratios, reasons = _ratios(rows, rounds)
    keys = list(dict.fromkeys(job.key for job in jobs))
    chosen = [row for label, data in keys if (row := best(rows, label, data)) is not None]
    context.console.print(_table(chosen))
    own = [(f"holdfast, {r.data}", r.phases_s) for r in chosen if r.contender == "holdfast"]
    if own:
        context.console.print(phases_table("Where an epoch's time goes", own))
    plots.throughput(chosen, context.picture)
    first = next(iter(rounds.finished.values()), [None])[0]
    return Report(
        benchmark="throughput",
        quick=context.quick,
        machine=machine(first.outcome.versions if first else {}),
        settings={
            "partitions": context.harness.settings.partitions,
            "driver_memory": context.harness.settings.driver_memory,
            "checkpoint_interval_s": 2.0,
            "warm_up_epochs": _WARM_UP,
            "repeats": "interleaved; the fastest of each counts",
            "rows_per_s": "rows of the steady epochs over their triggerExecution",
        },
        results=rows,
        ratios=ratios,
        reasons=reasons,
        bars=_BARS,
        left_out=rounds.left_out,
    )


def _jobs(quick: bool) -> list[Job]:
    keys, rows, epochs = (750_000, 750_000, 10) if quick else (1_000_000, 1_000_000, 10)
    uniform = Dataset("uniform", keys, rows, epochs)
    zipf = Dataset("zipf", keys, rows, epochs, zipf=1.1)
    many = Dataset("many", 10 * keys, rows, epochs)
    # Spark's own are slow: in a quick run they get the first epochs of the same input, once.
    rounds, heap, rocksdb = (1, 6, 5) if quick else (2, epochs, epochs)
    jobs = [
        Job("holdfast", "holdfast", uniform, epochs, rounds=2),
        Job("floor", "floor", uniform, epochs, rounds=2),
        Job("heap", "heap", uniform, heap, rounds=rounds),
        Job("rocksdb", "rocksdb", uniform, rocksdb, rounds=rounds),
        Job("holdfast", "holdfast", zipf, epochs, rounds=2),
        Job("floor", "floor", zipf, epochs, rounds=2),
    ]
    if quick:
        return jobs
    return [
        *jobs,
        Job("heap", "heap", zipf, epochs),
        Job("rocksdb", "rocksdb", zipf, epochs),
        Job("holdfast", "holdfast", many, epochs, rounds=2),
        Job("floor", "floor", many, epochs),
        Job("heap", "heap", many, epochs),
        Job("rocksdb", "rocksdb", many, epochs),
    ]


def _ratios(rows: Sequence[Row], rounds: Rounds) -> tuple[dict[str, float | None], dict[str, str]]:
    ratios: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, rival, data in (
        ("rocksdb", "rocksdb", "uniform"),
        ("heap", "heap", "uniform"),
        ("floor", "floor", "uniform"),
        ("zipf_floor", "floor", "zipf"),
    ):
        ours, theirs = best(rows, "holdfast", data), best(rows, rival, data)
        if ours is None or theirs is None:
            ratios[name] = None
            reasons[name] = rounds.why_missing("holdfast" if ours is None else rival, data)
        else:
            ratios[name] = ratio_of(ours.rows_per_s, theirs.rows_per_s)
    return ratios, reasons


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        "data",
        "contender",
        "rows/s",
        "median epoch",
        "CPU s/M rows",
        "others' cores",
        "checkpointed",
        "JVM peak",
        "workers peak (anon.)",
        title="Steady throughput (the fastest repeat of each)",
    )
    for row in rows:
        table.add_row(
            row.data,
            row.contender,
            thousands(row.rows_per_s),
            f"{row.epoch_p50_s:.2f} s",
            "—" if row.cpu_s_per_million_rows is None else f"{row.cpu_s_per_million_rows:.2f}",
            "—" if row.others_cpu is None else f"{row.others_cpu:.1f}",
            mebibytes(row.checkpoint_bytes) if row.contender != "floor" else "",
            mebibytes(row.peak_rss.get("jvm")),
            f"{mebibytes(row.peak_rss.get('workers'))} "
            f"({mebibytes(row.peak_anonymous.get('workers'))})",
        )
    return table


if __name__ == "__main__":
    sys.exit(main("throughput", throughput))
