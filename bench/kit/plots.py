"""Pictures beside the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from bench.kit.stats import Row

mpl.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["checkpoint", "latency", "rates", "throughput"]

_COLOURS = {"holdfast": "#0b7a75", "floor": "#b0b7bf", "heap": "#d99a2b", "rocksdb": "#9c4a3c"}


def throughput(rows: Sequence[Row], path: Path) -> None:
    """Rows a second, a group of columns per input."""
    data = list(dict.fromkeys(row.data for row in rows))
    contenders = [c for c in _COLOURS if any(row.contender == c for row in rows)]
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    width = 0.8 / max(1, len(contenders))
    for place, contender in enumerate(contenders):
        rates = {row.data: row.rows_per_s for row in rows if row.contender == contender}
        at = np.arange(len(data)) + place * width
        bars = axes.bar(
            at,
            [rates.get(name, 0.0) / 1000 for name in data],
            width,
            label=contender,
            color=_COLOURS[contender],
        )
        axes.bar_label(bars, fmt=lambda v: f"{v:.0f}" if v else "", fontsize=8)
    axes.set_xticks(np.arange(len(data)) + 0.4 - width / 2, data)
    axes.set_ylabel("thousand rows/s, steady")
    axes.set_title("Count and sum per key, checkpoints on (longer is better)")
    axes.legend()
    _save(figure, path)


def rates(rows: Sequence[Row], title: str, path: Path) -> None:
    """Rows a second on a logarithmic scale, a line per contender and input."""
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(rows) + 1.2), layout="constrained")
    names = [f"{row.contender} ({row.data})" for row in rows]
    colours = ["#9c4a3c" if row.contender.startswith("tws") else "#0b7a75" for row in rows]
    bars = axes.barh(names, [row.rows_per_s for row in rows], color=colours)
    axes.bar_label(bars, [f"{row.rows_per_s:,.0f}" for row in rows], padding=4, fontsize=8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("rows/s, steady")
    axes.set_title(title)
    axes.margins(x=0.15)
    _save(figure, path)


def latency(named: Mapping[str, Sequence[float]], path: Path) -> None:
    """The distribution of trigger times, a line per contender."""
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for contender, seconds in named.items():
        share = np.linspace(0, 100, len(seconds))
        axes.plot(
            np.sort(seconds) * 1000, share, label=contender, color=_COLOURS.get(contender), lw=2
        )
    axes.set_xlabel("trigger execution, ms")
    axes.set_ylabel("% of triggers at most this long")
    axes.set_xlim(left=0)
    axes.axhline(50, color="#cccccc", lw=0.8, zorder=0)
    axes.axhline(95, color="#cccccc", lw=0.8, zorder=0)
    axes.set_title("100 rows a trigger (further left is better)")
    axes.legend()
    _save(figure, path)


def checkpoint(
    epochs: Mapping[str, Sequence[float]], durations: Mapping[str, Sequence[float]], path: Path
) -> None:
    """Left the epochs with and without checkpoints, right the time per checkpoint."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    if epochs:
        left.boxplot(list(epochs.values()), whis=(0, 100))
        left.set_xticks(range(1, len(epochs) + 1), list(epochs), fontsize=8)
    left.set_ylabel("s per epoch")
    left.set_ylim(bottom=0)
    left.set_title("Epochs with checkpoints every 2 s and without")
    for name, series in durations.items():
        right.plot(range(1, len(series) + 1), series, marker=".", label=name)
    right.set_xlabel("checkpoint")
    right.set_ylabel("ms per checkpoint")
    right.set_ylim(bottom=0)
    right.set_title("The same changes, with less and more state")
    if durations:
        right.legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
