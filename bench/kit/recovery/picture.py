"""The bar chart of local against remote recovery."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from bench.kit.recovery.published import PUBLISHED_MS
from bench.kit.recovery.records import Failure, middle
from bench.kit.recovery.tables import chosen

mpl.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["draw"]

_LOCAL, _REMOTE = "#0b7a75", "#9c4a3c"
_PALE_LOCAL, _PALE_REMOTE = "#a9cfcc", "#dcb9b2"


def draw(failures: Sequence[Failure], rate: str, path: Path) -> None:
    """From kill to usable, per size: ours at the limited rate, and the published figures."""
    sizes = sorted({f.megabytes for f in failures if f.kind == "host" and f.engine == "holdfast"})
    series = {
        ("published, local", _PALE_LOCAL): [PUBLISHED_MS.get(s, (0, 0))[0] / 1000 for s in sizes],
        ("published, remote", _PALE_REMOTE): [PUBLISHED_MS.get(s, (0, 0))[1] / 1000 for s in sizes],
        (f"Holdfast, local, {rate}", _LOCAL): _ours(failures, sizes, "local", rate),
        (f"Holdfast, remote, {rate}", _REMOTE): _ours(failures, sizes, "remote", rate),
    }
    figure, axes = plt.subplots(figsize=(max(7, 1.1 * len(sizes) + 2), 4.2), layout="constrained")
    for place, ((label, colour), values) in enumerate(series.items()):
        at = np.arange(len(sizes)) + (place - 1.5) * 0.2
        bars = axes.bar(at, values, 0.2, label=label, color=colour)
        axes.bar_label(bars, fmt=lambda v: f"{v:.1f}" if v else "", fontsize=7)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("MB of text")
    axes.set_ylabel("s until the state is usable")
    axes.set_title("The host with the state is killed (shorter is better)")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _ours(
    failures: Sequence[Failure], sizes: Sequence[int], arrangement: str, rate: str
) -> list[float]:
    found = (
        middle(chosen(failures, size, arrangement, rate), lambda f: f.usable_s) for size in sizes
    )
    return [value or 0.0 for value in found]
