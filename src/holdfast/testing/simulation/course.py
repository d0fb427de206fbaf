"""What a seed decides before anything happens."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from holdfast.testing.simulation.programs import PROGRAMS

__all__ = ["Course", "Input"]

Input = Literal["goes on", "ends", "by runs", "by runs, then ends"]
"""Whether input goes on for ever; ends, as sources say; or is read by runs over what there is by then,
of which the last may be told that it is all."""


@dataclass(frozen=True)
class Course:
    """How a pipeline runs, on what, and for how long things go wrong."""

    program: str
    is_cluster: bool
    hosts: int
    pieces: int
    lasts_s: float
    """How long things go wrong."""
    every_epoch: bool
    interval_s: float | None
    keep_last: int
    max_ahead_bytes: int
    trigger_s: float
    retires: bool
    """Whether hosts' disks have a limit."""
    input: Input
    goes_back: bool
    """Whether some starts go back to older entries."""
    damages: bool
    """Whether objects in storage get wrong bits, which somebody restores after a while."""

    @classmethod
    def drawn(cls, draw: Random, program: str | None = None) -> Course:
        """Draw one."""
        kinds: tuple[Input, ...] = ("goes on", "ends", "by runs", "by runs, then ends")
        goes_back = draw.random() < 0.3
        return cls(
            program=program or draw.choice(sorted(PROGRAMS)),
            is_cluster=draw.random() < 0.5,
            hosts=draw.randint(1, 3),
            pieces=draw.randint(2, 8),
            lasts_s=draw.choices((0.0, 10.0, 25.0, 60.0), (1, 4, 4, 2))[0],
            every_epoch=draw.random() < 0.25,
            interval_s=draw.choice((None, 0.2, 1.0, 5.0)),
            keep_last=draw.choice((2, 5) if goes_back else (1, 1, 2, 5)),
            max_ahead_bytes=draw.choice((1 << 31, 1 << 14)),
            trigger_s=draw.choice((0.0, 0.5, 2.0)),
            retires=draw.random() < 0.1,
            input=draw.choices(kinds, (6, 2, 1, 1))[0],
            goes_back=goes_back,
            damages=draw.random() < 0.15,
        )

    @property
    def by_runs(self) -> bool:
        """Whether a driver ends when it has read what there was."""
        return self.input.startswith("by runs")

    @property
    def has_end(self) -> bool:
        """Whether input ends some day."""
        return self.input.endswith("ends")
