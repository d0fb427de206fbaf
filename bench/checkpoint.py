"""What checkpoints cost: in throughput, in bytes, and as the state grows."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from rich.table import Table

from bench.kit import plots
from bench.kit.changed import changed_bytes
from bench.kit.data import Dataset
from bench.kit.harness import Finished
from bench.kit.program import Context, main
from bench.kit.report import Bar, Report, machine, mebibytes, ratio_of, thousands
from bench.kit.rounds import Job, Rounds
from bench.kit.stats import Row, best, percentile, row_of

_WARM_UP = 3
_INTERVAL_S = 2.0
_WITH, _WITHOUT = "every 2 s", "none"
_SETTLE = 3
"""Small epochs after the state is built whose checkpoints don't count."""
_BARS = {
    "throughput_uniform": Bar(0.92, meaning="rows/s with checkpoints every 2 s over without"),
    "throughput_zipf": Bar(0.97, meaning="the same on skewed keys"),
    "growth": Bar(
        1.5, at_least=False, meaning="time per checkpoint with 10 × the state, same changes"
    ),
    "bytes_per_changed_byte": Bar(
        6.0, at_least=False, meaning="bytes stored over those of the changed rows, compressed"
    ),
}


class Growth(msgspec.Struct):
    """Checkpoints of the same changes to a state of some size."""

    data: str
    repeat: int
    state_rows: int
    changed_rows: int
    checkpoint_ms: list[int]
    """Each until its log entry is written."""
    wall_ms: list[float]
    """Each as its caller waits for it, behind merges that may be under way."""
    stored_bytes: int
    changed_bytes: int

    @property
    def median_ms(self) -> float:
        """The median checkpoint."""
        return percentile(self.checkpoint_ms, 50)


class Stored(msgspec.Struct):
    """What one run with checkpoints put into storage."""

    data: str
    repeat: int
    checkpoints: int
    stored_bytes: int
    """Every object ever put under runs/, with what merges wrote and what was deleted again."""
    first_bytes: int
    """Of these, what checkpoints stored first; the rest is from merges."""
    changed_bytes: int

    @property
    def ratio(self) -> float:
        """Bytes stored per changed byte."""
        return self.stored_bytes / self.changed_bytes


def checkpoint(context: Context) -> Report:
    """Throughput with and without, bytes per changed byte, time per checkpoint as state grows."""
    steady, growing = _steady_jobs(context.quick), _growth_jobs(context.quick)
    rounds = Rounds(context.harness, context.console, budget_s=260 if context.quick else None)
    rounds.run([*growing, *steady])
    rows = [row_of(f, i, _WARM_UP, job.label) for job in steady for i, f in _repeats(rounds, job)]
    growths = [_growth(f, i) for job in growing for i, f in _repeats(rounds, job)]
    # Repeats store the same: one of each input is enough, and counting takes a while.
    checkpointed = [job for job in steady if job.label == _WITH]
    stored = [_stored(f, i) for job in checkpointed for i, f in _repeats(rounds, job)[:1]]
    ratios = {
        "throughput_uniform": _cost(rows, "uniform"),
        "throughput_zipf": _cost(rows, "zipf"),
        "growth": _growth_ratio(growths, growing),
        # The worse of the two inputs.
        "bytes_per_changed_byte": max((s.ratio for s in stored), default=None),
    }
    for table in (_steady_table(rows), _stored_table(stored, growths), _growth_table(growths)):
        context.console.print(table)
    plots.checkpoint(_pooled(rows), _durations(growths), context.picture)
    first = next(iter(rounds.finished.values()), [None])[0]
    return Report(
        benchmark="checkpoint",
        quick=context.quick,
        machine=machine(first.outcome.versions if first else {}),
        settings={
            **msgspec.to_builtins(context.harness.settings),
            "checkpoint_interval_s": _INTERVAL_S,
            "warm_up_epochs": _WARM_UP,
            "repeats": "interleaved; the fastest of each counts, p99 is over all",
        },
        results=[*rows, *stored, *growths],
        ratios=ratios,
        reasons={
            name: "; ".join(rounds.failed.values()) or "a trial it needs was not run"
            for name, ratio in ratios.items()
            if ratio is None
        },
        bars=_BARS,
        left_out=rounds.left_out,
    )


def _steady_jobs(quick: bool) -> list[Job]:
    keys, rows, epochs, repeats = (
        (750_000, 750_000, 12, 3) if quick else (1_000_000, 1_000_000, 20, 3)
    )
    uniform = Dataset("uniform", keys, rows, epochs)
    zipf = Dataset("zipf", keys, rows, epochs, zipf=1.1)
    return [
        Job(label, "holdfast", data, epochs, repeats, checkpoint_interval_s=interval)
        for data in (uniform, zipf)
        for label, interval in ((_WITH, _INTERVAL_S), (_WITHOUT, None))
    ]


def _growth_jobs(quick: bool) -> list[Job]:
    smaller, changes, epochs, repeats = (
        (300_000, 20_000, 15, 2) if quick else (1_000_000, 50_000, 30, 2)
    )
    jobs = []
    for keys in (smaller, 10 * smaller):
        build = -(-keys // 1_000_000)
        data = Dataset(f"growth-{keys}", keys, changes, epochs, build=build, distinct=True)
        jobs.append(Job("stepped", "holdfast", data, data.all_epochs, repeats, None, stepped=True))
    return jobs


def _repeats(rounds: Rounds, job: Job) -> list[tuple[int, Finished]]:
    return list(enumerate(rounds.finished.get(job.key, []), 1))


def _stored(finished: Finished, repeat: int) -> Stored:
    taken = finished.outcome.checkpoints
    return Stored(
        data=finished.dataset.name,
        repeat=repeat,
        checkpoints=len(taken),
        stored_bytes=finished.sampler.written.total("runs/"),
        first_bytes=sum(c.new_bytes for c in taken),
        changed_bytes=changed_bytes(finished.dataset, [c.epoch for c in taken]),
    )


def _growth(finished: Finished, repeat: int) -> Growth:
    dataset, taken = finished.dataset, finished.outcome.checkpoints
    counted = taken[dataset.build + _SETTLE :]
    return Growth(
        data=dataset.name,
        repeat=repeat,
        state_rows=finished.outcome.state_rows or 0,
        changed_rows=dataset.rows,
        checkpoint_ms=[c.duration_ms for c in counted],
        wall_ms=[c.wall_ms for c in counted if c.wall_ms is not None],
        stored_bytes=finished.sampler.written.total("runs/"),
        changed_bytes=changed_bytes(dataset, [c.epoch for c in taken]) if repeat == 1 else 0,
    )


def _cost(rows: Sequence[Row], data: str) -> float | None:
    with_, without = best(rows, _WITH, data), best(rows, _WITHOUT, data)
    if with_ is None or without is None:
        return None
    return ratio_of(with_.rows_per_s, without.rows_per_s)


def _growth_ratio(growths: Sequence[Growth], jobs: Sequence[Job]) -> float | None:
    medians = [
        min((g.median_ms for g in growths if g.data == job.dataset.name), default=None)
        for job in jobs
    ]
    return ratio_of(medians[1], medians[0])


def _pooled(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The epochs of all repeats together, by input and label."""
    pooled: dict[str, list[float]] = {}
    for row in rows:
        pooled.setdefault(f"{row.data}, {row.contender}", []).extend(row.epoch_seconds)
    return pooled


def _durations(growths: Sequence[Growth]) -> dict[str, list[int]]:
    chosen = {g.data: g for g in sorted(growths, key=lambda g: g.median_ms, reverse=True)}
    return {
        f"{g.state_rows:,} keys": g.checkpoint_ms
        for g in sorted(chosen.values(), key=lambda g: g.state_rows)
    }


def _steady_table(rows: Sequence[Row]) -> Table:
    table = Table(
        "data",
        "checkpoints",
        "rows/s",
        "CPU s/M rows",
        "p50 epoch",
        "p99 epoch",
        "others' cores",
        title="Epochs with and without checkpoints (the fastest repeat; percentiles over all)",
    )
    pooled = _pooled(rows)
    for data, label in dict.fromkeys((row.data, row.contender) for row in rows):
        row, seconds = best(rows, label, data), pooled[f"{data}, {label}"]
        assert row is not None
        table.add_row(
            data,
            label,
            thousands(row.rows_per_s),
            "—" if row.cpu_s_per_million_rows is None else f"{row.cpu_s_per_million_rows:.2f}",
            f"{percentile(seconds, 50):.2f} s",
            f"{percentile(seconds, 99):.2f} s",
            "—" if row.others_cpu is None else f"{row.others_cpu:.1f}",
        )
    return table


def _stored_table(stored: Sequence[Stored], growths: Sequence[Growth]) -> Table:
    table = Table(
        "data",
        "checkpoints",
        "stored",
        "of it first",
        "changed rows",
        "per changed byte",
        title="Bytes put into storage",
    )
    for s in stored:
        sizes = (mebibytes(s.stored_bytes), mebibytes(s.first_bytes), mebibytes(s.changed_bytes))
        table.add_row(s.data, str(s.checkpoints), *sizes, f"{s.ratio:.2f}")
    for g in growths:
        if g.changed_bytes:
            ratio = f"{g.stored_bytes / g.changed_bytes:.2f}"
            sizes = (mebibytes(g.stored_bytes), "", mebibytes(g.changed_bytes))
            table.add_row(g.data, str(len(g.checkpoint_ms)), *sizes, ratio)
    return table


def _growth_table(growths: Sequence[Growth]) -> Table:
    table = Table(
        "state rows",
        "changed rows",
        "repeat",
        "median",
        "p95",
        "waited: median",
        "p95",
        title="Time per checkpoint",
    )
    for g in growths:
        table.add_row(
            f"{g.state_rows:,}",
            f"{g.changed_rows:,}",
            str(g.repeat),
            *(f"{percentile(g.checkpoint_ms, p):.0f} ms" for p in (50, 95)),
            *(f"{percentile(g.wall_ms, p):.0f} ms" for p in (50, 95)),
        )
    return table


if __name__ == "__main__":
    sys.exit(main("checkpoint", checkpoint))
