"""What may go wrong in a world, and how likely it is. A seed decides; then it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

__all__ = ["MISHAPS", "Mishaps"]

MISHAPS = {
    "report_doubled": "a report that comes twice",
    "report_missing": "a report that never comes",
    "report_late": "a report of an epoch's attempt that comes with the next",
    "stage_again": "a partition that is computed twice",
    "sink_before": "a sink that fails and has done nothing",
    "sink_within": "a sink that has taken half of an epoch and fails, or whose driver dies",
    "sink_after": "a sink that has published and doesn't get to say so",
    "user_code": "user code that raises",
    "task_slow": "a task that takes seconds",
    "point_kill": "a driver that dies at one of the points where tests stop programs",
    "point_fail": "a disk that fails there, or is full",
}
"""The kinds of faults that are drawn wherever they may strike, and what each is."""


@dataclass
class Mishaps:
    """How likely each kind of fault is, as long as any are, and how often it has struck."""

    draw: Random = field(repr=False)
    rates: dict[str, float]
    on: bool = True
    struck: Counter[str] = field(default_factory=Counter)

    @classmethod
    def drawn(cls, draw: Random) -> Mishaps:
        """Each kind is absent, rare or common."""
        rates = {kind: draw.choice((0.0, 0.0, 0.02, 0.1)) for kind in MISHAPS}
        # These end a pipeline, or an attempt at an epoch, every time.
        for kind in ("report_missing", "point_kill", "point_fail"):
            rates[kind] /= 10
        rates["user_code"] /= 3
        return cls(draw, rates)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {rate:g}" for kind, rate in self.rates.items() if rate)

    def strikes(self, kind: str) -> bool:
        """Whether one happens now."""
        rate = self.rates.get(kind, 0.0)
        if not self.on or not rate or self.draw.random() >= rate:
            return False
        self.struck[kind] += 1
        return True

    def off(self) -> None:
        """From here on nothing goes wrong."""
        self.on = False
