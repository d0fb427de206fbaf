"""The user's vocabulary: streams, keyed streams, and the pipelines they become.

Thin on purpose: these objects only remember what was said. The work is in the rooms below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.durations import parse_duration
from holdfast.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from holdfast.aggregates import Aggregate
    from holdfast.checkpoint.coordinator import CheckpointEvent
    from holdfast.checkpoint.time import Watermark
    from holdfast.grouped import GroupedStream
    from holdfast.operators.process.batch import BatchProcess
    from holdfast.operators.process.keyed import KeyedProcess
    from holdfast.operators.process.unkeyed import Process
    from holdfast.sinks.base import Sink
    from holdfast.spark.plan import Plan
    from holdfast.spark.query import Query

__all__ = [
    "AggregatedStream",
    "ConnectedStream",
    "DeduplicatedStream",
    "KeyedStream",
    "PartitionStream",
    "Pipeline",
    "ProcessedStream",
    "ResultStream",
    "Stream",
    "configure",
    "stream",
]


def configure(
    builder: SparkSession.Builder, *, preload: bool | None = None
) -> SparkSession.Builder:
    """Set what only a new Spark session can carry; a session without it works, slower.

    ``preload=True`` is for clusters whose executors' Python has Holdfast installed, in the version
    of the driver's: workers then begin without importing it, which makes recovery faster. On one
    machine that is so anyway.

    >>> from pyspark.sql import SparkSession
    >>> import holdfast as hf
    >>> builder = hf.configure(SparkSession.builder.master("local[2]"))
    """
    from holdfast.spark.session import configure as configure_session

    return configure_session(builder, preload=preload)


def stream(df: DataFrame) -> Stream:
    """Begin a pipeline with a stateless streaming DataFrame.

    Raises ``InputError`` for one that already holds Spark's own stateful operators, and
    ``ConfigurationError`` for Spark Connect or a Spark older than 4.1. A batch DataFrame is good for
    ``groupBy(…).transformWithState(…)`` alone.
    """
    from holdfast.spark.guard import check_stream
    from holdfast.spark.session import check_session

    check_session(df.sparkSession)
    if df.isStreaming:
        check_stream(df)
    return Stream(df, _watermark_of(df))


def _watermark_of(df: DataFrame) -> WatermarkSpec | None:
    """The watermark that ``df.withWatermark`` was given: Holdfast keeps it itself."""
    from holdfast.spark.stateful.api import spark_watermark

    found = spark_watermark(df)
    return None if found is None else WatermarkSpec(found[0], found[1], 0, None)


@dataclass(frozen=True)
class WatermarkSpec:
    """What ``with_watermark`` was told."""

    column: str
    delay_ms: int
    lateness_ms: int
    idle_ms: int | None


@dataclass(frozen=True)
class Stream:
    """Rows on their way. Every step takes any PySpark code that needs no state."""

    df: DataFrame
    watermark: WatermarkSpec | None = None

    def select(self, *columns: str | Column) -> Stream:
        """Like ``DataFrame.select``."""
        return self._then(self.df.select(*columns))

    def filter(self, condition: str | Column) -> Stream:
        """Like ``DataFrame.filter``."""
        return self._then(self.df.filter(condition))

    def with_column(self, name: str, column: Column) -> Stream:
        """Like ``DataFrame.withColumn``."""
        return self._then(self.df.withColumn(name, column))

    def transform(self, fn: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> Stream:
        """Apply any function from DataFrame to DataFrame that adds no state of Spark's."""
        return self._then(fn(self.df, *args, **kwargs))

    def with_watermark(
        self,
        column: str,
        delay: str | float,
        *,
        allowed_lateness: str | float = 0,
        idle_timeout: str | float | None = None,
    ) -> Stream:
        """Say when rows happened, and how far they may be out of order.

        The watermark is the greatest time seen, less ``delay``; of several streams the least one
        counts, unless a stream has had no rows for ``idle_timeout``. Rows at or before the
        watermark less ``allowed_lateness`` go to the side output ``late``.
        """
        from holdfast.spark.process import check_event_time

        check_event_time(self.df, column)

        def ms(value: str | float, what: str) -> int:
            return round(parse_duration(value, what) * 1000)

        idle = None if idle_timeout is None else ms(idle_timeout, "idle_timeout")
        spec = WatermarkSpec(
            column, ms(delay, "delay"), ms(allowed_lateness, "allowed_lateness"), idle
        )
        return replace(self, watermark=spec)

    def key_by(self, *columns: str | Column) -> KeyedStream:
        """Say what rows are grouped by: names, or expressions with an alias."""
        if not columns:
            raise InputError("key_by needs at least one column", hint='say key_by("word")')
        self._must_stream()
        return KeyedStream(self, tuple(columns))

    def process(self, process: Process, output: object = None) -> PartitionStream:
        """Run user code on rows that are not grouped by key, with operator state."""
        self._must_stream()
        return PartitionStream(self, process, output).checked()

    def connect(self, control: Stream) -> ConnectedStream:
        """Connect a control stream, whose rows every partition gets."""
        self._must_stream()
        control._must_stream()
        return ConnectedStream(self, control)

    def groupBy(self, *columns: str | Column) -> GroupedStream:  # noqa: N802 - PySpark's own name
        """Like ``DataFrame.groupBy``, for a ``StatefulProcessor`` that is moved over unchanged."""
        from holdfast.grouped import GroupedStream

        return GroupedStream(self, tuple(columns))

    def _must_stream(self) -> None:
        from holdfast.spark.guard import check_stream

        check_stream(self.df)

    def _then(self, df: DataFrame) -> Stream:
        from holdfast.spark.process import check_event_time

        checked = stream(df)
        if self.watermark is not None:
            check_event_time(df, self.watermark.column)
        return replace(checked, watermark=self.watermark or checked.watermark)


class ResultStream:
    """What an operator puts out, epoch by epoch."""

    def write_to(self, *sinks: Sink, **side_outputs: Sink) -> Pipeline:
        """Send the output to one sink or several, and side outputs, by name, to theirs."""
        if not sinks and not side_outputs:
            raise InputError("write_to needs a sink", hint='say write_to(hf.sinks.parquet("out"))')
        known = self.plan().operator.side_schemas
        for name in side_outputs:
            if name not in known:
                raise InputError(
                    f"there is no side output {name!r}",
                    hint=f"there is: {', '.join(known)}" if known else "this stream has none",
                )
        return Pipeline(self, sinks, dict(side_outputs))

    def plan(self) -> Plan:
        """How rows reach the operator, and the operator; made anew for every start."""
        raise NotImplementedError

    @property
    def frame(self) -> DataFrame:
        """The DataFrame that the query streams."""
        raise NotImplementedError

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """How the watermark of each source moves."""
        return {}

    def checkpoint_complete(self, epoch: int) -> None:
        """A checkpoint that holds the state after ``epoch`` is in the log."""


@dataclass(frozen=True)
class KeyedStream:
    """Rows grouped by key."""

    source: Stream
    keys: tuple[str | Column, ...]

    def aggregate(self, **aggregates: Aggregate) -> AggregatedStream:
        """Keep aggregates per key; every epoch puts out the changed keys with their new values."""
        if not aggregates:
            raise InputError("aggregate needs at least one aggregate", hint="say n=hf.count()")
        aggregated = AggregatedStream(self, dict(aggregates))
        # Planned here once so that a wrong column or type is reported where it was written.
        aggregated.plan()
        return aggregated

    def process(
        self, process: KeyedProcess | BatchProcess, output: object = None
    ) -> ProcessedStream:
        """Run user code per key (``KeyedProcess``) or on columns (``BatchProcess``).

        ``output``, the columns put out, may also be declared in the process.
        """
        return ProcessedStream(self, process, output).checked()

    def drop_duplicates(self, *, within_watermark: bool = False) -> DeduplicatedStream:
        """Let the first row of each key through, and no other.

        Keys are remembered for ever, unless the watermark's column is one of them, or
        ``within_watermark`` says that a key counts only as long as the watermark waits for rows.
        """
        stream = DeduplicatedStream(self, within_watermark)
        stream.plan()
        return stream

    def connect(self, control: Stream) -> ConnectedStream:
        """Connect a control stream, whose rows every partition gets."""
        return ConnectedStream(self, control)


@dataclass(frozen=True)
class ConnectedStream:
    """Rows beside those of a control stream."""

    main: KeyedStream | Stream
    control: Stream

    def broadcast(
        self, process: KeyedProcess | Process, output: object = None
    ) -> ProcessedStream | PartitionStream:
        """Run a process whose broadcast state the control stream updates."""
        if isinstance(self.main, Stream):
            return PartitionStream(self.main, process, output, self.control).checked()  # type: ignore[arg-type]
        return ProcessedStream(self.main, process, output, self.control).checked()  # type: ignore[arg-type]


@dataclass(frozen=True)
class AggregatedStream(ResultStream):
    """Changed keys with their new values, epoch by epoch."""

    keyed: KeyedStream
    aggregates: dict[str, Aggregate]

    def plan(self) -> Plan:
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.lift import plan_aggregate

        return plan_aggregate(self.keyed.source.df, "aggregate", self.keyed.keys, self.aggregates)

    @property
    def frame(self) -> DataFrame:
        """The DataFrame that the query streams."""
        return self.keyed.source.df


@dataclass(frozen=True)
class ProcessedStream(ResultStream):
    """What a process puts out, epoch by epoch."""

    keyed: KeyedStream
    process: KeyedProcess | BatchProcess
    output: object = None
    control: Stream | None = None

    def checked(self) -> ProcessedStream:
        """Itself, if it can be planned."""
        self.plan()
        return self

    def plan(self) -> Plan:
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.process import plan_process

        return plan_process(self.keyed, self.process, self.output, self.control)

    @property
    def frame(self) -> DataFrame:
        """The DataFrame that the query streams."""
        from holdfast.spark.process import connected_frame

        return connected_frame(self.keyed.source, self.control)

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """How the watermark of each source moves."""
        from holdfast.spark.process import watermarks

        return watermarks(self.keyed.source, self.control)

    def checkpoint_complete(self, epoch: int) -> None:
        """Tell the process."""
        self.process.checkpoint_complete(epoch)


@dataclass(frozen=True)
class PartitionStream(ResultStream):
    """What a process without a key puts out, epoch by epoch."""

    source: Stream
    process: Process
    output: object = None
    control: Stream | None = None

    def checked(self) -> PartitionStream:
        """Itself, if it can be planned."""
        self.plan()
        return self

    def plan(self) -> Plan:
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.process import plan_unkeyed

        return plan_unkeyed(self.source, self.process, self.output, self.control)

    @property
    def frame(self) -> DataFrame:
        """The DataFrame that the query streams."""
        from holdfast.spark.process import connected_frame

        return connected_frame(self.source, self.control)

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """None: a process without a key has no event time."""
        return {}

    def checkpoint_complete(self, epoch: int) -> None:
        """Tell the process."""
        self.process.checkpoint_complete(epoch)


@dataclass(frozen=True)
class DeduplicatedStream(ResultStream):
    """The first row of every key, epoch by epoch."""

    keyed: KeyedStream
    within_watermark: bool = False

    def plan(self) -> Plan:
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.deduplicate import plan_deduplicate

        return plan_deduplicate(self.keyed, within_watermark=self.within_watermark)

    @property
    def frame(self) -> DataFrame:
        """The DataFrame that the query streams."""
        return self.keyed.source.df

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """How the watermark of the source moves."""
        from holdfast.spark.process import watermarks

        return watermarks(self.keyed.source, None)


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline, ready to start."""

    source: ResultStream
    sinks: tuple[Sink, ...]
    side_outputs: dict[str, Sink] = field(default_factory=dict)

    def start(
        self,
        name: str,
        checkpoint_dir: str | Path,
        *,
        checkpoint_interval: str | float | None = "10 s",
        trigger: str | float = "0 s",
        partitions: int | None = None,
        durability: str = "checkpoint",
        keep_last: int = 10,
        keep_for: str | float | None = None,
        max_ahead_bytes: int = 2 << 30,
        max_ahead: str | float = "10 minutes",
        memory_bytes: int = 256 << 20,
        local_dir: str | Path | None = None,
        local_limit_bytes: int | None = None,
        from_entry: int | None = None,
        clock: Callable[[], int] | None = None,
        on_checkpoint: Callable[[CheckpointEvent], None]
        | Sequence[Callable[[CheckpointEvent], None]] = (),
    ) -> Query:
        """Start, or continue from the last checkpoint in ``checkpoint_dir``.

        - ``checkpoint_interval``: how often; None means only when asked and at the end.
        - ``trigger``: time between epochs, ``"available-now"`` (process what is there, end with a
          checkpoint) or ``"manual"`` (one epoch per ``query.step()``, for tests).
        - ``partitions``: most tasks per epoch; it may change between two starts.
        - ``durability="epoch"`` writes the log entry before Spark hears that the epoch is done.
        - ``keep_last``, ``keep_for``: which checkpoints are retained.
        - ``max_ahead_bytes``, ``max_ahead``: how far processing may run ahead of the log.
        - ``memory_bytes``: what a task may hold of an epoch's rows before it spills.
        - ``local_dir``: where each host keeps its copy of state, ideally across restarts. A tmpfs or
          a mount of persistent memory works as well: files are memory-mapped.
        - ``local_limit_bytes``: how much of it state may take on each host; what was changed longest
          ago is then read from checkpoint storage, block by block.
        - ``from_entry``: start from this older log entry instead of the last.
        - ``clock``: gives processing time in ms since 1970; by default the driver's own clock.
        - ``on_checkpoint``: called when a checkpoint is complete or has failed.
        """
        from holdfast.spark.options import Options
        from holdfast.spark.start import start_pipeline

        callbacks = (on_checkpoint,) if callable(on_checkpoint) else tuple(on_checkpoint)
        options = Options.checked(
            name=name,
            checkpoint_dir=checkpoint_dir,
            checkpoint_interval=checkpoint_interval,
            trigger=trigger,
            partitions=partitions,
            durability=durability,
            keep_last=keep_last,
            keep_for=keep_for,
            max_ahead_bytes=max_ahead_bytes,
            max_ahead=max_ahead,
            memory_bytes=memory_bytes,
            local_dir=local_dir,
            local_limit_bytes=local_limit_bytes,
            from_entry=from_entry,
            clock=clock,
            on_checkpoint=callbacks,
        )
        return start_pipeline(self, options)
