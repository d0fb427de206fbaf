"""From epochs to figures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from bench.kit.harness import Finished
from bench.kit.trial import Epoch

__all__ = ["Row", "best", "percentile", "phase_means", "row_of", "steady_rate"]


class Row(msgspec.Struct):
    """One line of a benchmark's results: one trial."""

    contender: str
    data: str
    repeat: int
    rows_per_s: float
    """Rows of the steady epochs over their time."""
    rows_per_s_median: float
    """The same for the median steady epoch."""
    epoch_p50_s: float
    epoch_p95_s: float
    epoch_p99_s: float
    steady_epochs: int
    cpu_s_per_million_rows: float | None
    """CPU of all its processes in the steady epochs: less disturbed by other work."""
    cpu_s_by_process: dict[str, float]
    """The same for the driver, the JVM and the workers."""
    others_cpu: float | None
    """Cores that other work took meanwhile."""
    checkpoint_bytes: int
    state_rows: int | None
    peak_rss: dict[str, int]
    peak_anonymous: dict[str, int]
    phases_s: dict[str, float]
    """Mean seconds per steady epoch and phase."""
    epoch_seconds: list[float]
    total_s: float
    process_s: float


def percentile(values: Sequence[float], p: float) -> float:
    """The p-th percentile, interpolated; NaN of nothing.

    >>> percentile([1.0, 2.0, 3.0], 50)
    2.0
    """
    return float(np.percentile(values, p)) if len(values) else float("nan")


def steady_rate(epochs: Sequence[Epoch]) -> float:
    """Rows a second: all rows over all time, so that an epoch slowed by a checkpoint counts."""
    spent = sum(e.seconds for e in epochs)
    return sum(e.rows for e in epochs) / spent if spent else float("nan")


def phase_means(epochs: Sequence[Epoch]) -> dict[str, float]:
    """Mean seconds of every phase over the epochs."""
    names = list(dict.fromkeys(name for e in epochs for name in e.phases))
    return {n: sum(e.phases.get(n, 0.0) for e in epochs) / len(epochs) for n in names}


def row_of(finished: Finished, repeat: int, warm_up: int, label: str | None = None) -> Row:
    """The figures of a trial; its first ``warm_up`` epochs don't count."""
    outcome, sampler = finished.outcome, finished.sampler
    steady = sorted(outcome.epochs, key=lambda e: e.number)[warm_up:]
    seconds = [e.seconds for e in steady]
    ended = steady[-1].began + steady[-1].seconds
    cpu = sampler.cpu_between(steady[0].began, ended)
    others = cpu.pop("others", None)
    rows = sum(e.rows for e in steady)
    return Row(
        contender=label or finished.trial.contender,
        data=finished.dataset.name,
        repeat=repeat,
        rows_per_s=steady_rate(steady),
        rows_per_s_median=percentile([e.rows / e.seconds for e in steady], 50),
        epoch_p50_s=percentile(seconds, 50),
        epoch_p95_s=percentile(seconds, 95),
        epoch_p99_s=percentile(seconds, 99),
        steady_epochs=len(steady),
        cpu_s_per_million_rows=sum(cpu.values()) / rows * 1e6 if cpu else None,
        cpu_s_by_process={group: spent / rows * 1e6 for group, spent in cpu.items()},
        others_cpu=None if others is None else others / (ended - steady[0].began),
        checkpoint_bytes=sampler.written.total(),
        state_rows=outcome.state_rows,
        peak_rss=sampler.peak_rss,
        peak_anonymous=sampler.peak_anonymous,
        phases_s=phase_means(steady),
        epoch_seconds=seconds,
        total_s=outcome.seconds,
        process_s=finished.wall_s,
    )


def best(rows: Sequence[Row], contender: str, data: str) -> Row | None:
    """The fastest repeat of a contender: the one that other work disturbed least."""
    found = [row for row in rows if (row.contender, row.data) == (contender, data)]
    return max(found, key=lambda row: row.rows_per_s, default=None)
