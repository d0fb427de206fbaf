"""Trigger time of tiny epochs, against Spark's own aggregation on RocksDB."""

from __future__ import annotations

import sys

import msgspec
from rich.table import Table

from bench.kit import plots
from bench.kit.data import Dataset
from bench.kit.harness import Finished
from bench.kit.program import Context, main
from bench.kit.report import Bar, Report, machine, mebibytes, phases_table, ratio_of
from bench.kit.rounds import Job, Rounds
from bench.kit.stats import Row, percentile, row_of

_ROWS = 100
_KEYS = 100_000
_WARM_UP = 20
"""Tiny epochs that don't count, after the one that builds the state."""
_BARS = {"rocksdb": Bar(1.0, at_least=False, meaning="Holdfast's p50 over Spark's on RocksDB")}


def latency(context: Context) -> Report:
    """Trigger p50 and p95 at 100 rows, with checkpoints every 2 s."""
    measured, repeats = (80, 2) if context.quick else (300, 3)
    tiny = Dataset("tiny", _KEYS, _ROWS, _WARM_UP + measured, build=1)
    rounds = Rounds(context.harness, context.console, budget_s=280 if context.quick else None)
    rounds.run(
        [
            Job("holdfast", "holdfast", tiny, tiny.all_epochs, rounds=repeats),
            Job("rocksdb", "rocksdb", tiny, tiny.all_epochs, rounds=repeats),
        ]
    )
    rows = [
        row_of(finished, repeat, 1 + _WARM_UP, label)
        for (label, _), trials in rounds.finished.items()
        for repeat, finished in enumerate(trials, 1)
    ]
    chosen = {
        label: min((r for r in rows if r.contender == label), key=lambda r: r.epoch_p50_s)
        for label in dict.fromkeys(row.contender for row in rows)
    }
    ours, theirs = chosen.get("holdfast"), chosen.get("rocksdb")
    ratio, reasons = None, {}
    if ours is None or theirs is None:
        missing = "holdfast" if ours is None else "rocksdb"
        reasons["rocksdb"] = rounds.why_missing(missing, "tiny")
    else:
        ratio = ratio_of(ours.epoch_p50_s, theirs.epoch_p50_s)
    context.console.print(_table(chosen))
    context.console.print(
        phases_table("Where the time goes", [(n, r.phases_s) for n, r in chosen.items()])
    )
    plots.latency({name: row.epoch_seconds for name, row in chosen.items()}, context.picture)
    first: Finished | None = next(iter(rounds.finished.values()), [None])[0]
    return Report(
        benchmark="latency",
        quick=context.quick,
        machine=machine(first.outcome.versions if first else {}),
        settings={
            **msgspec.to_builtins(context.harness.settings),
            "rows_per_epoch": _ROWS,
            "state_keys": _KEYS,
            "checkpoint_interval_s": 2.0,
            "warm_up_epochs": 1 + _WARM_UP,
            "repeats": "interleaved; of each the one with the lowest p50 counts",
        },
        results=rows,
        ratios={"rocksdb": ratio},
        reasons=reasons,
        bars=_BARS,
        left_out=rounds.left_out,
    )


def _table(chosen: dict[str, Row]) -> Table:
    table = Table(
        "contender",
        "p50",
        "p95",
        "p99",
        "triggers",
        "others' cores",
        "checkpointed",
        title="Triggers of 100 rows (the repeat of each with the lowest p50)",
    )
    for name, row in chosen.items():
        table.add_row(
            name,
            *(f"{percentile(row.epoch_seconds, p) * 1000:.0f} ms" for p in (50, 95, 99)),
            str(row.steady_epochs),
            "—" if row.others_cpu is None else f"{row.others_cpu:.1f}",
            mebibytes(row.checkpoint_bytes),
        )
    return table


if __name__ == "__main__":
    sys.exit(main("latency", latency))
