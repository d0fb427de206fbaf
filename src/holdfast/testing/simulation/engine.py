"""The simulated engine: runs the real tasks of an epoch, in this process, where a seed says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast import runtime
from holdfast.driver.engine import (
    EpochRun,
    EpochStream,
    GoneHost,
    HostGoneError,
    JobFailedError,
    NodeJob,
    StreamError,
    passing_failure_of,
)
from holdfast.driver.scratch import ScratchReader
from holdfast.errors import HoldfastError, ProcessingError
from holdfast.operators.emit import EmitOperator
from holdfast.placement.planner import Host
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.emitting import emit_rows
from holdfast.tasks.here import Here
from holdfast.tasks.loop import read_loop
from holdfast.tasks.outputs import derived_schema
from holdfast.tasks.task import TaskReport, TaskSpec, work_through
from holdfast.testing.simulation.inputs import SimulatedBatch
from holdfast.testing.simulation.jobs import (
    CancelledError,
    Jobs,
    LostError,
    SimulatedJobError,
)
from holdfast.testing.simulation.stream import SimulatedStream, SimulatedTicker

if TYPE_CHECKING:
    from holdfast.driver.options import Options
    from holdfast.testing.simulation.platform import SimulatedPlatform

__all__ = ["SimulatedEngine", "SimulatedFleet", "SimulatedJobError"]

_CLUSTER_ATTEMPTS = 4
_MANY = 100
_Handed = list[list[pa.RecordBatch]]
"""Per partition what a stage hands on."""


class SimulatedFleet:
    """The hosts of a world, as one driver sees them."""

    def __init__(self, platform: SimulatedPlatform) -> None:
        self._machines = platform.machines
        self._jobs = Jobs(platform.machines, platform.draw)

    def executors(self) -> frozenset[str]:
        """Those that it thinks live."""
        return frozenset(executor.name for executor in self._machines.executors())

    def hosts(self, executors: frozenset[str] | None = None) -> tuple[Host, ...]:
        """Their hosts."""
        if executors is None:
            return self._machines.hosts()
        names = sorted({name.rpartition(":")[0] for name in executors})
        return tuple(Host(name, 2) for name in names)

    def gone(self, host: str) -> GoneHost:
        """What is known of it."""
        machine = self._machines.all.get(host)
        return GoneHost("simulated", machine is None or machine.lost)

    def run(
        self, hosts: Sequence[str], task: Callable[[Here], DiskReport], what: str
    ) -> list[DiskReport]:
        """A task on each host."""

        def on(_: int, here: Here) -> DiskReport:
            return replace_host(task(here), here.host)

        try:
            return self._jobs.run(hosts, on, what, strict=len(set(hosts)) > 1)
        except (CancelledError, LostError) as error:
            raise JobFailedError(error, error.passing) from error

    def check(
        self, hosts: Sequence[str], packages: Mapping[str, tuple[int, ...]], root: Path
    ) -> None:
        """All is well with them."""

    def cancel(self) -> None:
        """End what runs."""
        self._jobs.cancel()


def replace_host(found: DiskReport, host: str) -> DiskReport:
    """What was found, with the host where it was."""
    return DiskReport(host, found.runs, found.seconds, found.error)


class SimulatedEngine:
    """What a driver's work is done by, for one claim."""

    def __init__(
        self, platform: SimulatedPlatform, graph: Any, options: Options, fleet: Any, tag: str
    ) -> None:
        self._platform = platform
        self._graph = graph
        self._options = options
        self._is_cluster = fleet is not None
        self._draw = platform.draw
        self._epoch_jobs = Jobs(platform.machines, self._draw)
        self._background = Jobs(platform.machines, self._draw)
        self._messages: list[bytes] = []
        self.host = platform.host.host
        self.ticks = SimulatedTicker(by_itself=not options.manual) if graph.needs_ticks else None
        self.tag = tag

    @property
    def parallelism(self) -> int:
        """How many tasks an epoch has, unless the user says."""
        return 2

    def begin(self, scratch: ScratchReader, on_batch: Callable[[Any, int], None]) -> EpochStream:
        """Begin with epochs."""
        return SimulatedStream(
            self._platform.inputs,
            scratch.folder,
            on_batch,
            self._draw,
            ticker=self.ticks,
            available_now=self._options.available_now,
            every_s=self._options.trigger_s,
            when_stopped=self._epoch_jobs.cancel,
        )

    # ---- epochs

    def input_partitions(self, batch: SimulatedBatch) -> int:
        """A few, or so many that all partitions are used: P goes up and down from epoch to epoch."""
        del batch
        return self._draw.choice((1, _MANY))

    def run(
        self,
        batch: SimulatedBatch,
        parts: Mapping[str, NodeJob],
        hosts: Sequence[str | None],
        first: bool,
    ) -> EpochRun:
        """Stage after stage, each a task per partition."""
        planned = runtime.monotonic()
        self._epoch_jobs.begin()
        handed: dict[str, _Handed] = {}
        try:
            for node in self._graph.nodes:
                part = parts[node.id]
                part.spec = part.make_spec(part.shape.partitions if node.stateful else 1)
                self._fed_back(node, parts, handed, hosts)
                arriving = self._arriving(node, part.spec, batch, handed, first)
                at = hosts if node.stateful else ()
                handed[node.id] = self._stage(node, part.spec, arriving, at)
        except (CancelledError, LostError) as error:
            raise JobFailedError(error, error.passing) from error
        except HostGoneError:
            raise
        except (HoldfastError, OSError) as error:
            raised = error if isinstance(error, HoldfastError) else None
            said = ProcessingError(f"{type(error).__name__}: {error}")
            raise JobFailedError(said, passing_failure_of(raised), raised) from error
        messages, self._messages = self._messages, []
        told = self._platform.told(messages)
        reports = [TaskReport.decoded(message) for message in told]
        return EpochRun(reports, planned, runtime.monotonic())

    def _stage(
        self,
        node: Any,
        spec: TaskSpec,
        arriving: list[list[pa.RecordBatch]],
        hosts: Sequence[str | None],
    ) -> _Handed:
        work = emit_rows if isinstance(spec.operator, EmitOperator) else work_through
        given = self._platform.with_errors(arriving)
        # As a process gets it: user code keeps what it works on in its own object.
        copied = self._graph.program.copies(spec.operator)

        def task(partition: int, here: Here) -> list[pa.RecordBatch]:
            if not spec.wants(partition):
                return []
            own = replace(
                spec,
                operator=copied(),
                host=here.host,
                folder=here.path(spec.folder),
                storage=here.reach(spec.storage),
            )
            handed, report = _through(work(own, partition, given[partition]))
            self._platform.task_done(here)
            self._messages.append(report.encoded())
            return handed

        every = self._on(range(spec.partitions), task, hosts, f"epoch of {node.id}")
        for partition in self._platform.computed_twice(spec.partitions):
            # Its readers get the rows of either attempt, as it happens.
            (every[partition],) = self._on(
                [partition], task, [hosts[partition]] if hosts else (), f"{node.id} again"
            )
        return every

    def _on(
        self,
        partitions: Sequence[int],
        task: Callable[[int, Here], Any],
        hosts: Sequence[str | None],
        what: str,
    ) -> list[Any]:
        if self._is_cluster:
            placed = list(hosts) or [None] * len(partitions)
            numbers = list(partitions)
            return self._epoch_jobs.run(
                placed, lambda i, here: task(numbers[i], here), what, attempts=_CLUSTER_ATTEMPTS
            )
        here = self._platform.host

        def on(partition: int) -> Any:
            self._epoch_jobs.check()
            return task(partition, here)

        if len(partitions) == 1:
            return [on(partitions[0])]
        return runtime.each(on, partitions, at_once=2)

    def _fed_back(
        self,
        node: Any,
        parts: Mapping[str, NodeJob],
        handed: dict[str, _Handed],
        hosts: Sequence[str | None],
    ) -> None:
        """Have what waits in loops read that a node reads, each partition where it is."""
        for feeds in node.ports:
            for feed in feeds:
                if not feed.loop:
                    continue
                loop = parts[feed.node]
                spec = loop.make_spec(loop.shape.partitions)

                def read(partition: int, here: Here, spec: TaskSpec = spec) -> list[pa.RecordBatch]:
                    own = replace(
                        spec, folder=here.path(spec.folder), storage=here.reach(spec.storage)
                    )
                    return list(read_loop(own, partition))

                waiting = self._on(range(spec.partitions), read, hosts, f"start of {feed.node}")
                handed[f"{feed.node}.start"] = waiting

    def _arriving(
        self,
        node: Any,
        spec: TaskSpec,
        batch: SimulatedBatch,
        handed: Mapping[str, _Handed],
        first: bool,
    ) -> list[list[pa.RecordBatch]]:
        """The batches of each task of a node."""
        graph = self._graph
        program = graph.program
        tasks: list[list[pa.RecordBatch]] = [[] for _ in range(spec.partitions)]
        for port, feeds in enumerate(node.ports):
            for number, feed in enumerate(feeds):
                if feed.source is not None:
                    source = feed.source
                    inputs = self._platform.inputs
                    parts = inputs.pieces(source, batch.first[source], batch.end[source])
                    parts = parts or [inputs.piece(source, 0).slice(0, 0)]
                elif feed.loop:
                    schema = graph.node(feed.node).operator.output_schema
                    parts = [
                        pa.Table.from_batches(batches, schema)
                        for batches in handed[f"{feed.node}.start"]
                    ]
                else:
                    origin = graph.node(feed.node)
                    schema = derived_schema(origin.operator, origin.feeds)
                    parts = [
                        pa.Table.from_batches(batches, schema) for batches in handed[feed.node]
                    ]
                for at, rows in enumerate(parts):
                    lifted = program.lift(node.id, port, rows, feed=number, part=at, first=first)
                    cut = program.cut(node.id, lifted, spec.partitions, at)
                    for partition, own in enumerate(cut):
                        tasks[partition] += own.combine_chunks().to_batches()
        return tasks

    def cancel_epoch(self, stream: EpochStream) -> None:
        """End the job of the epoch in hand."""
        del stream
        self._epoch_jobs.cancel()

    def no_rows(self) -> SimulatedBatch:
        """Nothing of any source."""
        nothing = (0,) * self._platform.inputs.count
        return SimulatedBatch(nothing, nothing)

    def has_rows(self, batch: SimulatedBatch) -> bool:
        """Whether any source has moved."""
        return batch.has_rows

    def epoch_of(self, stream: EpochStream) -> AbstractContextManager[None]:
        """All the same here."""
        del stream
        return nullcontext()

    def sources_ended(self) -> bool | None:
        """Whether the inputs have ended."""
        return self._platform.inputs.ended if self._platform.can_end else None

    # ---- beside the epochs

    def on_hosts(
        self, hosts: Sequence[str | None], work: Callable[[int, Here], bytes], what: str
    ) -> list[bytes]:
        """A short task per number."""
        if not self._is_cluster:
            return [work(number, self._platform.host) for number in range(len(hosts))]
        self._background.begin()
        several = len({host for host in hosts if host is not None}) > 1
        try:
            return self._background.run(hosts, work, what, strict=several)
        except (CancelledError, LostError) as error:
            raise JobFailedError(error, error.passing) from error

    def cancel_background(self) -> None:
        """End what runs."""
        self._background.cancel()

    def thread(self, target: Callable[[], object], name: str) -> runtime.Thread:
        """A thread of the driver's."""
        return runtime.thread(target, name)

    # ---- words

    def to_dataframe(self, table: pa.Table) -> Any:
        """The table."""
        return table

    def was_cancelled(self, error: BaseException) -> bool:
        """Whether the stream was stopped meanwhile."""
        return isinstance(error, CancelledError)

    def failure_of(self, error: BaseException, pipeline: str, epoch: int) -> ProcessingError:
        """Its words."""
        failed = ProcessingError(f"pipeline {pipeline!r} failed after epoch {epoch}: {error}")
        failed.__cause__ = error.__cause__ if isinstance(error, StreamError) else error
        return failed

    def close(self) -> None:
        """Nothing is held open."""


def _through(work: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], TaskReport]:
    handed = []
    while True:
        try:
            handed.append(next(work))
        except StopIteration as end:
            return handed, end.value
