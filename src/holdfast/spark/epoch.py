"""One epoch: shape it, run one Spark job, accept all of its reports or none."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

from holdfast.checkpoint.entry import EpochRecord, PlacedPartition, StagedOutput
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.time import PipelineTime
from holdfast.errors import InternalError
from holdfast.failpoints import failpoint
from holdfast.operators.base import Clock
from holdfast.sinks.base import Stager
from holdfast.spark.pacing import Pacing, Shape
from holdfast.spark.placed import task_host
from holdfast.spark.plan import Plan
from holdfast.spark.session import QUERY_SETTINGS
from holdfast.spark.site import Placement, Site
from holdfast.spark.task import TaskReport, TaskSpec, run_task
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.version import Version
from holdfast.storage import Storage

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["EpochLoop", "EpochProgress", "Reports"]

logger = logging.getLogger("holdfast.spark")

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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


@dataclass
class EpochLoop:
    """Runs epochs of a pipeline with one stateful operator."""

    plan: Plan
    ledger: Ledger
    storage: Storage
    claim: int
    site: Site
    stagers: Mapping[str, Stager]
    pacing: Pacing
    reports: Reports
    memory_bytes: int
    time: PipelineTime
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Which sinks get a side output, and its name."""
    next_due: Mapping[str, int] | None = None
    """Per kind of time when the next timer may be due; None if that isn't known."""
    host: str = field(default_factory=socket.gethostname)
    _configured: bool = False
    _last_shape: Shape | None = None

    def run(
        self, batch: DataFrame, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        """Process one micro-batch: version e−1 becomes version e, or nothing happens.

        A host may be lost on the way: the same epoch is then run again, elsewhere.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(batch, record, position)
            except (PySparkException, Py4JError) as error:
                self.site.failed(error, attempt)

    def _attempt(
        self, batch: DataFrame, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        began = time.perf_counter()
        self._configure(batch)
        clock = Clock(
            record.epoch,
            record.processing_time_ms,
            record.watermark_ms,
            record.previous_watermark_ms,
            self.time.previous_processing_ms,
        )
        shape = self._shape(batch)
        with self.ledger.epoch() as (version, mergeable):
            placement = self.site.place(version, shape.partitions)
            spec = self._spec(clock, shape, version, mergeable, placement)
            self.reports.take()
            frame, source_rows = self._lifted(batch, shape, first=version.epoch < 0)
            job = _map_in_arrow(
                self.site.placed(self.plan.partitioned(frame, shape), placement.hosts),
                self.plan.operator.input_schema.names,
                _task_function(spec, self.reports.accumulator),
            )
            rdd = job.queryExecution().toRdd()
            planned = time.perf_counter()
            rdd.count()
            ran = time.perf_counter()
            reports = _complete(self.reports.take(), spec, shape.partitions)
            rows = source_rows() if source_rows is not None else sum(r.rows for r in reports)
            failpoint("epoch.before_record")
            self.site.learn(
                (change for report in reports for change in report.changes),
                _fetched(reports),
            )
            self._record(record, reports, position, rows, _places(placement, reports))
        self.pacing.learn(
            received=sum(r.rows for r in reports),
            keys=sum(r.keys for r in reports),
            source_rows=rows,
            work_s=sum(r.seconds.get("state", 0.0) for r in reports),
        )
        self.site.retire(self.ledger.version, self.ledger.live_runs())
        seconds = {"plan": planned - began, "job": ran - planned}
        for report in reports:
            for phase, spent in report.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + spent
        seconds["total"] = time.perf_counter() - began
        return self._progress(record, rows, shape, reports, seconds)

    def _shape(self, batch: DataFrame) -> Shape:
        # In foreachBatch a batch is an RDD already, so asking for its partitions plans nothing.
        plan = batch._jdf.queryExecution().analyzed()
        inputs = int(plan.rdd().getNumPartitions()) if plan.nodeName() == "LogicalRDD" else 1
        shape = self.pacing.next(inputs)
        if shape != self._last_shape:
            logger.info("epochs now run as %s: %s", shape, self.pacing.why())
            self._last_shape = shape
        return shape

    def _configure(self, batch: DataFrame) -> None:
        """The stream runs in a session of its own, made by Spark: give it our settings once."""
        if not self._configured:
            for name, value in QUERY_SETTINGS.items():
                batch.sparkSession.conf.set(name, value)
            self._configured = True

    def _spec(
        self,
        clock: Clock,
        shape: Shape,
        version: Version,
        mergeable: frozenset[str],
        placement: Placement,
    ) -> TaskSpec:
        tables = [schema.table for schema in self.plan.operator.tables]
        return TaskSpec(
            operator=self.plan.operator,
            clock=clock,
            partitions=shape.partitions,
            claim=self.claim,
            folder=self.site.folder,
            storage=self.storage,
            host=self.host,
            segments={table: version.segments(table, FULL_RANGE) for table in tables},
            mergeable=mergeable,
            stagers=self.stagers,
            memory_bytes=self.memory_bytes,
            outputs=self.outputs,
            job=uuid.uuid4().hex[:16],
            on_demand=not self.site.one_host or self.site.limit_bytes is not None,
            keep_fetched=self.site.limit_bytes is None,
            retired=placement.retired,
        )

    def _lifted(
        self, batch: DataFrame, shape: Shape, *, first: bool
    ) -> tuple[DataFrame, Callable[[], int] | None]:
        if shape.preaggregate:
            return self.plan.preaggregate(batch)
        return self.plan.lift(batch, first=first), None

    def is_due(self, record: EpochRecord) -> bool:
        """Whether an epoch without input may have something to do all the same."""
        if self.next_due is None or self.ledger.version.epoch < 0:
            return True
        now = {"processing": record.processing_time_ms, "event": record.watermark_ms}
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
            sum(r.new_keys for r in reports),
            placement,
        )

    def _progress(
        self,
        record: EpochRecord,
        rows: int,
        shape: Shape,
        reports: list[TaskReport],
        seconds: Mapping[str, float],
    ) -> EpochProgress:
        version = self.ledger.version
        metrics: dict[str, float] = {}
        for report in reports:
            for name, amount in report.metrics.items():
                metrics[name] = metrics.get(name, 0) + amount
        return EpochProgress(
            epoch=record.epoch,
            rows=rows,
            keys=sum(r.keys for r in reports),
            state_rows=self.ledger.state_rows,
            state_bytes=sum(s.size_bytes for part in version.tables.values() for s in part),
            partitions=shape.partitions,
            preaggregated=shape.preaggregate,
            spilled_bytes=sum(r.spilled_bytes for r in reports),
            fetched_bytes=sum(r.fetched_bytes for r in reports),
            seconds=seconds,
            watermark_ms=record.watermark_ms,
            late_rows=sum(r.late_rows for r in reports),
            metrics=metrics,
            placement=self.ledger.placement,
        )


def _task_function(spec: TaskSpec, accumulator: Accumulator[list[bytes]]) -> ArrowFunction:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        here = replace(spec, host=task_host() or spec.host)
        report = run_task(here, context.partitionId(), batches)
        accumulator.add([msgspec.json.encode(report)])
        return iter(())

    return task


def _map_in_arrow(frame: DataFrame, names: list[str], task: ArrowFunction) -> Any:
    """``frame.mapInArrow(task)`` without a look-up in the JVM per column, and for any names."""
    make_udf: Any = pandas_udf  # its declared types leave out this kind, as PySpark notes itself
    function = make_udf(task, "nothing int", PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = [col("`" + name.replace("`", "``") + "`") for name in names]
    return frame._jdf.mapInArrow(function(*columns)._jc, False, None)


def _complete(reports: list[TaskReport], spec: TaskSpec, partitions: int) -> list[TaskReport]:
    """One report per partition; a version is recorded only if every partition has reported."""
    first: dict[int, TaskReport] = {}
    for report in reports:
        if report.job == spec.job:
            first.setdefault(report.partition, report)
    missing = set(range(partitions)) - set(first)
    if missing:
        raise InternalError(
            f"epoch {spec.clock.epoch}: partitions {sorted(missing)} did not report"
        )
    return [first[partition] for partition in sorted(first)]


def _fetched(reports: list[TaskReport]) -> dict[str, list[str]]:
    """Per host the runs that its tasks brought to its disk."""
    by_host: dict[str, list[str]] = {}
    for report in reports:
        by_host.setdefault(report.host, []).extend(report.fetched)
    return by_host


def _places(placement: Placement, reports: list[TaskReport]) -> tuple[PlacedPartition, ...]:
    """Where the partitions ran; nothing if there was no choice."""
    places = []
    for assignment, report in zip(placement.assignments, reports, strict=False):
        # What storage gave counts as near if the planner knew of a replica on that host.
        near = assignment.host == report.host and not assignment.remote_bytes
        why = assignment.why
        if assignment.host != report.host:
            why = f"Spark ran it here instead of on {assignment.host}"
        places.append(
            PlacedPartition(
                report.partition,
                partition_range(report.partition, len(reports)),
                report.host,
                why,
                report.local_bytes + (report.fetched_bytes if near else 0),
                0 if near else report.fetched_bytes,
            )
        )
    return tuple(places)
