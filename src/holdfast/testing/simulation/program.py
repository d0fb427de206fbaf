"""What is simulated: a small pipeline of real operators, its input, and what must come of it.

A program is a graph as ``spark/flow/graph.py`` has it, without Spark: its stages stand in the order in
which they run, and each says how the rows of its ports are lifted to what its operator takes. The
answer to an input is worked out with dicts and lists; it must hold whatever happened to tasks, hosts
and drivers on the way, for it goes by the epochs that count and by the times that were fixed for them.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.time import Watermark
from holdfast.operators.base import Operator
from holdfast.tasks.outputs import OUTPUT, derived_schema, struct_name
from holdfast.tasks.task import BRANCH
from holdfast.testing.simulation.lifting import Lift, cut

__all__ = [
    "Answer",
    "EpochInput",
    "Feed",
    "Outcome",
    "Port",
    "Program",
    "Row",
    "Source",
    "Stage",
    "made",
    "newest",
    "rows_of",
]

Row = tuple[Any, ...]
Outcome = dict[str, dict[int, list[Row]]]
"""Per sink and epoch all rows, sorted; epochs without rows are left out."""
Source = Callable[[int, Random], pa.Table]
"""Makes the rows of a micro-batch, by its number."""


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows


@dataclass(frozen=True)
class Feed:
    """Rows of a source, or of a stage's output, on their way to a stage."""

    source: int | None = None
    """The source's number; None if the rows are of a stage."""
    stage: str = ""
    output: str = ""
    """Which of the stage's outputs: "" is the main one."""
    time: str | None = None
    """Which of the program's watermarks follows these rows."""
    loop: bool = False
    """Whether the rows are those that the epoch before fed back to the stage."""
    step: Callable[[pa.Table], pa.Table] = _unchanged
    """What becomes of the rows on their way."""


@dataclass(frozen=True)
class Port:
    """One of the inputs of a stage."""

    lift: Lift
    feeds: tuple[Feed, ...]
    name: str = "main"


@dataclass(frozen=True)
class Stage:
    """An operator in its place, as a node of a graph."""

    operator: Operator
    ports: tuple[Port, ...]
    sinks: Mapping[str, str] = field(default_factory=dict)
    """Which sinks get which of its outputs."""
    readers: Mapping[str, int] = field(default_factory=dict)
    """How many feeds read each of its outputs; the program fills it in."""
    behind_ms: int = 0
    """How far its time is behind the pipeline's watermark."""

    @property
    def id(self) -> str:
        """Its operator's name."""
        return self.operator.id

    @property
    def feeds(self) -> tuple[str, ...]:
        """The outputs that other stages read."""
        return tuple(self.readers)

    @property
    def derived(self) -> bool:
        """Whether it reads other stages' results."""
        return any(feed.source is None for port in self.ports for feed in port.feeds)

    @property
    def times(self) -> dict[str, tuple[str | None, ...]]:
        """Per port the watermarks that its feeds' rows move."""
        return {port.name: tuple(feed.time for feed in port.feeds) for port in self.ports}

    @property
    def has_branches(self) -> bool:
        """Whether rows say which feed of their port they came by."""
        return any(len(port.feeds) > 1 for port in self.ports)

    def schema(self, output: str) -> pa.Schema:
        """The columns of an output."""
        return self.operator.side_schemas[output] if output else self.operator.output_schema


@dataclass(frozen=True)
class EpochInput:
    """An epoch that counts: the times that were fixed for it, and what it read."""

    record: EpochRecord
    sources: tuple[pa.Table, ...]
    """The rows of each source, in their order."""


@dataclass(frozen=True)
class Answer:
    """What must come of an input."""

    rows: Outcome
    state: Mapping[Any, Any] | None = None
    """What :meth:`Program.state` must find; None if that isn't compared."""


class Program(ABC):
    """A pipeline to simulate. An instance is for one run of it: operators learn where to go on."""

    name: ClassVar[str]
    watermarks: ClassVar[Mapping[str, Watermark]] = {}

    def __init__(self, sources: Sequence[Source], stages: Sequence[Stage]) -> None:
        self._sources = tuple(sources)
        self.stages: tuple[Stage, ...] = tuple(
            replace(stage, readers=_readers(stage.id, stages)) for stage in stages
        )
        self._by_id = {stage.id: stage for stage in self.stages}

    @property
    def sources(self) -> int:
        """How many sources there are."""
        return len(self._sources)

    def stage(self, id: str) -> Stage:  # noqa: A002
        """The stage of this name."""
        return self._by_id[id]

    @property
    def sinks(self) -> dict[str, tuple[str, str]]:
        """The stage and the output that each sink gets rows of."""
        return {
            sink: (stage.id, output)
            for stage in self.stages
            for sink, output in stage.sinks.items()
        }

    def rows(self, source: int, batch: int, rng: Random) -> pa.Table:
        """What a source has for a micro-batch; ``rng`` is the seed's for this source and batch."""
        return self._sources[source](batch, rng)

    def lift(
        self,
        stage: str,
        port: int,
        rows: pa.Table,
        *,
        feed: int = 0,
        part: int = 0,
        first: bool = False,
    ) -> pa.Table:
        """Rows of a feed as the stage's operator takes them: what Spark's plan would make of them.

        ``rows`` are a source's, or what a stage hands on; ``part``: of which of the partitions that
        bring them. ``first``: no epoch was before.
        """
        del first
        to = self._by_id[stage]
        origin = to.ports[port].feeds[feed]
        if origin.source is None and not origin.loop:
            rows = self._received(origin, rows)
        lifted = to.ports[port].lift(origin.step(rows), part)
        if to.has_branches:
            branches = pa.repeat(pa.scalar(feed, pa.int8()), lifted.num_rows)
            lifted = lifted.append_column(BRANCH, branches)
        return lifted

    def cut(self, stage: str, lifted: pa.Table, partitions: int, part: int = 0) -> list[pa.Table]:
        """Lifted rows as each of a stage's tasks gets them; ``part`` as in :meth:`lift`."""
        return cut(lifted, self._by_id[stage].operator.key_columns, partitions, part)

    def _received(self, feed: Feed, handed: pa.Table) -> pa.Table:
        """The rows of one output, of what a stage hands on."""
        stage = self._by_id[feed.stage]
        assert handed.schema.equals(derived_schema(stage.operator, stage.feeds))
        if len(stage.feeds) == 1:
            return handed
        number = stage.feeds.index(feed.output)
        own = handed.filter(pc.equal(handed.column(OUTPUT), number)).combine_chunks()
        whole = own.column(struct_name(number)).combine_chunks()
        return pa.Table.from_arrays(whole.flatten(), schema=stage.schema(feed.output))

    def copies(self, operator: Operator) -> Callable[[], Operator]:
        """Makes copies of an operator, as tasks get it."""
        return partial(pickle.loads, pickle.dumps(operator))

    @abstractmethod
    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """What must be published, and what the state must be, after these epochs."""

    def outcome(self, published: Mapping[str, Iterable[tuple[int, pa.Table]]]) -> Outcome:
        """What was published, per sink with its epoch, in the form of an answer's rows."""
        return made({s: [(e, r) for e, t in of for r in rows_of(t)] for s, of in published.items()})

    def fold(self, outcome: Outcome) -> Mapping[str, Any]:
        """What the rows come to, for comparisons across other cuts into epochs.

        Unless a program knows better: all rows of each sink, whatever their epochs.
        """
        return {
            sink: sorted((row for rows in epochs.values() for row in rows), key=repr)
            for sink, epochs in outcome.items()
        }

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any] | None:
        """What the live rows of the state tables come to, in the form of an answer's state."""
        del tables
        return None


def made(rows: Mapping[str, Iterable[tuple[int, Row]]]) -> Outcome:
    """Rows with their sinks and epochs as an outcome."""
    outcome: Outcome = {}
    for sink, of_sink in rows.items():
        epochs: dict[int, list[Row]] = {}
        for epoch, row in of_sink:
            epochs.setdefault(epoch, []).append(row)
        outcome[sink] = {epoch: sorted(epochs[epoch], key=repr) for epoch in sorted(epochs)}
    return outcome


def newest(epochs: Mapping[int, Sequence[Row]], keys: int = 1) -> dict[Row, Row]:
    """The last row of each key; its first columns are the key."""
    return {row[:keys]: row for epoch in sorted(epochs) for row in epochs[epoch]}


def rows_of(table: pa.Table) -> list[Row]:
    """A table's rows as tuples: lists become tuples too, and times are in µs."""
    return list(zip(*(_values(column) for column in table.columns), strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return [tuple(v) if isinstance(v, list) else v for v in values]


def _readers(id: str, stages: Sequence[Stage]) -> dict[str, int]:  # noqa: A002
    readers: dict[str, int] = {}
    for stage in stages:
        for port in stage.ports:
            for feed in port.feeds:
                if feed.stage == id and not feed.loop:
                    readers[feed.output] = readers.get(feed.output, 0) + 1
    return readers
