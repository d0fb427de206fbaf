"""One Spark job for one attempt at an epoch: every operator a stage, its results the input of others.

A stage's tasks run an operator on their partition, write its state and its sinks' output, and hand on
what other operators read. Results that have several readers go through a shuffle that all of them
read: Spark computes the stage before it once per job, and its state is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import IntegerType, StructField, StructType

from holdfast.driver.engine import NodeJob
from holdfast.operators.emit import EmitOperator
from holdfast.spark.flow.graph import FlowGraph, PlannedNode, SteppedFeed
from holdfast.spark.flow.scans import SourceRows
from holdfast.spark.jvm.frames import ArrowFunction, frame_like, map_in_arrow
from holdfast.spark.jvm.grouping import Grouped, preaggregated
from holdfast.spark.jvm.kept_plans import KeptPlans
from holdfast.spark.jvm.placed import Placer, task_host, task_partition
from holdfast.spark.jvm.prepared import rdd_of
from holdfast.spark.jvm.probing import attempt
from holdfast.spark.types import spark_schema
from holdfast.tasks.emitting import emit_rows
from holdfast.tasks.failing import encode_errors
from holdfast.tasks.loop import read_loop
from holdfast.tasks.outputs import OUTPUT, derived_schema, struct_name
from holdfast.tasks.task import BRANCH, TaskSpec, work_through
from holdfast.types import quoted

__all__ = ["NOTHING", "EpochJob", "columns_of"]

NOTHING = StructType([StructField("nothing", IntegerType())])
"""The columns of a stage that hands nothing on."""
_PARTITION = "_holdfast_partition"


@dataclass(kw_only=True)
class EpochJob:
    """Builds the job of an attempt at an epoch."""

    graph: FlowGraph
    sources: Sequence[SourceRows]
    kept_plans: KeptPlans
    parts: Mapping[str, NodeJob]
    session: SparkSession
    placer: Placer
    hosts: Sequence[str | None]
    """Where partitions run; none if there is only one place."""
    accumulator: Accumulator[list[bytes]]
    first: bool
    """Whether no epoch was before."""
    _results: dict[str, DataFrame] = field(default_factory=dict)

    def build(self) -> Any:
        """The job as an RDD of the JVM's: counting it runs everything."""
        ends = []
        for node in self.graph.nodes:
            result = self._run(self.parts[node.id])
            if node.feeds:
                self._results[node.id] = self._shared(result, node)
            else:
                ends.append(result)
        return rdd_of(reduce(lambda a, b: a.unionAll(b), ends))

    def _run(self, part: NodeJob) -> DataFrame:
        node, plan = part.node, part.node.plan
        frame = self._lifted(part)
        if node.stateful:
            partitions = part.shape.partitions
            frame = plan.partitioned(frame, part.shape, part.wanted)
        else:
            frame, partitions = _planned(frame)
        hosts = self.hosts if node.stateful else ()
        if hosts or len(self.graph.nodes) > 1:
            frame = self.placer.frame(frame, hosts, node.id)
        part.spec = part.make_spec(partitions)
        schema = NOTHING
        if node.feeds:
            schema = spark_schema(derived_schema(node.operator, node.feeds))
        if node.columns is None:
            branch = [BRANCH] if _has_branches(node) else []
            node.columns = columns_of([*node.operator.input_schema.names, *branch])
        task = _task_function(part.spec, self.accumulator)
        return map_in_arrow(frame, node.columns, task, schema)

    def _lifted(self, part: NodeJob) -> DataFrame:
        """The rows of all feeds of all ports, as the operator takes them."""
        part.node.plan.at(part.clock)
        frames = []
        several = _has_branches(part.node)
        for port, feeds in enumerate(part.node.ports):
            for branch, feed in enumerate(feeds):
                frame = self._input_frame(part, feed, port, branch)
                if several:
                    frame = frame.withColumn(BRANCH, F.lit(branch).cast("byte"))
                frames.append(frame)
        return reduce(lambda a, b: a.unionAll(b), frames)

    def _input_frame(self, part: NodeJob, feed: SteppedFeed, port: int, branch: int) -> DataFrame:
        """The rows of one feed, as the operator takes them."""
        node: PlannedNode = part.node
        plan, source = node.plan, None
        if feed.source is not None and not feed.steps:
            source = self.sources[feed.source]
        # What comes before all other rows comes by one feed only.
        first = self.first and not branch

        def grouped() -> Grouped:
            return plan.preaggregate(self._frame(feed))

        def lifted() -> DataFrame:
            return plan.lift(self._frame(feed), first=first, port=port)

        key = (part.node.id, port, branch, first)
        scan = None if source is None else source.scan

        def groups() -> Grouped:
            if scan is None:
                return grouped()
            return self.kept_plans.grouped(key, self.session, scan, grouped)

        if part.shape.preaggregate:
            groups_here = groups() if plan.must_preaggregate else attempt(plan.grouping, groups)
            if groups_here is not None:
                made = preaggregated(self.session, groups_here)
                part.source_rows.append(made.source_rows)
                return made.frame
            part.shape = replace(part.shape, preaggregate=False)
        return lifted() if scan is None else self.kept_plans.lifted(key, self.session, scan, lifted)

    def _frame(self, feed: SteppedFeed) -> DataFrame:
        if feed.source is not None:
            frame = self.sources[feed.source].frame
        elif feed.loop:
            frame = self._fed_back(self.parts[feed.node])
        else:
            node = self.graph.node(feed.node)
            frame = self._results[node.id]
            if len(node.feeds) > 1:
                number = node.feeds.index(feed.output)
                frame = frame.filter(F.col(OUTPUT) == number).select(f"{struct_name(number)}.*")
        for step in feed.steps:
            frame = step(frame)
        return frame

    def _fed_back(self, part: NodeJob) -> DataFrame:
        """The rows that wait in a loop, each partition's read where it is."""
        spec = part.make_spec(part.shape.partitions)
        stage = f"{part.node.id}.start"

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            here = replace(spec, host=task_host() or spec.host)
            with encode_errors():
                yield from read_loop(here, task_partition(stage))

        numbers = self.session.range(0, spec.partitions, 1, spec.partitions)
        placed = self.placer.frame(numbers, self.hosts, stage)
        schema = spark_schema(spec.operator.output_schema)
        return map_in_arrow(placed, columns_of(["id"]), task, schema)

    def _shared(self, result: DataFrame, node: PlannedNode) -> DataFrame:
        """The same rows, such that several readers don't have them computed several times."""
        if sum(node.readers.values()) == 1:
            return result
        partitions = self.parts[node.id].partitions
        placed = result.withColumn(_PARTITION, F.spark_partition_id())
        shuffled = placed.repartitionById(partitions, F.col(_PARTITION)).drop(_PARTITION)
        return _planned(shuffled)[0]


def _has_branches(node: PlannedNode) -> bool:
    """Whether rows say which feed of their port they came by."""
    return node.stateful and any(len(feeds) > 1 for feeds in node.ports)


def _planned(frame: DataFrame) -> tuple[DataFrame, int]:
    """The same rows with their plan made, once for whoever reads them, and in how many partitions."""
    rdd = rdd_of(frame)
    return frame_like(frame, rdd), int(rdd.getNumPartitions())


def _task_function(spec: TaskSpec, accumulator: Accumulator[list[bytes]]) -> ArrowFunction:
    run = emit_rows if isinstance(spec.operator, EmitOperator) else work_through

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = replace(spec, host=task_host() or spec.host)
        partition = task_partition(spec.operator.id)
        if not spec.wants(partition):
            for _ in batches:
                pass
            return
        with encode_errors():
            report = yield from run(here, partition, batches)
        accumulator.add([report.encoded()])

    return task


def columns_of(names: Sequence[str]) -> list[Column]:
    """Columns by name, whatever the names are."""
    return [F.col(quoted(name)) for name in names]
