"""The picture beside the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from bench.kit.stats import Row

mpl.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["draw"]

_COLOURS = {"holdfast": "#0b7a75", "rocksdb": "#9c4a3c"}
_NAMES = {"holdfast": "Holdfast", "rocksdb": "Spark, RocksDB"}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Events a second, two columns per query; where Spark refuses it, one."""
    jobs = list(dict.fromkeys(row.data for row in rows))
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for place, (engine, colour) in enumerate(_COLOURS.items()):
        rates = {row.data: row.rows_per_s / 1000 for row in rows if row.contender == engine}
        at = np.arange(len(jobs)) + 0.4 * place
        heights = [rates.get(job, 0.0) for job in jobs]
        bars = axes.bar(at, heights, 0.4, label=_NAMES[engine], color=colour)
        axes.bar_label(bars, fmt=lambda v: f"{v:.0f}" if v else "", fontsize=8)
    axes.set_xticks(np.arange(len(jobs)) + 0.2, jobs)
    axes.set_ylabel("thousand events/s, steady")
    axes.set_title("NEXMark and an interval join, checkpoints on (longer is better)")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
