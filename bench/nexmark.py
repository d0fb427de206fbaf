"""Events/s of NEXMark's stateful queries, of a join, and what a chain costs over its parts."""

from __future__ import annotations

import sys

from rich.table import Table

from bench.kit.nexmark.picture import draw
from bench.kit.nexmark.spark_queries import DELAY, REFUSED
from bench.kit.nexmark.task import CHAIN, FULL, PARTS, QUERIES, QUICK, Job, Sizes, jobs_of
from bench.kit.nexmark.trials import Trials
from bench.kit.program import Context, main
from bench.kit.report import Bar, Report, machine, mebibytes, phases_table, ratio_of, thousands

_AGAINST_SPARK = (*(f"q{number}" for number in QUERIES), "join")
# What a refusal of Spark's analyser has in its text, unlike any other failure.
_REFUSAL = "UNSUPPORTED_OPERATION"
_BARS = {
    **{
        f"q{number}": Bar(2.0, meaning=f"query {number}: Holdfast's events/s over Spark's")
        for number in QUERIES
    },
    "join": Bar(2.0, meaning="interval join: Holdfast's rows/s over Spark's on RocksDB"),
    CHAIN: Bar(
        1.3, at_least=False, meaning="an epoch of three operators over its operators alone, summed"
    ),
}


def nexmark(context: Context) -> Report:
    """Events a second of NEXMark's queries and of a join, against Spark's own; a chain's cost."""
    return measure(context, QUICK if context.quick else FULL)


def measure(context: Context, sizes: Sizes) -> Report:
    """The benchmark, as large as one likes."""
    jobs = jobs_of(sizes)
    trials = Trials(context.harness, context.console)
    trials.run(jobs, sizes.rounds)
    ratios, reasons = _ratios(trials)
    # A bar that can't be measured on any machine would make every run a failed one.
    bars = {name: bar for name, bar in _BARS.items() if _REFUSAL not in reasons.get(name, "")}
    context.console.print(_table(trials, jobs))
    shown = [(job.name, row.phases_s) for job in jobs if (row := trials.best(job.name)) is not None]
    context.console.print(phases_table("Where an epoch's time goes on Holdfast", shown))
    for name in _BARS.keys() - bars.keys():
        context.console.print(f"{name} has no bar: Spark refuses it. {reasons[name]}", markup=False)
    draw([row for row in trials.rows if row.data in _AGAINST_SPARK], context.picture)
    return Report(
        benchmark="nexmark",
        quick=context.quick,
        machine=machine(trials.versions),
        settings={
            "partitions": context.harness.settings.partitions,
            "driver_memory": context.harness.settings.driver_memory,
            "checkpoint_interval_s": 2.0,
            "epochs": {job.name: job.input.epochs for job in jobs},
            "warm_up_epochs": {job.name: job.warm_up for job in jobs},
            "events_per_epoch": {job.name: job.rows for job in jobs},
            "watermark_delay": DELAY,
            "repeats": f"{sizes.rounds}, engines in turn; the fastest of each counts",
            "input": "Parquet made before, a file of each stream an epoch",
            "rows_per_s": "events of the steady epochs, read or not, over their triggerExecution",
        },
        results=list(trials.rows),
        ratios=ratios,
        reasons=reasons,
        bars=bars,
    )


def _ratios(trials: Trials) -> tuple[dict[str, float | None], dict[str, str]]:
    ratios: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name in _AGAINST_SPARK:
        ours, theirs = trials.best(name, "holdfast"), trials.best(name, "rocksdb")
        ratios[name] = None
        if ours is None or theirs is None:
            engine = "holdfast" if ours is None else "rocksdb"
            why = trials.failed.get((name, engine), "it was not run")
            more = f"; {REFUSED[name]}" if _REFUSAL in why and name in REFUSED else ""
            reasons[name] = f"{engine}: {why}{more}"
        else:
            ratios[name] = ratio_of(ours.rows_per_s, theirs.rows_per_s)
    missing = [name for name in (CHAIN, *PARTS) if trials.best(name) is None]
    if missing:
        ratios[CHAIN] = None
        reasons[CHAIN] = trials.failed.get((missing[0], "holdfast"), f"{missing[0]} was not run")
    else:
        ratios[CHAIN] = ratio_of(_mean(trials, CHAIN), sum(_mean(trials, p) for p in PARTS))
    return ratios, reasons


def _mean(trials: Trials, job: str) -> float:
    """Seconds per steady epoch."""
    row = trials.best(job)
    assert row is not None
    return sum(row.epoch_seconds) / len(row.epoch_seconds)


def _table(trials: Trials, jobs: list[Job]) -> Table:
    table = Table(
        "job",
        "engine",
        "events/s",
        "median epoch",
        "CPU s/M events",
        "others' cores",
        "state rows",
        "checkpointed",
        title="NEXMark, a join and a chain (the fastest repeat of each)",
    )
    for job in jobs:
        for engine in job.engines:
            row = trials.best(job.name, engine)
            if row is None:
                table.add_row(job.name, engine, "—")
                continue
            table.add_row(
                job.name,
                engine,
                thousands(row.rows_per_s),
                f"{row.epoch_p50_s:.2f} s",
                "—" if row.cpu_s_per_million_rows is None else f"{row.cpu_s_per_million_rows:.2f}",
                "—" if row.others_cpu is None else f"{row.others_cpu:.1f}",
                "—" if row.state_rows is None else f"{row.state_rows:,}",
                mebibytes(row.checkpoint_bytes),
            )
    return table


if __name__ == "__main__":
    sys.exit(main("nexmark", nexmark))
