"""Where a simulated driver is started: a program as a graph, a store, hosts, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from holdfast import runtime
from holdfast.driver.graph import Graph, Node, NodeFeed, SinkPlace
from holdfast.driver.options import Options
from holdfast.errors import ProcessingError
from holdfast.sinks.base import Sink
from holdfast.storage import Storage
from holdfast.tasks.here import Here
from holdfast.testing.simulation.engine import SimulatedEngine, SimulatedFleet
from holdfast.testing.simulation.inputs import Inputs
from holdfast.testing.simulation.machines import Machines
from holdfast.testing.simulation.mishaps import Mishaps
from holdfast.testing.simulation.program import Program

__all__ = ["SimulatedGraph", "SimulatedPlatform", "graph_of"]


@dataclass(kw_only=True)
class SimulatedGraph(Graph[Node[NodeFeed]]):
    """A program as a driver sees it."""

    program: Program


def graph_of(program: Program, sinks: dict[str, Sink]) -> SimulatedGraph:
    """The nodes of a program, and where its outputs go."""
    nodes = []
    for stage in program.stages:
        ports = tuple(
            tuple(NodeFeed(f.source, f.stage, f.output, f.time, f.loop) for f in port.feeds)
            for port in stage.ports
        )
        nodes.append(
            Node(
                stage.id,
                stage.operator,
                tuple(port.name for port in stage.ports),
                ports,
                stage.derived,
                stage.behind_ms,
                readers=dict(stage.readers),
                sinks=dict(stage.sinks),
            )
        )
    by_id = {node.id: node for node in nodes}
    places = {
        sink: SinkPlace(sinks[sink], by_id[of], output)
        for sink, (of, output) in program.sinks.items()
    }
    return SimulatedGraph(nodes, places, dict(program.watermarks), program=program)


@dataclass
class SimulatedPlatform:
    """One driver's view of the world."""

    make: Any
    """Makes the program, anew for every claim."""
    sinks: dict[str, Sink]
    storage: Storage
    inputs: Inputs
    machines: Machines
    host: Here
    """The driver's own host."""
    scratch_root: Path
    is_cluster: bool
    can_end: bool
    mishaps: Mishaps
    draw: Random
    _late: list[bytes] = field(default_factory=list)
    """Reports that are still on their way."""

    def graph(self) -> SimulatedGraph:
        """The program, made anew."""
        return graph_of(self.make(), self.sinks)

    def count_sources(self, graph: SimulatedGraph) -> int:
        """Its sources."""
        return graph.program.sources

    def open_storage(self, url: str) -> Storage:
        """The driver's way to the store."""
        del url
        return self.storage

    def fleet(self) -> SimulatedFleet:
        """The hosts."""
        return SimulatedFleet(self)

    def prepare(self) -> None:
        """Nothing is to be sent."""

    def held(self) -> AbstractContextManager[None]:
        """Nothing is to be held."""
        return nullcontext()

    def engine(
        self, graph: SimulatedGraph, options: Options, fleet: Any, tag: str
    ) -> SimulatedEngine:
        """What carries out a claim's work."""
        return SimulatedEngine(self, graph, options, fleet, tag)

    # ---- what goes wrong in epochs

    def task_done(self, here: Here) -> None:
        """A task is about to report."""
        del here
        if self.mishaps.strikes("task_slow"):
            runtime.sleep(self.draw.uniform(0.2, 20.0))
        elif self.draw.random() < 0.3:
            runtime.sleep(self.draw.uniform(0.0, 0.2))

    def told(self, messages: list[bytes]) -> list[bytes]:
        """Reports come in any order, some of them again, and some with those of the next epoch."""
        messages += self._late
        self._late = []
        if messages and self.mishaps.strikes("report_late"):
            self._late = [self.draw.choice(messages)]
        if messages and self.mishaps.strikes("report_doubled"):
            messages.append(self.draw.choice(messages))
        if messages and self.mishaps.strikes("report_missing"):
            del messages[self.draw.randrange(len(messages))]
        self.draw.shuffle(messages)
        return messages

    def computed_twice(self, partitions: int) -> list[int]:
        """The partitions of a stage that are computed once more."""
        return [p for p in range(partitions) if self.mishaps.strikes("stage_again")]

    def with_errors(self, tasks: list[list[pa.RecordBatch]]) -> Sequence[Iterable[pa.RecordBatch]]:
        """What the tasks of a stage read; user code may raise on the way, however often it is tried."""
        if not tasks or not self.mishaps.strikes("user_code"):
            return tasks
        poisoned = self.draw.randrange(len(tasks))
        after = self.draw.randint(0, len(tasks[poisoned]))
        return [
            _Raising(batches, after) if partition == poisoned else batches
            for partition, batches in enumerate(tasks)
        ]


@dataclass
class _Raising:
    batches: list[pa.RecordBatch]
    after: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches[: self.after]
        raise ProcessingError("user code raised (simulated)")
