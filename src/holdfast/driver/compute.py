"""Computing an epoch: given input on a given version comes to runs, output and times, and nothing is recorded.

Making the result the new version is another thing, and :mod:`holdfast.driver.epoch` does it. Who only
wants to know what an epoch comes to, for all of the state or for some of its partitions, asks here and
records nothing: what tasks have written is then nobody's, and goes as what failed attempts leave does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast import runtime
from holdfast.checkpoint.entry import EpochRecord, PlacedPartition, StagedOutput
from holdfast.driver.engine import AnyGraph, AnyNode, Batch, Engine, NodeJob
from holdfast.driver.graph import times_of
from holdfast.driver.pacing import StageShape
from holdfast.driver.reports import check_loops, complete, places, rows_in
from holdfast.driver.site import Placement, Site
from holdfast.operators.base import Clock
from holdfast.sinks.base import Stager
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.version import Change, Version
from holdfast.storage import Storage
from holdfast.tasks.task import TaskReport, TaskSpec

__all__ = ["Computed", "EpochComputer", "Given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an epoch is computed from: the result depends on nothing else (invariant 4)."""

    batch: Batch
    record: EpochRecord
    """Its number, and the times that were fixed for it."""
    previous_processing_ms: int | None
    """When the epoch before was."""
    version: Version
    """The state after the epoch before. Its files must stay meanwhile."""
    shapes: Mapping[str, StageShape]
    """Per operator how its tasks are cut."""
    placement: Placement
    mergeable: frozenset[str] = frozenset()
    """Runs that nobody else works on, so that tasks may merge them with what they write."""
    wanted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Per operator the partitions that are computed, where that is not all of them. An operator whose
    results such a one reads has to compute all that it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What it comes to."""

    parts: Mapping[str, NodeJob]
    """Per operator its part of the job."""
    reports: Mapping[str, list[TaskReport]]
    """Per operator one report of each partition that was computed."""
    rows: int
    """Rows that came from sources."""
    placed: tuple[PlacedPartition, ...]
    """Where partitions ran, if there was a choice."""
    seconds: Mapping[str, float]
    """What planning and running took."""

    @property
    def every(self) -> list[TaskReport]:
        """All reports."""
        return [report for of_node in self.reports.values() for report in of_node]

    @property
    def changes(self) -> list[Change]:
        """What makes the version before the version after."""
        return [change for report in self.every for change in report.changes]

    @property
    def staged(self) -> dict[str, list[StagedOutput]]:
        """Per sink what tasks have staged for it."""
        staged: dict[str, list[StagedOutput]] = {}
        for report in self.every:
            for sink, output in report.staged.items():
                staged.setdefault(sink, []).append(output)
        return staged

    @property
    def greatest_ms(self) -> dict[str, int]:
        """Per source the greatest event time that was seen."""
        return _of_each(max, (report.greatest_ms for report in self.every))

    @property
    def next_due(self) -> dict[str, int]:
        """Per kind of time when the next timer may be due."""
        return _of_each(min, (report.next_due for report in self.every))


@dataclass(frozen=True, kw_only=True)
class EpochComputer:
    """Computes epochs of a pipeline, for one claim."""

    graph: AnyGraph
    engine: Engine
    storage: Storage
    claim: int
    site: Site
    stagers: Mapping[str, Stager]
    memory_bytes: int

    def compute(self, given: Given) -> Computed:
        """Have the tasks of an epoch run, once; complete, or an error.

        ``JobFailedError`` and ``HostGoneError`` if they could not, ``ComputedTwiceError`` if another
        attempt is needed. Whoever calls this counts as writing (``Ledger.writing``) until what was
        computed is recorded or given up.
        """
        began = runtime.monotonic()
        job = runtime.new_id()
        parts = {node.id: self._part(node, job, given) for node in self.graph.nodes}
        hosts, first = given.placement.hosts, given.version.epoch < 0
        done = self.engine.run(given.batch, parts, hosts, first)
        reports = complete(done.reports, parts.values(), job, given.record.epoch)
        check_loops(parts.values(), [r for of_node in reports.values() for r in of_node])
        of_state = [reports[node.id] for node in self.graph.nodes if node.stateful]
        return Computed(
            parts=parts,
            reports=reports,
            rows=rows_in((part, reports[id_]) for id_, part in parts.items()),
            placed=places(given.placement, of_state),
            seconds={"plan": done.planned - began, "job": done.ran - done.planned},
        )

    def _part(self, node: AnyNode, job: str, given: Given) -> NodeJob:
        clock = _clock(given, node)
        wanted = given.wanted.get(node.id)

        def spec(partitions: int) -> TaskSpec:
            tables = [schema.table for schema in node.operator.tables]
            return TaskSpec(
                operator=node.operator,
                clock=clock,
                partitions=partitions,
                claim=self.claim,
                folder=self.site.folder,
                storage=self.storage,
                host=self.engine.host,
                segments={table: given.version.segments(table, FULL_RANGE) for table in tables},
                mergeable=given.mergeable,
                stagers={sink: self.stagers[sink] for sink in node.sinks},
                memory_bytes=self.memory_bytes,
                outputs=node.sinks,
                chosen=self._chosen(node),
                job=job,
                on_demand=not self.site.one_host or self.site.limit_bytes is not None,
                keep_fetched=self.site.limit_bytes is None,
                retired=given.placement.retired,
                feeds=node.feeds,
                times=times_of(node),
                behind_ms=node.behind_ms,
                wanted=wanted,
            )

        return NodeJob(node, given.shapes[node.id], clock, spec, wanted)

    def _chosen(self, node: AnyNode) -> dict[str, tuple[tuple[str, str], ...]]:
        """Per sink of a node which columns it gets, where it doesn't get all."""
        places = ((sink, self.graph.sinks[sink].columns) for sink in node.sinks)
        return {sink: columns for sink, columns in places if columns is not None}


def _clock(given: Given, node: AnyNode) -> Clock:
    """The times of an epoch, in the time of an operator."""
    record = given.record

    def own(watermark_ms: int | None) -> int | None:
        return None if watermark_ms is None else watermark_ms - node.behind_ms

    return Clock(
        record.epoch,
        record.processing_time_ms,
        own(record.watermark_ms),
        own(record.previous_watermark_ms),
        given.previous_processing_ms,
        derived=node.derived,
        at_end=record.at_end,
    )


def _of_each(
    choose: Callable[[int, int], int], each: Iterable[Mapping[str, int]]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for values in each:
        for name, ms in values.items():
            found[name] = choose(ms, found.get(name, ms))
    return found
