"""A trial: one contender on one input in a fresh process; and what comes back from it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["MARK", "CheckpointTaken", "Contender", "Epoch", "Note", "Outcome", "Trial"]

Contender = Literal[
    "holdfast",
    "floor",
    "heap",
    "rocksdb",
    "keyed",
    "batch",
    "dropin-row",
    "dropin-pandas",
    "tws-row",
    "tws-pandas",
]

MARK = "@bench "
"""What a line of the child's output begins with if it is meant for the harness."""


class Trial(msgspec.Struct, frozen=True):
    """What a child process is told to do."""

    contender: Contender
    input: str
    """A folder of Parquet files; each is one epoch, in the order of their times."""
    work: str
    """An empty folder for checkpoints and local state."""
    epochs: int
    partitions: int
    driver_memory: str
    checkpoint_interval_s: float | None = 2.0
    stepped: bool = False
    """Holdfast only: take a checkpoint after every epoch and wait for it."""


class Epoch(msgspec.Struct, frozen=True):
    """One micro-batch as Spark's own progress report has it."""

    number: int
    rows: int
    seconds: float
    """Spark's triggerExecution: from the trigger's start until its batch is committed."""
    began: float
    """Seconds since 1970."""
    state_rows: int | None = None
    phases: dict[str, float] = {}
    """Where the time went: Spark's durations (ms made s), or Holdfast's phases."""


class CheckpointTaken(msgspec.Struct, frozen=True):
    """One of Holdfast's checkpoints."""

    epoch: int
    duration_ms: int
    new_bytes: int
    wall_ms: float | None = None
    """Stepped trials: from the request to its answer."""


class Outcome(msgspec.Struct, frozen=True):
    """What a child process hands back."""

    epochs: list[Epoch]
    seconds: float
    """From the query's start to its end, its last checkpoint included."""
    state_rows: int | None
    checkpoints: list[CheckpointTaken] = []
    versions: dict[str, str] = {}
    settings: dict[str, str] = {}


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line from the child: how far it is, or (once, at the end) its outcome."""

    epoch: int | None = None
    outcome: Outcome | None = None
    error: str | None = None
