"""The user's vocabulary: streams, keyed streams, and the pipelines they become.

Thin on purpose: these objects only remember what was said. The work is in the rooms below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from holdfast.aggregates import Aggregate
    from holdfast.checkpoint.coordinator import CheckpointEvent
    from holdfast.sinks.base import Sink
    from holdfast.spark.query import Query

__all__ = ["AggregatedStream", "KeyedStream", "Pipeline", "Stream", "configure", "stream"]


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what only a new Spark session can carry; a session without it works, slower.

    >>> from pyspark.sql import SparkSession
    >>> import holdfast as hf
    >>> builder = hf.configure(SparkSession.builder.master("local[2]"))
    """
    from holdfast.spark.session import configure as configure_session

    return configure_session(builder)


def stream(df: DataFrame) -> Stream:
    """Begin a pipeline with a stateless streaming DataFrame.

    Raises ``InputError`` for a batch DataFrame or one that already holds Spark's own stateful
    operators, and ``ConfigurationError`` for Spark Connect or a Spark older than 4.1.
    """
    from holdfast.spark.guard import check_stream
    from holdfast.spark.session import check_session

    check_session(df.sparkSession)
    check_stream(df)
    return Stream(df)


@dataclass(frozen=True)
class Stream:
    """Rows on their way. Every step takes any PySpark code that needs no state."""

    df: DataFrame

    def select(self, *columns: str | Column) -> Stream:
        """Like ``DataFrame.select``."""
        return stream(self.df.select(*columns))

    def filter(self, condition: str | Column) -> Stream:
        """Like ``DataFrame.filter``."""
        return stream(self.df.filter(condition))

    def with_column(self, name: str, column: Column) -> Stream:
        """Like ``DataFrame.withColumn``."""
        return stream(self.df.withColumn(name, column))

    def transform(self, fn: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> Stream:
        """Apply any function from DataFrame to DataFrame that adds no state of Spark's."""
        return stream(fn(self.df, *args, **kwargs))

    def key_by(self, *columns: str | Column) -> KeyedStream:
        """Say what rows are grouped by: names, or expressions with an alias."""
        if not columns:
            raise InputError("key_by needs at least one column", hint='say key_by("word")')
        return KeyedStream(self, tuple(columns))


@dataclass(frozen=True)
class KeyedStream:
    """Rows grouped by key."""

    source: Stream
    keys: tuple[str | Column, ...]

    def aggregate(self, **aggregates: Aggregate) -> AggregatedStream:
        """Keep aggregates per key; every epoch puts out the changed keys with their new values."""
        from holdfast.spark.lift import plan_aggregate

        if not aggregates:
            raise InputError("aggregate needs at least one aggregate", hint="say n=hf.count()")
        # Planned here once so that a wrong column or type is reported where it was written.
        plan_aggregate(self.source.df, "aggregate", self.keys, aggregates)
        return AggregatedStream(self, dict(aggregates))


@dataclass(frozen=True)
class AggregatedStream:
    """Changed keys with their new values, epoch by epoch."""

    keyed: KeyedStream
    aggregates: dict[str, Aggregate]

    def write_to(self, *sinks: Sink) -> Pipeline:
        """Send the output to one sink or several."""
        if not sinks:
            raise InputError("write_to needs a sink", hint='say write_to(hf.sinks.parquet("out"))')
        return Pipeline(self, sinks)


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline, ready to start."""

    source: AggregatedStream
    sinks: tuple[Sink, ...]

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
        from_entry: int | None = None,
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
        - ``local_dir``: where this host keeps its copy of state, ideally across restarts.
        - ``from_entry``: start from this older log entry instead of the last.
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
            from_entry=from_entry,
            on_checkpoint=callbacks,
        )
        return start_pipeline(self, options)
