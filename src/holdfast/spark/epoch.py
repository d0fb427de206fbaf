"""One epoch: shape it, run one Spark job, accept all of its reports or none."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from holdfast.checkpoint.entry import EpochRecord, PlacedPartition, StagedOutput
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.time import PipelineTime
from holdfast.errors import InputError, InternalError
from holdfast.failpoints import failpoint
from holdfast.operators.base import Clock
from holdfast.operators.loop import LoopOperator
from holdfast.sinks.base import Stager
from holdfast.spark.flow.graph import Graph, Node, times_of
from holdfast.spark.flow.job import EpochJob, NodeJob
from holdfast.spark.flow.reading import Reading
from holdfast.spark.flow.slices import split
from holdfast.spark.pacing import Pacing, Shape
from holdfast.spark.placed import Placer
from holdfast.spark.session import ONE_HOST_SETTINGS, QUERY_SETTINGS, batch_limit
from holdfast.spark.site import Placement, Site
from holdfast.spark.task import TaskReport, TaskSpec
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.version import Version
from holdfast.storage import Storage

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["EpochLoop", "EpochProgress", "Reports"]

logger = logging.getLogger("holdfast.spark")

# A stage that others read and that was computed twice: so often is an epoch begun anew for it.
_MOST_REPEATS = 5


class _RepeatedError(Exception):
    """Readers of a stage may have seen rows of two attempts at it."""


class _Messages(AccumulatorParam[list[bytes]]):
    def zero(self, value: list[bytes]) -> list[bytes]:
        del value
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:  # noqa: N802
        value1.extend(value2)
        return value1


class Reports:
    """The one long-lived accumulator through which tasks report (each new one would leak)."""

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[list[bytes]] = context.accumulator([], _Messages())

    def take(self) -> list[TaskReport]:
        """The reports since the last call."""
        messages = self.accumulator.value
        self.accumulator.value = []
        return [msgspec.json.decode(message, type=TaskReport) for message in messages]


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """What ``query.progress`` says of one epoch."""

    epoch: int
    rows: int
    """Rows that came in."""
    keys: int
    """Keys whose state changed."""
    state_rows: int
    state_bytes: int
    partitions: int
    preaggregated: bool
    spilled_bytes: int
    fetched_bytes: int
    """State read from checkpoint storage because this host didn't have it."""
    seconds: Mapping[str, float]
    """Per phase: plan, job, and summed over tasks receive, state, stage, merge; and total."""
    watermark_ms: int | None = None
    late_rows: int = 0
    """Rows at or before the watermark, which went to the side output ``late``."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What user code counted with ``ctx.metrics``."""
    last_checkpoint: int | None = None
    """The newest epoch that a log entry holds."""
    placement: tuple[PlacedPartition, ...] = ()
    """On a cluster: per partition where it ran, why, and what it read from where."""
    operators: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Per operator: rows in, keys changed, rows that came into its state, seconds in its tasks."""


@dataclass
class EpochLoop:
    """Runs epochs of a pipeline."""

    graph: Graph
    reading: Sequence[Reading]
    """What is read of each source."""
    ledger: Ledger
    storage: Storage
    claim: int
    site: Site
    stagers: Mapping[str, Stager]
    partitions: int
    pacing: Mapping[str, Pacing]
    """Per operator how its tasks are cut."""
    reports: Reports
    memory_bytes: int
    time: PipelineTime
    next_due: Mapping[str, int] | None = None
    """Per kind of time when the next timer may be due; None if that isn't known."""
    host: str = field(default_factory=socket.gethostname)
    _settings: Mapping[str, str] = field(default_factory=dict)
    _largest_batch: int | None = None
    _last_shapes: dict[str, Shape] = field(default_factory=dict)

    def run(
        self, batch: DataFrame, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        """Process one micro-batch: version e−1 becomes version e, or nothing happens.

        A host may be lost on the way: the same epoch is then run again, elsewhere.
        """
        attempt = repeats = 0
        while True:
            attempt += 1
            try:
                return self._attempt(batch, record, position)
            except _RepeatedError as error:
                repeats += 1
                if repeats == _MOST_REPEATS:
                    raise InternalError(f"epoch {record.epoch}: {error}, {repeats} times") from None
                logger.warning("epoch %d is run again: %s", record.epoch, error)
            except (PySparkException, Py4JError) as error:
                self.site.failed(error, attempt)
                # Should it have been for want of memory: batches are measured again.
                self._largest_batch = None

    def _attempt(
        self, batch: DataFrame, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        began = time.perf_counter()
        self._configure(batch)
        inputs = _input_partitions(batch)
        with self.ledger.epoch() as (version, mergeable):
            placement = self.site.place(version, self.partitions)
            name = uuid.uuid4().hex[:16]
            parts = {
                node.id: self._part(node, name, record, version, mergeable, placement, inputs)
                for node in self.graph.nodes
            }
            self.reports.take()
            job = EpochJob(
                self.graph,
                self._sources(batch),
                parts,
                batch.sparkSession,
                Placer(batch.sparkSession.sparkContext),
                placement.hosts,
                self.reports.accumulator,
                first=version.epoch < 0,
            ).build()
            planned = time.perf_counter()
            job.count()
            ran = time.perf_counter()
            reports = _complete(self.reports.take(), parts.values(), name, record.epoch)
            every = [report for of_node in reports.values() for report in of_node]
            _check_loops(parts.values(), every)
            rows = _rows_in((part, reports[id_]) for id_, part in parts.items())
            placed = [reports[node.id] for node in self.graph.nodes if node.stateful]
            failpoint("epoch.before_record")
            self.site.learn((change for r in every for change in r.changes), _fetched(every))
            self._record(record, every, position, rows, _places(placement, placed))
        self._learn(parts, reports)
        self._largest_batch = max((report.batch_bytes for report in every), default=0)
        self.site.retire(self.ledger.version, self.ledger.live_runs())
        seconds = {"plan": planned - began, "job": ran - planned}
        for report in every:
            for phase, spent in report.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + spent
        seconds["total"] = time.perf_counter() - began
        return self._progress(record, rows, parts, reports, seconds)

    def _sources(self, batch: DataFrame) -> list[DataFrame]:
        """The rows of each source, with all of its columns."""
        parts = split(batch, len(self.reading), ticks=self.graph.needs_ticks)
        return [reading.whole(rows) for reading, rows in zip(self.reading, parts, strict=True)]

    @cached_property
    def _counting(self) -> set[str]:
        """The operators that know how many rows they have: none of theirs expire."""
        return {op.id for op in self.graph.operators if not op.has_expiry}

    def _part(
        self,
        node: Node,
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
                host=self.host,
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

    def _chosen(self, node: Node) -> dict[str, tuple[tuple[str, str], ...]]:
        """Per sink of a node which columns it gets, where it doesn't get all."""
        places = ((sink, self.graph.sinks[sink].columns) for sink in node.sinks)
        return {sink: columns for sink, columns in places if columns is not None}

    def _shape(self, node: Node, inputs: int) -> Shape:
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

    def _configure(self, batch: DataFrame) -> None:
        """The stream runs in a session of its own, made by Spark: give it our settings."""
        wanted = QUERY_SETTINGS | batch_limit(self._largest_batch)
        if self.site.one_host:
            wanted |= ONE_HOST_SETTINGS
        for name, value in wanted.items():
            if self._settings.get(name) != value:
                batch.sparkSession.conf.set(name, value)
        self._settings = wanted

    def _learn(self, parts: Mapping[str, NodeJob], reports: Mapping[str, list[TaskReport]]) -> None:
        for id_, pacing in self.pacing.items():
            of_node = reports[id_]
            pacing.learn(
                received=sum(r.rows for r in of_node),
                keys=sum(r.keys for r in of_node),
                source_rows=_received(parts[id_], of_node),
                work_s=sum(r.seconds.get("state", 0.0) for r in of_node),
            )

    def is_due(self, record: EpochRecord) -> bool:
        """Whether an epoch without input may have something to do all the same."""
        never_ran = self.ledger.version.epoch < 0
        return never_ran or self._is_due(record.processing_time_ms, record.watermark_ms)

    def awaits_tick(self, now_ms: int) -> bool:
        """Whether the next epoch has something to do though no input should come."""
        has_run = self.ledger.version.epoch >= 0
        return has_run and self._is_due(now_ms, self.time.next_watermark_ms)

    def _is_due(self, processing_ms: int, watermark_ms: int | None) -> bool:
        if self.next_due is None:
            # Not known after a restart.
            return True
        now = {"processing": processing_ms, "event": watermark_ms}
        return any(
            (clock := now[kind]) is not None and ms <= clock for kind, ms in self.next_due.items()
        )

    def skip(self, record: EpochRecord, position: Mapping[str, bytes]) -> None:
        """An epoch without input, in which nothing is due: version e is version e−1."""
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
        self.ledger.record_epoch(
            self.time.end(msgspec.structs.replace(record, rows=rows), greatest),
            changes,
            staged,
            position,
            sum(r.new_keys for r in reports if r.operator in self._counting),
            placement,
        )

    def _progress(
        self,
        record: EpochRecord,
        rows: int,
        parts: Mapping[str, NodeJob],
        by_node: Mapping[str, list[TaskReport]],
        seconds: Mapping[str, float],
    ) -> EpochProgress:
        version = self.ledger.version
        metrics: dict[str, float] = {}
        reports = [report for of_node in by_node.values() for report in of_node]
        for report in reports:
            for name, amount in report.metrics.items():
                metrics[name] = metrics.get(name, 0) + amount
        return EpochProgress(
            epoch=record.epoch,
            rows=rows,
            keys=sum(r.keys for r in reports),
            state_rows=self.ledger.state_rows,
            state_bytes=sum(s.size_bytes for part in version.tables.values() for s in part),
            partitions=max((p.partitions for p in parts.values() if p.node.stateful), default=1),
            preaggregated=any(part.shape.preaggregate for part in parts.values()),
            spilled_bytes=sum(r.spilled_bytes for r in reports),
            fetched_bytes=sum(r.fetched_bytes for r in reports),
            seconds=seconds,
            watermark_ms=record.watermark_ms,
            late_rows=sum(r.late_rows for r in reports),
            metrics=metrics,
            placement=self.ledger.placement,
            operators={id_: _summed(of_node) for id_, of_node in by_node.items()},
        )


def _clock(record: EpochRecord, previous_processing_ms: int | None, node: Node) -> Clock:
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
    )


def _input_partitions(batch: DataFrame) -> int:
    # In foreachBatch a batch is an RDD already, so asking for its partitions plans nothing.
    plan = batch._jdf.queryExecution().analyzed()
    return int(plan.rdd().getNumPartitions()) if plan.nodeName() == "LogicalRDD" else 1


def _received(part: NodeJob, reports: list[TaskReport]) -> int:
    if part.source_rows:
        return sum(rows() for rows in part.source_rows)
    return sum(report.rows for report in reports)


def _rows_in(parts: Iterable[tuple[NodeJob, list[TaskReport]]]) -> int:
    """Rows that came from sources, each source counted once, where most of it was read."""
    received: dict[frozenset[int], int] = {}
    for part, reports in parts:
        feeds = [feed for feeds in part.node.ports for feed in feeds]
        sources = frozenset(feed.source for feed in feeds if feed.source is not None)
        if sources:
            received[sources] = max(_received(part, reports), received.get(sources, 0))
    counted: set[int] = set()
    rows = 0
    for sources in sorted(received, key=lambda each: (-len(each), sorted(each))):
        if not sources <= counted:
            rows += received[sources]
            counted |= sources
    return rows


def _complete(
    reports: list[TaskReport], parts: Iterable[NodeJob], job: str, epoch: int
) -> dict[str, list[TaskReport]]:
    """Per node one report of each partition: a version is recorded only if all are there.

    Of a node that nobody reads the first report of a partition counts. A second one of a node that
    feeds others means that it was computed twice, and nobody knows which rows they have read.
    """
    complete = {}
    for part in parts:
        first: dict[int, TaskReport] = {}
        for report in reports:
            if report.job != job or report.operator != part.node.operator.id:
                continue
            if report.partition in first and part.node.feeds:
                raise _RepeatedError(
                    f"partition {report.partition} of {part.node.id!r} was computed twice"
                )
            first.setdefault(report.partition, report)
        missing = set(range(part.partitions)) - set(first)
        if missing:
            raise InternalError(
                f"epoch {epoch}: partitions {sorted(missing)} of {part.node.id!r} did not report"
            )
        complete[part.node.id] = [first[partition] for partition in sorted(first)]
    return complete


def _check_loops(parts: Iterable[NodeJob], reports: list[TaskReport]) -> None:
    """Raise if more rows go round than a loop may hold: nothing of the epoch is recorded then."""
    for part in parts:
        operator = part.node.operator
        if not isinstance(operator, LoopOperator):
            continue
        records = sum(report.metrics.get(operator.records, 0) for report in reports)
        if records > operator.most:
            raise InputError(
                f"{records:.0f} records are in the loop {operator.id!r}, which may hold "
                f"{operator.most}: the body feeds back more than it lets out",
                hint="let rows leave the loop, or raise max_records=; the checkpoint before is as it was",
            )


def _summed(reports: list[TaskReport]) -> dict[str, float]:
    return {
        "rows": sum(r.rows for r in reports),
        "keys": sum(r.keys for r in reports),
        "new_state_rows": sum(r.new_keys for r in reports),
        "seconds": sum(s for r in reports for phase, s in r.seconds.items() if phase != "hand on"),
    }


def _fetched(reports: list[TaskReport]) -> dict[str, list[str]]:
    """Per host the runs that its tasks brought to its disk."""
    by_host: dict[str, list[str]] = {}
    for report in reports:
        by_host.setdefault(report.host, []).extend(report.fetched)
    return by_host


def _places(placement: Placement, reports: list[list[TaskReport]]) -> tuple[PlacedPartition, ...]:
    """Where the partitions ran; nothing if there was no choice."""
    places = []
    for number, assignment in enumerate(placement.assignments):
        # On a cluster all operators have as many partitions, each on the host of its number.
        mine = [of_node[number] for of_node in reports if number < len(of_node)]
        if not mine:
            continue
        local, fetched = sum(r.local_bytes for r in mine), sum(r.fetched_bytes for r in mine)
        host = next((r.host for r in mine if r.host != assignment.host), assignment.host or "")
        # What storage gave counts as near if the planner knew of a replica on that host.
        near = assignment.host == host and not assignment.remote_bytes
        why = assignment.why
        if assignment.host != host:
            why = f"Spark ran it here instead of on {assignment.host}"
        places.append(
            PlacedPartition(
                number,
                partition_range(number, len(placement.assignments)),
                host,
                why,
                local + (fetched if near else 0),
                0 if near else fetched,
            )
        )
    return tuple(places)
