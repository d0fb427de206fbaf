"""What is measured: an input, the programs that run on it, and how large everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from bench.kit.trial import Trial

__all__ = [
    "CHAIN",
    "FULL",
    "PARTS",
    "QUERIES",
    "QUICK",
    "Engine",
    "Input",
    "Job",
    "Sizes",
    "Task",
    "jobs_of",
]

Engine = Literal["holdfast", "rocksdb"]

QUERIES = (4, 5, 7, 8, 9, 11, 18)
CHAIN = "chain"
PARTS = ("chain-count", "chain-max", "chain-top")
"""The operators of the chain, each alone."""

_STREAMS = {8: ("person", "auction"), 4: ("auction", "bid"), 9: ("auction", "bid")}
_FORMAT = 2


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    epochs: int
    warm_up: int
    """So many of the epochs don't count, for either engine: it takes many to warm up a JVM."""
    times: Mapping[int, int]
    """Queries with so many times the epochs, and as many times those that don't count: a second each
    is too short for a JVM to be warm after a few."""
    events: Mapping[int, int]
    """Events an epoch by query, more of those that cost less: query 8 reads 4 of 50 events."""
    chain_events: int
    join_epochs: int
    join_warm_up: int
    join_rows: int
    """Rows an epoch of each side of the join."""
    rounds: int


_EVENTS = {4: 500_000, 5: 1_000_000, 7: 200_000, 8: 3_000_000, 9: 200_000}
_EVENTS |= {11: 2_000_000, 18: 2_000_000}
QUICK = Sizes(
    epochs=10,
    warm_up=5,
    times={11: 2},
    events=_EVENTS,
    chain_events=500_000,
    join_epochs=6,
    join_warm_up=3,
    join_rows=250_000,
    rounds=1,
)
FULL = replace(
    QUICK,
    epochs=16,
    warm_up=6,
    events=_EVENTS | {7: 500_000, 9: 500_000},
    chain_events=1_000_000,
    join_epochs=8,
    join_rows=1_000_000,
    rounds=2,
)


class Input(msgspec.Struct, frozen=True):
    """Folders of Parquet files, a file an epoch. Files depend on nothing but these fields."""

    kind: Literal["nexmark", "join", "chain"]
    streams: tuple[str, ...]
    rows: int
    """An epoch's events (of all kinds, read or not); of a join, the rows of each side."""
    epochs: int

    def folder(self, stream: str) -> str:
        """A name for the cache that says everything the data depends on."""
        return f"{self.kind}-{stream}-{self.epochs}x{self.rows}rows-v{_FORMAT}"


@dataclass(frozen=True)
class Job:
    """A program on an input, to be run on one engine or on both."""

    name: str
    input: Input
    warm_up: int
    engines: tuple[Engine, ...] = ("holdfast", "rocksdb")

    @property
    def rows(self) -> int:
        """How many events an epoch counts for."""
        return self.input.rows * (2 if self.input.kind == "join" else 1)


class Task(msgspec.Struct, frozen=True):
    """What a child process is told to do."""

    engine: Engine
    job: str
    rows: int
    streams: tuple[str, ...]
    trial: Trial
    """What every contender of every benchmark is told; ``input`` has a folder per stream."""


def jobs_of(sizes: Sizes) -> list[Job]:
    """Everything that is run, in its order."""
    return [*_queries(sizes), _join(sizes), *_chain(sizes)]


def _queries(sizes: Sizes) -> Sequence[Job]:
    jobs = []
    for number in QUERIES:
        streams = _STREAMS.get(number, ("bid",))
        times = sizes.times.get(number, 1)
        data = Input("nexmark", streams, sizes.events[number], times * sizes.epochs)
        jobs.append(Job(f"q{number}", data, times * sizes.warm_up))
    return jobs


def _join(sizes: Sizes) -> Job:
    data = Input("join", ("left", "right"), sizes.join_rows, sizes.join_epochs)
    return Job("join", data, sizes.join_warm_up)


def _chain(sizes: Sizes) -> Sequence[Job]:
    bids = Input("nexmark", ("bid",), sizes.chain_events, sizes.epochs)
    whole = Job(CHAIN, bids, sizes.warm_up, ("holdfast",))
    # No window closes in the first epoch: the later operators have one epoch less, but as many that
    # warm the JVM up, or the parts would look dearer than they are.
    return [
        whole,
        replace(whole, name=PARTS[0]),
        *(
            Job(
                part,
                Input("chain", (part,), sizes.chain_events, sizes.epochs),
                sizes.warm_up,
                ("holdfast",),
            )
            for part in PARTS[1:]
        ),
    ]
