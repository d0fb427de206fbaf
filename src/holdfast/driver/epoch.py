"""One epoch: shape it, have its tasks run, accept all of their reports or none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from holdfast import runtime
from holdfast.checkpoint.entry import EpochRecord, PlacedPartition, StagedOutput
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.time import PipelineTime
from holdfast.driver.engine import (
    AnyGraph,
    AnyNode,
    Batch,
    Engine,
    HostGoneError,
    JobFailedError,
    NodeJob,
)
from holdfast.driver.graph import times_of
from holdfast.driver.pacing import Pacing, Shape
from holdfast.driver.progress import EpochProgress, progress_of
from holdfast.driver.reports import (
    RepeatedError,
    check_loops,
    complete,
    fetched,
    places,
    received,
    rows_in,
)
from holdfast.driver.site import Placement, Site
from holdfast.errors import InternalError
from holdfast.failpoints import failpoint
from holdfast.operators.base import Clock
from holdfast.sinks.base import Stager
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.version import Version
from holdfast.storage import Storage
from holdfast.tasks.task import TaskReport, TaskSpec

__all__ = ["EpochLoop"]

logger = logging.getLogger("holdfast.spark")

# A stage that others read and that was computed twice: so often is an epoch begun anew for it.
_MOST_REPEATS = 5


@dataclass
class EpochLoop:
    """Runs epochs of a pipeline."""

    graph: AnyGraph
    engine: Engine
    ledger: Ledger
    storage: Storage
    claim: int
    site: Site
    stagers: Mapping[str, Stager]
    partitions: int
    pacing: Mapping[str, Pacing]
    """Per operator how its tasks are cut."""
    memory_bytes: int
    time: PipelineTime
    next_due: Mapping[str, int] | None = None
    """Per kind of time when the next timer may be due; None if that isn't known."""
    _last_shapes: dict[str, Shape] = field(default_factory=dict)

    def run(
        self, batch: Batch, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        """Process one micro-batch: version e−1 becomes version e, or nothing happens.

        A host may be lost on the way: the same epoch is then run again, elsewhere.
        """
        attempt = repeats = 0
        while True:
            attempt += 1
            try:
                return self._attempt(batch, record, position)
            except RepeatedError as error:
                repeats += 1
                if repeats == _MOST_REPEATS:
                    raise InternalError(f"epoch {record.epoch}: {error}, {repeats} times") from None
                logger.warning("epoch %d is run again: %s", record.epoch, error)
            except (JobFailedError, HostGoneError) as error:
                self.site.failed(error, attempt)

    def _attempt(
        self, batch: Batch, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        began = runtime.monotonic()
        inputs = self.engine.input_partitions(batch)
        with self.ledger.epoch() as (version, mergeable):
            placement = self.site.place(version, self.partitions)
            name = runtime.new_id()
            parts = {
                node.id: self._part(node, name, record, version, mergeable, placement, inputs)
                for node in self.graph.nodes
            }
            done = self.engine.run(batch, parts, placement.hosts, version.epoch < 0)
            reports = complete(done.reports, parts.values(), name, record.epoch)
            every = [report for of_node in reports.values() for report in of_node]
            check_loops(parts.values(), every)
            rows = rows_in((part, reports[id_]) for id_, part in parts.items())
            placed = [reports[node.id] for node in self.graph.nodes if node.stateful]
            failpoint("epoch.before_record")
            self.site.learn((change for r in every for change in r.changes), fetched(every))
            self._record(record, every, position, rows, places(placement, placed))
        self._learn(parts, reports)
        self.site.retire(self.ledger)
        total = runtime.monotonic() - began
        seconds = {"plan": done.planned - began, "job": done.ran - done.planned, "total": total}
        return progress_of(self.ledger, record, rows, parts, reports, seconds)

    @cached_property
    def _counting(self) -> set[str]:
        """The operators that know how many rows they have: none of theirs expire."""
        return {op.id for op in self.graph.operators if not op.has_expiry}

    def _part(
        self,
        node: AnyNode,
        job: str,
        record: EpochRecord,
        version: Version,
        mergeable: frozenset[str],
        placement: Placement,
        inputs: int,
    ) -> NodeJob:
        shape = self._shape(node, inputs)
        clock = _clock(record, self.time.previous_processing_ms, node)

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
                segments={table: version.segments(table, FULL_RANGE) for table in tables},
                mergeable=mergeable,
                stagers={sink: self.stagers[sink] for sink in node.sinks},
                memory_bytes=self.memory_bytes,
                outputs=node.sinks,
                chosen=self._chosen(node),
                job=job,
                on_demand=not self.site.one_host or self.site.limit_bytes is not None,
                keep_fetched=self.site.limit_bytes is None,
                retired=placement.retired,
                feeds=node.feeds,
                times=times_of(node),
                behind_ms=node.behind_ms,
            )

        return NodeJob(node, shape, clock, spec)

    def _chosen(self, node: AnyNode) -> dict[str, tuple[tuple[str, str], ...]]:
        """Per sink of a node which columns it gets, where it doesn't get all."""
        places = ((sink, self.graph.sinks[sink].columns) for sink in node.sinks)
        return {sink: columns for sink, columns in places if columns is not None}

    def _shape(self, node: AnyNode, inputs: int) -> Shape:
        if not node.stateful:
            return Shape(1, preaggregate=False, shuffle=False)
        pacing = self.pacing[node.id]
        shape = pacing.next(1 if node.derived else inputs)
        if node.derived and not shape.shuffle:
            # Without one, the tasks of the operator before would become one task too.
            shape = replace(shape, shuffle=True)
        if shape != self._last_shapes.get(node.id):
            logger.info("epochs of %s now run as %s: %s", node.id, shape, pacing.why())
            self._last_shapes[node.id] = shape
        return shape

    def _learn(self, parts: Mapping[str, NodeJob], reports: Mapping[str, list[TaskReport]]) -> None:
        for id_, pacing in self.pacing.items():
            of_node = reports[id_]
            pacing.learn(
                received=sum(r.rows for r in of_node),
                keys=sum(r.keys for r in of_node),
                source_rows=received(parts[id_], of_node),
                grouped=parts[id_].shape.preaggregate,
                work_s=sum(r.seconds.get("state", 0.0) for r in of_node),
            )

    def is_due(self, record: EpochRecord) -> bool:
        """Whether an epoch without input may have something to do all the same."""
        if self.ledger.version.epoch < 0:
            return self.graph.begins_with_rows
        return self._is_due(record.processing_time_ms, record.watermark_ms)

    def awaits_tick(self, now_ms: int) -> bool:
        """Whether the next epoch has something to do though no input should come."""
        has_run = self.ledger.version.epoch >= 0
        return has_run and self._is_due(now_ms, self.time.watermark_at(now_ms))

    def awaits_watermark(self, now_ms: int) -> bool:
        """Whether the next epoch has something to do because the watermark has moved."""
        after = self.time.watermark_at(now_ms)
        if after is None or after == self.time.watermark_ms:
            return False
        if any(operator.late_by_epoch_before for operator in self.graph.operators):
            # Which rows are late later on must not depend on whether something is due now.
            return True
        # What goes by processing time is not meant: the driver's clock moves all the time.
        return self.graph.needs_ticks and self._is_due(-1, after)

    def _is_due(self, processing_ms: int, watermark_ms: int | None) -> bool:
        if self.next_due is None:
            # Not known after a restart.
            return True
        now = {"processing": processing_ms, "event": watermark_ms}
        return any(
            (clock := now[kind]) is not None and ms <= clock for kind, ms in self.next_due.items()
        )

    def goes_on(self, processing_ms: int) -> bool:
        """Whether something is due at the time of the last epoch itself: rows that go round."""
        return self._is_due(processing_ms, None)

    def skip(self, record: EpochRecord, position: Mapping[str, bytes]) -> None:
        """An epoch without input, in which nothing is due: version e is version e−1."""
        if self.ledger.version.epoch < 0:
            # Without state nothing will be, until there are rows.
            self.next_due = {}
        with self.ledger.epoch():
            self.ledger.skip_epoch(self.time.end(record, {}), position)

    def _record(
        self,
        record: EpochRecord,
        reports: list[TaskReport],
        position: Mapping[str, bytes],
        rows: int,
        placement: tuple[PlacedPartition, ...],
    ) -> None:
        staged: dict[str, list[StagedOutput]] = {}
        for report in reports:
            for sink, output in report.staged.items():
                staged.setdefault(sink, []).append(output)
        changes = [change for report in reports for change in report.changes]
        greatest: dict[str, int] = {}
        due: dict[str, int] = {}
        for report in reports:
            for source, ms in report.greatest_ms.items():
                greatest[source] = max(ms, greatest.get(source, ms))
            for kind, ms in report.next_due.items():
                due[kind] = min(ms, due.get(kind, ms))
        self.next_due = due
        done = record.at_end and not self.goes_on(record.processing_time_ms)
        self.ledger.record_epoch(
            self.time.end(msgspec.structs.replace(record, rows=rows, ended=done), greatest),
            changes,
            staged,
            position,
            sum(r.new_keys for r in reports if r.operator in self._counting),
            placement,
        )


def _clock(record: EpochRecord, previous_processing_ms: int | None, node: AnyNode) -> Clock:
    """The times of an epoch, in the time of an operator."""

    def own(watermark_ms: int | None) -> int | None:
        return None if watermark_ms is None else watermark_ms - node.behind_ms

    return Clock(
        record.epoch,
        record.processing_time_ms,
        own(record.watermark_ms),
        own(record.previous_watermark_ms),
        previous_processing_ms,
        derived=node.derived,
        at_end=record.at_end,
    )
