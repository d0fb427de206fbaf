"""Whole pipelines: streams and their sinks, ready to start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import InputError
from holdfast.spark.says_how import PIPELINE, SaysHow

if TYPE_CHECKING:
    from holdfast.checkpoint.coordinator import CheckpointEvent
    from holdfast.choices import Durability, Trigger
    from holdfast.durations import Duration
    from holdfast.sinks.base import Sink
    from holdfast.sizes import Size
    from holdfast.spark.query import Query
    from holdfast.stream import Stream

__all__ = ["Pipeline", "Written", "pipeline"]


@dataclass(frozen=True, eq=False)
class Written:
    """A stream and the sinks it goes to."""

    stream: Stream
    sinks: tuple[Sink, ...]
    side_outputs: dict[str, Sink] = field(default_factory=dict)
    """Sinks for the side outputs of the operator whose results the stream has."""


def pipeline(*parts: Pipeline) -> Pipeline:
    """Several pipelines as one: one Spark query, one checkpoint, whatever they share run once.

    >>> import holdfast as hf
    >>> def both(counts: hf.ResultStream, totals: hf.ResultStream) -> hf.Pipeline:
    ...     return hf.pipeline(counts.write_to(hf.sinks.noop()), totals.write_to(hf.sinks.noop()))
    """
    if not parts:
        raise InputError("a pipeline needs a stream", hint="give what write_to(...) returned")
    return Pipeline(tuple(written for part in parts for written in part.outputs))


@dataclass(frozen=True, eq=False)
class Pipeline(SaysHow):
    """A whole pipeline, ready to start: what ``write_to`` and :func:`pipeline` return.

    >>> import holdfast as hf
    >>> def run(pipeline: hf.Pipeline) -> hf.Query:
    ...     return pipeline.start("orders", checkpoint_dir="ck", checkpoint_interval="30 s")
    """

    _how = PIPELINE
    outputs: tuple[Written, ...]

    def explain(self) -> str:
        """The operators with their state, keys and watermarks, and the Spark stages they become.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> counts = ticks.key_by("value").aggregate(n=hf.count())
        >>> print(counts.write_to(hf.sinks.noop()).explain())
        Sources
          [0] timestamp timestamp, value bigint
        Operators, each a stage of one Spark job per epoch
          1. aggregate: aggregate by value: int64
             reads source [0]
             shuffle by hash of value
             rows are grouped before the shuffle when that sends less
             state aggregate.groups: by value; n.count
             results to sink-0: nothing
        """
        from holdfast.spark.flow.explain import explain
        from holdfast.spark.flow.graph import build_graph

        return explain(build_graph(self))

    def start(
        self,
        name: str,
        checkpoint_dir: str | Path,
        *,
        checkpoint_interval: Duration | None = "10 s",
        trigger: Trigger | Duration = "0 s",
        end_of_input: bool = False,
        partitions: int | None = None,
        durability: Durability = "checkpoint",
        keep_last: int = 10,
        keep_for: Duration | None = None,
        max_ahead_bytes: Size = "2 GiB",
        max_ahead: Duration = "10 minutes",
        memory_bytes: Size = "256 MiB",
        local_dir: str | Path | None = None,
        local_limit_bytes: Size | None = None,
        from_entry: int | None = None,
        drop_state: Sequence[str] = (),
        clock: Callable[[], int] | None = None,
        on_checkpoint: Callable[[CheckpointEvent], None]
        | Sequence[Callable[[CheckpointEvent], None]] = (),
    ) -> Query:
        """Start, or continue from the last checkpoint in ``checkpoint_dir``.

        Times are ``"10 s"``, a number of seconds or a ``timedelta``; sizes are ``"512 MiB"`` or a number
        of bytes.

        - ``checkpoint_interval``: how often; None means only when asked and at the end.
        - ``trigger``: how often Spark looks for input, ``"available-now"`` (process what is there, end
          with a checkpoint) or ``"manual"`` (one epoch per ``query.step()``, for tests).
        - ``end_of_input=True``, with ``"available-now"``: no more input will come. After the last row
          all that waits for event time comes out: windows, sessions, timers, rows of joins. The log
          says so, and the pipeline takes no more input.
        - ``partitions``: most tasks per epoch; it may change between two starts.
        - ``durability="epoch"`` writes the log entry before Spark hears that the epoch is done.
        - ``keep_last``, ``keep_for``: which checkpoints are retained.
        - ``max_ahead_bytes``, ``max_ahead``: how far processing may run ahead of the log.
        - ``memory_bytes``: what a task may hold of an epoch's rows before it spills.
        - ``local_dir``: where each host keeps its copy of state, ideally across restarts. A tmpfs or
          a mount of persistent memory works as well: files are memory-mapped.
        - ``local_limit_bytes``: how much of it state may take on each host; what was changed longest
          ago is then read from checkpoint storage, block by block.
        - ``drop_state``: names of operators whose state the log still has and the program no longer
          wants: it is left behind.
        - ``from_entry``: start from this older log entry instead of the last. What was published since
          stays, and comes again in new epochs (docs/operations.md, "Going back").
        - ``clock``: gives processing time in ms since 1970; by default the driver's own clock.
        - ``on_checkpoint``: called when a checkpoint is complete or has failed.

        >>> import holdfast as hf
        >>> source = hf.testing.EpochSource(spark, "word string, n long")
        >>> source.add([("kelp", 1), ("rock", 2), ("kelp", 3)])
        0
        >>> counts = hf.stream(source.df).key_by("word").aggregate(n=hf.sum("n"))
        >>> sink = hf.sinks.memory("started")
        >>> query = counts.write_to(sink).start("counts", checkpoint_dir="ck", trigger="available-now")
        >>> query.await_termination()
        True
        >>> sorted(row["n"] for row in sink.rows())
        [2, 4]
        """
        from holdfast.driver.options import Options
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
            drop_state=tuple(drop_state),
            clock=clock,
            on_checkpoint=callbacks,
            end_of_input=end_of_input,
        )
        return start_pipeline(self, options)
