"""Spark as the engine of a pipeline: its stream of epochs, their jobs, and jobs beside them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from holdfast import runtime
from holdfast.driver.engine import EpochRun, EpochStream, NodeJob, StreamError
from holdfast.driver.options import Options
from holdfast.driver.scratch import ScratchReader
from holdfast.errors import ProcessingError
from holdfast.spark.cluster.fleet import SparkFleet
from holdfast.spark.end_files import end_files
from holdfast.spark.explain import failure_of
from holdfast.spark.flow.graph import FlowGraph
from holdfast.spark.flow.job import EpochJob
from holdfast.spark.flow.reading import readings
from holdfast.spark.flow.scans import Scans
from holdfast.spark.flow.slices import as_one, keep_empty
from holdfast.spark.jvm.frames import without_rows
from holdfast.spark.jvm.kept_plans import KeptPlans
from holdfast.spark.jvm.losses import job_failed, was_cancelled
from holdfast.spark.jvm.partitions import batch_partitions
from holdfast.spark.jvm.placed import Placer, answers, task_host
from holdfast.spark.jvm.quiet import marked_epoch, marked_start
from holdfast.spark.jvm.streams import has_read_all, source_numbers
from holdfast.spark.reports import Reports
from holdfast.spark.session import (
    ONE_HOST_SETTINGS,
    QUERY_SETTINGS,
    batch_limit,
    in_background,
    own_session,
)
from holdfast.spark.ticks import Ticks, with_ticks
from holdfast.spark.types import spark_schema
from holdfast.tasks.here import Here

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SparkEngine", "SparkStream"]


class SparkStream(EpochStream):
    """Spark's query."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return bool(self.query.isActive)

    @property
    def has_read_all(self) -> bool:
        """Whether it ended by itself."""
        return has_read_all(self.query)

    def stop(self) -> None:
        """End it."""
        with _asking():
            self.query.stop()

    def process_all(self) -> None:
        """Wait until it has nothing to read."""
        with _asking():
            self.query.processAllAvailable()

    def await_end(self) -> None:
        """Wait until it has ended; raises what Spark says of an epoch that failed."""
        self.query.awaitTermination()


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise StreamError(str(error)) from error


class SparkEngine:
    """Spark, for one claim."""

    def __init__(
        self, graph: FlowGraph, options: Options, fleet: SparkFleet | None, tag: str
    ) -> None:
        self.host = socket.gethostname()
        self._graph = graph
        self._options = options
        self._fleet = fleet
        self._tag = f"holdfast-background-{tag}"
        reading = readings(graph)
        frame = own_session(as_one([each.streamed for each in reading]))
        self.ticks: Ticks | None = None
        if graph.needs_ticks:
            self.ticks = Ticks(by_itself=not options.manual)
            frame = with_ticks(frame)
        self._frame = frame
        self.spark = spark = frame.sparkSession
        if len(graph.sources) > 1:
            keep_empty(spark)
        if self.ticks and options.available_now:
            # The source of ticks knows no end; unwrapped, it would make one epoch of all input.
            spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
        self._scans = Scans(spark, reading)
        self._kept_plans = KeptPlans()
        self._reports = Reports(spark.sparkContext)
        self._settings: Mapping[str, str] = {}
        self._largest_batch: int | None = None

    @property
    def parallelism(self) -> int:
        """As many as Spark has cores for."""
        return int(self.spark.sparkContext.defaultParallelism)

    def begin(self, scratch: ScratchReader, on_batch: Callable[[Any, int], None]) -> SparkStream:
        """Start a streaming query on a folder of Spark's own files."""
        options = self._options
        # With its scheme: without one it would be a folder of the file system that Spark goes by, HDFS perhaps.
        writer = self._frame.writeStream.foreachBatch(on_batch).option(
            "checkpointLocation", f"file://{scratch.folder}"
        )
        name = f"holdfast-{options.name}"
        writer = writer.queryName(name)
        if options.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            every = f"{round(options.trigger_s * 1000)} milliseconds"
            writer = writer.trigger(processingTime=every)
        started: Future[StreamingQuery] = Future()
        # The first batch may come before the next line does.
        scratch.numbers = lambda: source_numbers(started.result())
        with marked_start(self.spark, name):
            query = writer.start()
        started.set_result(query)
        if self.ticks and not options.available_now:
            self.ticks.follow(query)
        return SparkStream(query)

    # ---- epochs

    def input_partitions(self, batch: DataFrame) -> int:
        """In how many parts Spark has cut the input."""
        self._configure(batch)
        return batch_partitions(batch)

    def run(
        self,
        batch: DataFrame,
        parts: Mapping[str, NodeJob],
        hosts: Sequence[str | None],
        first: bool,
    ) -> EpochRun:
        """One Spark job for all of an epoch."""
        try:
            self._reports.take()
            job = EpochJob(
                graph=self._graph,
                sources=self._scans.rows(batch, ticks=self.ticks is not None),
                kept_plans=self._kept_plans,
                parts=parts,
                session=batch.sparkSession,
                placer=Placer(batch.sparkSession.sparkContext),
                hosts=hosts,
                accumulator=self._reports.accumulator,
                first=first,
            ).build()
            planned = runtime.monotonic()
            job.count()
        except (PySparkException, Py4JError) as error:
            # Should it have been for want of memory: batches are measured again.
            self._largest_batch = None
            raise job_failed(error) from error
        ran = runtime.monotonic()
        reports = self._reports.take()
        self._largest_batch = max((report.batch_bytes for report in reports), default=0)
        return EpochRun(reports, planned, ran)

    def _configure(self, batch: DataFrame) -> None:
        """The stream runs in a session of its own, made by Spark: give it our settings."""
        wanted = QUERY_SETTINGS | batch_limit(self._largest_batch)
        if self._fleet is None:
            wanted |= ONE_HOST_SETTINGS
        for name, value in wanted.items():
            if self._settings.get(name) != value:
                batch.sparkSession.conf.set(name, value)
        self._settings = wanted

    def cancel_epoch(self, stream: EpochStream) -> None:
        """Epochs are jobs of the group of their query."""
        assert isinstance(stream, SparkStream)
        self.spark.sparkContext.cancelJobGroup(str(stream.query.runId))

    def no_rows(self) -> DataFrame:
        """A batch without rows, as one partition: a task runs for it."""
        return without_rows(self._frame, partitions=1)

    def has_rows(self, batch: DataFrame) -> bool:
        """Whether a batch has any rows."""
        return not batch.isEmpty()

    def epoch_of(self, stream: EpochStream) -> AbstractContextManager[None]:
        """Jobs in here are of a query's group: by that an epoch is cancelled whose host is gone."""
        assert isinstance(stream, SparkStream)
        return marked_epoch(self.spark.sparkContext, stream.query)

    @cached_property
    def _end_files(self) -> list[Path] | None:
        """The file of each source that says that it has ended; None unless each has one."""
        files = [end_files(source) for source in self._graph.sources]
        return [file for each in files for file in each] if all(files) else None

    def sources_ended(self) -> bool | None:
        """Whether the files are there by which sources say so; None if they have none."""
        files = self._end_files
        return None if files is None else all(file.exists() for file in files)

    # ---- beside the epochs

    def on_hosts(
        self, hosts: Sequence[str | None], work: Callable[[int, Here], bytes], what: str
    ) -> list[bytes]:
        """A job of one short task per number, in a scheduler pool of its own."""
        driver = self.host

        def do(index: int) -> bytes:
            return work(index, Here(task_host() or driver))

        context = self.spark.sparkContext
        try:
            numbers = self.spark.range(0, len(hosts), 1, len(hosts))
            with ExitStack() as held:
                if self._fleet is not None:
                    numbers = Placer(context).frame(numbers, hosts)
                # Whoever notices first that a host is gone, and be the job only planned by then.
                held.enter_context(in_background(context, what, self._tag))
                if self._fleet is not None:
                    held.enter_context(self._fleet.ended_without(hosts, what))
                return answers(numbers, do)
        except (PySparkException, Py4JError) as error:
            raise job_failed(error) from error

    def cancel_background(self) -> None:
        """End jobs of :meth:`on_hosts`."""
        self.spark.sparkContext.cancelJobsWithTag(self._tag)

    def thread(self, target: Callable[[], object], name: str) -> runtime.Thread:
        """A thread with a thread of the JVM's of its own, which has what this one's has."""
        return InheritableThread(target=target, daemon=True, name=name)

    # ---- words

    def to_dataframe(self, table: pa.Table) -> DataFrame:
        """A Spark DataFrame of a table."""
        # In one chunk: PySpark makes nothing of a table whose first chunk is empty.
        rows = table.combine_chunks()
        return self.spark.createDataFrame(rows, spark_schema(table.schema))

    def was_cancelled(self, error: BaseException) -> bool:
        """Whether Spark says so: PySpark cancels all jobs when Ctrl-C is pressed."""
        return was_cancelled(error)

    def failure_of(self, error: BaseException, pipeline: str, epoch: int) -> ProcessingError:
        """Spark's report, made short."""
        cause = error.__cause__ if isinstance(error, StreamError) else None
        return failure_of(cause or error, pipeline, epoch)

    def close(self) -> None:
        """Nothing is held open."""
