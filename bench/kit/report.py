"""The report of a benchmark: what was measured against its bars, as tables, JSON and a picture."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["Bar", "Report", "machine", "mebibytes", "phases_table", "ratio_of", "thousands"]


class Bar(msgspec.Struct, frozen=True):
    """What a ratio must reach.

    >>> Bar(4.0).reached(4.2), Bar(1.0, at_least=False).reached(1.2), Bar(1.0).reached(None)
    (True, False, False)
    """

    limit: float
    at_least: bool = True
    meaning: str = ""

    def reached(self, measured: float | None) -> bool:
        """Whether a measured ratio satisfies it; what could not be measured does not."""
        if measured is None:
            return False
        return measured >= self.limit if self.at_least else measured <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


class Report(msgspec.Struct):
    """Everything a benchmark has to say."""

    benchmark: str
    quick: bool
    machine: dict[str, Any]
    settings: dict[str, Any]
    results: list[Any]
    ratios: dict[str, float | None]
    reasons: dict[str, str]
    """For every ratio that could not be measured: why."""
    bars: dict[str, Bar]
    left_out: list[str] = []

    def write(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        bars = {
            name: {
                "bar": str(bar),
                "limit": bar.limit,
                "at_least": bar.at_least,
                "meaning": bar.meaning,
                "measured": self.ratios.get(name),
                "reached": bar.reached(self.ratios.get(name)),
            }
            for name, bar in self.bars.items()
        }
        whole = {**msgspec.to_builtins(self), "bars": bars}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")

    def show(self, console: Console) -> None:
        """Print the bars."""
        table = Table("ratio", "bar", "measured", "reached", "", title=f"{self.benchmark}: bars")
        for name, bar in self.bars.items():
            measured = self.ratios.get(name)
            reached = bar.reached(measured)
            table.add_row(
                name,
                str(bar),
                "—" if measured is None else f"{measured:.3f}",
                "[green]yes" if reached else "[red]no",
                self.reasons.get(name, bar.meaning),
            )
        console.print(table)
        for name in self.left_out:
            console.print(f"[yellow]left out for want of time: {name}")
        console.print("Other work shares the cores: compare only within one run.", style="dim")

    @property
    def complete(self) -> bool:
        """Whether every ratio was measured."""
        return all(self.ratios.get(name) is not None for name in self.bars)


def ratio_of(above: float | None, below: float | None) -> float | None:
    """A ratio, if both parts are there.

    >>> ratio_of(6.0, 3.0), ratio_of(None, 3.0)
    (2.0, None)
    """
    if above is None or below is None or not below or math.isnan(above) or math.isnan(below):
        return None
    return above / below


def machine(versions: dict[str, str]) -> dict[str, Any]:
    """Where it was measured, in words that name no particular machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
        **versions,
    }


def mebibytes(size: float | None) -> str:
    """A size for people.

    >>> mebibytes(3 << 20), mebibytes(None)
    ('3 MiB', '—')
    """
    return "—" if size is None else f"{size / (1 << 20):,.0f} MiB"


def thousands(rate: float | None) -> str:
    """A rate for people.

    >>> thousands(123456.0)
    '123k'
    """
    return "—" if rate is None or math.isnan(rate) else f"{rate / 1000:,.0f}k"


def phases_table(title: str, named: Sequence[tuple[str, dict[str, float]]]) -> Table:
    """Where an epoch's time goes, one line per phase."""
    names = list(dict.fromkeys(phase for _, phases in named for phase in phases))
    table = Table("phase (s per epoch)", *(name for name, _ in named), title=title)
    for phase in names:
        cells = [f"{phases[phase]:.3f}" if phase in phases else "" for _, phases in named]
        table.add_row(phase, *cells)
    return table
