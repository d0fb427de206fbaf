"""User code per key and on columns, against PySpark's transformWithState and Holdfast's own aggregate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from bench.kit import plots
from bench.kit.data import Dataset
from bench.kit.map_reads import MapReads, measure_map_reads
from bench.kit.program import Context, main
from bench.kit.report import Bar, Report, machine, mebibytes, phases_table, ratio_of, thousands
from bench.kit.rounds import Job, Rounds
from bench.kit.stats import Row, best, row_of

_RIVALS = ("tws-row", "tws-pandas")
_MAPS = (1_000, 1_000_000)
_BARS = {
    "keyed_over_tws_row": Bar(50, meaning="KeyedProcess over transformWithState (Row, RocksDB)"),
    "dropin_over_tws_row": Bar(20, meaning="the StatefulProcessor unchanged, on Rows"),
    "dropin_over_tws_pandas": Bar(6, meaning="the same on pandas frames"),
    "batch_over_aggregate": Bar(0.8, meaning="BatchProcess over the built-in aggregate"),
    "map_read_growth": Bar(
        3, at_least=False, meaning="a MapState read, 1M entries over 1,000 entries"
    ),
    "memory_growth": Bar(
        1.2, at_least=False, meaning="a worker's anonymous memory, ten times the keys"
    ),
}


def process(context: Context) -> Report:
    """Rows a second of count and sum per word as user code; map reads; memory."""
    jobs = _jobs(context.quick)
    rounds = Rounds(context.harness, context.console)
    rounds.run(jobs)
    context.console.print("reading maps …")
    reads = measure_map_reads(_MAPS)
    rows = [
        row_of(finished, repeat, _warm_up(job), job.label)
        for job in jobs
        for repeat, finished in enumerate(rounds.finished.get(job.key, ()), 1)
    ]
    ratios, reasons = _ratios(rows, rounds, reads)
    keys = list(dict.fromkeys(job.key for job in jobs))
    chosen = [row for label, data in keys if (row := best(rows, label, data)) is not None]
    context.console.print(_table(chosen))
    shown = [
        (f"{r.contender}, {r.data}", r.phases_s)
        for r in chosen
        if not r.contender.startswith("tws")
    ]
    context.console.print(phases_table("Where an epoch's time goes", shown))
    plots.rates(
        [r for r in chosen if r.data in ("rows", "frames", "uniform")],
        "Count and sum per key as user code (longer is better)",
        context.picture,
    )
    first = next(iter(rounds.finished.values()), [None])[0]
    results: list[Any] = [*rows, reads]
    return Report(
        benchmark="process",
        quick=context.quick,
        machine=machine(first.outcome.versions if first else {}),
        settings={
            "partitions": context.harness.settings.partitions,
            "checkpoint_interval_s": 2.0,
            "repeats": "interleaved; the fastest of each counts",
            "rows_per_s": "rows of the steady epochs over their triggerExecution",
            "warm_up_epochs": "a third; the first of transformWithState",
            "transformWithState": "runs the first epochs of the same input",
        },
        results=results,
        ratios=ratios,
        reasons=reasons,
        bars=_BARS,
        left_out=rounds.left_out,
    )


def _warm_up(job: Job) -> int:
    """How many epochs don't count: the JVM compiles for half a minute. A rival's epoch is longer."""
    return 1 if job.label in _RIVALS else max(2, job.epochs // 3)


def _jobs(quick: bool) -> list[Job]:
    size = 450_000 if quick else 1_000_000
    rows = Dataset("rows", size, size, 24 if quick else 15)
    framed = 30_000 if quick else 100_000
    frames = Dataset("frames", framed, framed, 8)
    uniform = Dataset("uniform", 750_000, 750_000, 10)
    small, large = (200_000, 2_000_000) if quick else (1_000_000, 10_000_000)
    # As many epochs of one size for both: an allocator's peak grows a little with each.
    more = Dataset("more-keys", large, 100_000, 4, build=large // 100_000)
    built = small // 100_000
    fewer = Dataset("fewer-keys", small, 100_000, more.all_epochs - built, build=built)
    repeats = 1 if quick else 2
    return [
        Job("keyed", "keyed", rows, rows.epochs, rounds=repeats),
        Job("dropin-row", "dropin-row", rows, rows.epochs, rounds=repeats),
        Job("tws-row", "tws-row", rows, 2),
        Job("dropin-pandas", "dropin-pandas", frames, frames.epochs),
        Job("tws-pandas", "tws-pandas", frames, 2),
        Job("batch", "batch", uniform, 10, rounds=repeats),
        Job("aggregate", "holdfast", uniform, 10, rounds=repeats),
        Job("keyed", "keyed", fewer, fewer.all_epochs),
        Job("keyed", "keyed", more, more.all_epochs),
    ]


def _ratios(
    rows: Sequence[Row], rounds: Rounds, reads: MapReads
) -> tuple[dict[str, float | None], dict[str, str]]:
    ratios: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, ours, theirs, data in (
        ("keyed_over_tws_row", "keyed", "tws-row", "rows"),
        ("dropin_over_tws_row", "dropin-row", "tws-row", "rows"),
        ("dropin_over_tws_pandas", "dropin-pandas", "tws-pandas", "frames"),
        ("batch_over_aggregate", "batch", "aggregate", "uniform"),
    ):
        above, below = best(rows, ours, data), best(rows, theirs, data)
        if above is None or below is None:
            ratios[name] = None
            reasons[name] = rounds.why_missing(ours if above is None else theirs, data)
        else:
            ratios[name] = ratio_of(above.rows_per_s, below.rows_per_s)
    ratios["map_read_growth"] = ratio_of(reads.microseconds[-1], reads.microseconds[0])
    few, many = best(rows, "keyed", "fewer-keys"), best(rows, "keyed", "more-keys")
    if few is None or many is None:
        ratios["memory_growth"] = None
        reasons["memory_growth"] = rounds.why_missing(
            "keyed", "fewer-keys" if few is None else "more-keys"
        )
    else:
        ratios["memory_growth"] = ratio_of(_workers(many), _workers(few))
    return ratios, reasons


def _workers(row: Row) -> float | None:
    return row.peak_anonymous.get("workers")


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        "data",
        "contender",
        "rows/s",
        "median epoch",
        "CPU s/M rows",
        "others' cores",
        "state rows",
        "workers peak (anon.)",
        title="User code per key (the fastest repeat of each)",
    )
    for row in rows:
        table.add_row(
            row.data,
            row.contender,
            f"{row.rows_per_s:,.0f}" if row.rows_per_s < 10_000 else thousands(row.rows_per_s),
            f"{row.epoch_p50_s:.2f} s",
            "—" if row.cpu_s_per_million_rows is None else f"{row.cpu_s_per_million_rows:.2f}",
            "—" if row.others_cpu is None else f"{row.others_cpu:.1f}",
            "—" if row.state_rows is None else f"{row.state_rows:,}",
            mebibytes(_workers(row)),
        )
    return table


if __name__ == "__main__":
    sys.exit(main("process", process))
