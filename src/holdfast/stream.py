"""The user's vocabulary: streams of rows, from sources or from operators, and steps without state.

Thin on purpose: these objects only remember what was said. The work is in the rooms below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from holdfast.arguments import check_columns, check_rows, check_sinks, once_called
from holdfast.errors import InputError
from holdfast.spark.flow.branch import Branch, Output, StreamSource, WatermarkSpec, watermark_of
from holdfast.steps import Steps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from typing_extensions import Self

    from holdfast.changes import Changes
    from holdfast.choices import JoinKind, OutputMode, VersionedKind
    from holdfast.durations import Duration
    from holdfast.grouped import GroupedStream
    from holdfast.joins import JoinedStream, VersionedStream
    from holdfast.keyed import ConnectedStream, KeyedStream, PartitionStream
    from holdfast.operators.process.unkeyed import Process
    from holdfast.operators.window.spec import Emit, WindowSpec
    from holdfast.pipeline import Pipeline
    from holdfast.sinks.base import Sink
    from holdfast.spark.plans.base import OperatorPlan
    from holdfast.windows import WindowedStream

__all__ = [
    "Branch",
    "Output",
    "ResultStream",
    "Rows",
    "Stream",
    "StreamSource",
    "WatermarkSpec",
    "configure",
    "result_of",
    "stream",
]

_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]{0,99}")
_RESERVED = ("sink-", "side-")


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

    >>> import holdfast as hf
    >>> ticks = hf.stream(spark.readStream.format("rate").load())
    >>> ticks.df.columns
    ['timestamp', 'value']
    """
    from holdfast.spark.guard import check_stream
    from holdfast.spark.session import check_session

    if not hasattr(df, "isStreaming"):
        raise InputError(
            f"hf.stream takes a streaming DataFrame, not {df!r}",
            hint='say hf.stream(spark.readStream.schema("…").parquet("in")), for example',
        )
    check_session(df.sparkSession)
    if df.isStreaming:
        check_stream(df)
    return Stream((Branch(StreamSource(df), df, (), watermark_of(df)),))


class Rows(Steps):
    """Rows on their way, of a source or of an operator: what :func:`stream` and operators return.

    >>> import holdfast as hf
    >>> def per_word(rows: hf.Rows) -> hf.AggregatedStream:
    ...     return rows.filter("word IS NOT NULL").key_by("word").aggregate(n=hf.count())
    """

    @property
    def changes(self) -> Changes:
        """Whether rows are new, replace earlier ones (by which key) or take them back.

        :func:`holdfast.fold` makes current rows of what was published, by what this says.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.changes
        Changes(kind='append', key=None, why='')
        >>> ticks.key_by("value").aggregate(n=hf.count()).changes
        Changes(kind='update', key=('value',), why='')
        """
        from holdfast.changes import changes_of

        return changes_of(self.rows)

    def key_by(self, *columns: str | Column) -> KeyedStream:
        """Say what rows are grouped by: names, or expressions with an alias.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> from pyspark.sql import functions as F
        >>> per_digit = ticks.key_by((F.col("value") % 10).alias("digit"))
        """
        from holdfast.keyed import KeyedStream

        if not columns:
            raise InputError("key_by needs at least one column", hint='say key_by("word")')
        check_columns(columns, "key_by")
        rows = self.rows
        rows.must_stream()
        return KeyedStream(rows, tuple(columns))

    @once_called(trigger="emit", output="output_mode")
    def window(
        self, window: WindowSpec, *, emit: Emit | None = None, output_mode: OutputMode = "append"
    ) -> WindowedStream:
        """Cut all rows into windows by event time, without a key; see ``KeyedStream.window``.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> all_ticks = ticks.window(hf.tumbling("1 minute")).aggregate(n=hf.count())
        """
        from holdfast.windows import windowed

        return windowed(self.rows, (), window, emit, output_mode)

    def join(
        self,
        right: Rows,
        on: str | Sequence[str],
        *,
        between: tuple[Duration, Duration] | None = None,
        how: JoinKind = "inner",
    ) -> JoinedStream:
        """Join with another stream: equal keys, and times that are near each other.

        ``between=("-10 s", "5 s")`` matches rows of the right side that happened from ten seconds
        before a left row to five seconds after it. ``how`` is inner, left, right, full, semi or anti;
        rows without a match come out when the watermark says that none can come any more.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> tocks = ticks.with_column_renamed("timestamp", "at")
        >>> ticks.join(tocks, on="value", between=("-10 s", "5 s"), how="left").rows.df.columns
        ['value', 'timestamp', 'at']
        """
        from holdfast.joins import interval_join

        check_rows(right, "join")
        return interval_join(self.rows, right.rows, on, between, how)

    def join_as_of(
        self,
        table: Rows,
        on: str | Sequence[str],
        *,
        how: VersionedKind = "inner",
        deleted: str | None = None,
    ) -> VersionedStream:
        """Join with a table that changes: each row with the version that was valid at its time.

        The rows of ``table`` are versions, each valid from its time until that of the key's next
        one; a version in which the boolean column ``deleted`` is true ends the one before.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> rates = ticks.with_column_renamed("timestamp", "since")
        >>> ticks.join_as_of(rates, on="value").rows.df.columns
        ['value', 'timestamp', 'since']
        """
        from holdfast.joins import versioned_join

        check_rows(table, "join_as_of")
        return versioned_join(self.rows, table.rows, on, how, deleted)

    def iterate(
        self,
        body: Callable[[Stream], tuple[Rows, Rows]],
        *,
        max_records: int = 1_000_000,
        name: str | None = None,
    ) -> Rows:
        """Send rows round a loop: what the body feeds back in an epoch comes in again in the next.

        ``body`` gets the rows, those from outside and those that went round, and returns two
        streams: the rows that go round again, with the same columns, and those that come out. Rows in
        the loop are part of every checkpoint. Their number is in ``progress.metrics`` as
        ``<name>.records``, where the first loop without a name is ``loop``; more than ``max_records`` of
        them end the pipeline.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> def halve(rows):
        ...     halves = rows.select_expr("timestamp", "value div 2 AS value")
        ...     return halves.filter("value > 1"), halves.filter("value <= 1")
        >>> ones = ticks.iterate(halve)
        """
        from holdfast.loops import iterate

        return iterate(self.rows, body, max_records, name)

    def process(self, process: Process, output: object = None) -> PartitionStream:
        """Run user code on rows that are not grouped by key, with operator state.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> class Numbered(hf.Process):
        ...     output = "n long, value long"
        ...     counts = hf.OperatorList("long")
        ...
        ...     def process(self, rows, ctx):
        ...         n = sum(self.counts)
        ...         for n, row in enumerate(rows, n + 1):
        ...             yield n, row.value
        ...         self.counts.set([n])
        >>> numbered = ticks.process(Numbered())
        """
        from holdfast.keyed import PartitionStream

        rows = self.rows
        rows.must_stream()
        return PartitionStream(rows, process, output).checked()

    def connect(self, control: Rows) -> ConnectedStream:
        """Connect a control stream, whose rows every partition gets; see ``ConnectedStream.broadcast``.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> limits = hf.stream(spark.readStream.format("rate").load()).select("value")
        >>> connected = ticks.connect(limits)
        """
        from holdfast.keyed import ConnectedStream

        check_rows(control, "connect")
        rows, commands = self.rows, control.rows
        rows.must_stream()
        commands.must_stream()
        return ConnectedStream(rows, commands)

    def groupBy(self, *columns: str | Column) -> GroupedStream:  # noqa: N802 - PySpark's own name
        """Like ``DataFrame.groupBy``, for a ``StatefulProcessor`` that is moved over unchanged.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> grouped = ticks.groupBy("value")    # and .transformWithState(…), as in PySpark
        """
        from holdfast.grouped import GroupedStream

        check_columns(columns, "groupBy")
        return GroupedStream(self.rows, tuple(columns))

    def write_to(self, *sinks: Sink) -> Pipeline:
        """Send the rows to one sink or several.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> pipeline = ticks.write_to(hf.sinks.console())
        """
        from holdfast.pipeline import Pipeline, Written

        if not sinks:
            raise InputError("write_to needs a sink", hint='say write_to(hf.sinks.parquet("out"))')
        check_sinks(sinks)
        rows = self.rows
        rows.must_stream()
        return Pipeline((Written(rows, sinks),))


@dataclass(frozen=True, eq=False)
class Stream(Rows):
    """Rows on their way, and the steps they take: what :func:`stream` and every step return.

    >>> import holdfast as hf
    >>> words = hf.stream(spark.readStream.format("socket").options(host="localhost", port=9999).load())
    >>> type(words.filter("value <> ''")).__name__
    'Stream'
    """

    _internal = (
        "watermark",
        "lateness_ms",
        "derived",
        "behind_ms",
        "must_stream",
        "then",
        "at_times",
    )
    branches: tuple[Branch, ...]

    @property
    def rows(self) -> Stream:
        """Itself.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.rows is ticks
        True
        """
        return self

    @property
    def df(self) -> DataFrame:
        """What the rows look like; behind a source, the stream of rows itself.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.df.printSchema()
        root
         |-- timestamp: timestamp (nullable = true)
         |-- value: long (nullable = true)
        <BLANKLINE>
        """
        return self.branches[0].df

    @property
    def watermark(self) -> WatermarkSpec | None:
        """When the rows happened; None if nothing was said of it."""
        return self.branches[0].watermark

    @property
    def lateness_ms(self) -> int:
        """How much later than the watermark rows may come."""
        return max((b.watermark.lateness_ms for b in self.branches if b.watermark), default=0)

    @property
    def derived(self) -> bool:
        """Whether some of the rows are an operator's results."""
        return any(isinstance(branch.origin, Output) for branch in self.branches)

    @property
    def behind_ms(self) -> int:
        """How far its rows may be behind the pipeline's watermark."""
        marks = [b.watermark.behind_ms for b in self.branches if b.watermark]
        origins = [b.origin.of.behind_ms for b in self.branches if isinstance(b.origin, Output)]
        return max([0, *marks, *origins])

    def must_stream(self) -> None:
        """Raise unless it is a stream without state."""
        from holdfast.spark.guard import check_stream

        check_stream(self.df)

    def then(
        self, step: Callable[[DataFrame], DataFrame], renamed: Mapping[str, str] | None = None
    ) -> Stream:
        """The rows behind one more step."""
        return Stream(tuple(branch.then(step, renamed) for branch in self.branches))

    def at_times(self, spec: WatermarkSpec) -> Stream:
        """The rows with their watermark."""
        from holdfast.spark.plans.process import check_event_time

        check_event_time(self.df, spec.column)
        return Stream(tuple(_timed(branch, spec) for branch in self.branches))


def _timed(branch: Branch, spec: WatermarkSpec) -> Branch:
    if not isinstance(branch.origin, Output):
        return replace(branch, watermark=spec)
    result = branch.origin.of
    if not result.has_watermark:
        raise InputError(
            f"the results of {result.label!r} can't have a watermark: neither it nor an operator "
            "before it follows the event time of a source",
            hint='say with_watermark("ts", "10 s") at the source too, and use an operator that goes by '
            "time: a window, a join, drop_duplicates() or a process, not a running aggregate",
        )
    behind = result.behind_ms + spec.delay_ms
    return replace(branch, watermark=replace(spec, derived=True, behind_ms=behind))


def result_of(output: Output) -> ResultStream:
    """The operator whose results these are."""
    assert isinstance(output.of, ResultStream)
    return output.of


class ResultStream(Rows):
    """What an operator puts out, epoch by epoch: a stream like any other, and the operator's name.

    >>> import holdfast as hf
    >>> def busiest(bids: hf.Stream) -> hf.ResultStream:
    ...     counts = bids.key_by("auction").aggregate(n=hf.count()).named("counts")
    ...     return counts.key_by("auction").top(3, by=("n", "desc"))
    """

    _internal = (
        "at_end", "behind_ms", "checked", "checkpoint_complete", "has_watermark", "inputs", "may_repeat_results",
        "kind", "label", "name", "plan", "priority", "puts_out", "result_time", "result_time_is_end",
        "timed",
    )  # fmt: skip
    kind: ClassVar[str]
    """What operators of this kind are called if they get no name."""
    name: str | None
    priority: int
    """Of the operators on a host that lost its state, those of higher priority get theirs back first."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams that the operator reads, in the order of its plan's ports."""
        raise NotImplementedError

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002 - the operator's word for it
        """How rows reach the operator, and the operator; made anew for every start."""
        raise NotImplementedError

    def named(self, name: str, *, priority: int = 0) -> Self:
        """The same operator under a name of its own.

        Its state is found by it: a later program may have other operators around it. After a failure
        state of operators with a higher ``priority`` is restored before that of others.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> counts = ticks.key_by("value").aggregate(n=hf.count()).named("counts", priority=1)
        """
        if not _NAME.fullmatch(name):
            raise InputError(
                f"an operator can't be named {name!r}",
                hint="use letters, digits, - and _, and begin with a letter",
            )
        if name.startswith(_RESERVED):
            raise InputError(
                f"an operator can't be named {name!r}: sinks are", hint="choose another name"
            )
        if priority < 0:
            raise InputError(
                f"operator {name!r} has priority {priority}", hint="0 is the lowest there is"
            )
        named: Self = replace(self, name=name, priority=priority)  # type: ignore[type-var]
        return named

    @property
    def label(self) -> str:
        """What the operator is called."""
        return self.name or self.kind

    @property
    def timed(self) -> bool:
        """Whether the operator looks at the event times of its input."""
        return any(stream.watermark for stream in self.inputs)

    @property
    def has_watermark(self) -> bool:
        """Whether it, or an operator above it, follows the event time of a source."""
        return self.timed or any(
            branch.origin.of.has_watermark
            for stream in self.inputs
            for branch in stream.branches
            if isinstance(branch.origin, Output)
        )

    @property
    def behind_ms(self) -> int:
        """How far results may be behind the pipeline's watermark."""
        return max(stream.behind_ms for stream in self.inputs)

    @property
    def result_time(self) -> str | None:
        """The column of the results that says when they happened."""
        return None

    @property
    def result_time_is_end(self) -> bool:
        """Whether that is the end of a window."""
        return False

    @property
    def puts_out(self) -> Changes:
        """What the results say about those before; :attr:`Rows.changes` is the same behind steps."""
        from holdfast.changes import Changes

        return Changes("append")

    @cached_property
    def rows(self) -> Stream:
        """The results as a stream, to go on with.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.key_by("value").aggregate(n=hf.count()).rows.df.columns
        ['value', 'n']
        """
        return self._output("")

    def side(self, name: str) -> Stream:
        """The rows of a side output, such as ``late``, as a stream.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> once = ticks.key_by("value").drop_duplicates(within_watermark=True)
        >>> once.side("late").df.columns
        ['timestamp', 'value']
        """
        self._check_side(name)
        return self._output(name)

    def write_to(self, *sinks: Sink, **side_outputs: Sink) -> Pipeline:
        """Send the results to one sink or several, and side outputs, by name, to theirs.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> once = ticks.key_by("value").drop_duplicates(within_watermark=True)
        >>> pipeline = once.write_to(hf.sinks.parquet("out"), late=hf.sinks.console())
        """
        from holdfast.pipeline import Pipeline, Written

        if not sinks and not side_outputs:
            raise InputError("write_to needs a sink", hint='say write_to(hf.sinks.parquet("out"))')
        check_sinks([*sinks, *side_outputs.values()])
        for name in side_outputs:
            self._check_side(name)
        return Pipeline((Written(self.rows, sinks, dict(side_outputs)),))

    def checkpoint_complete(self, epoch: int) -> None:
        """A checkpoint that holds the state after ``epoch`` is in the log."""

    def _check_side(self, name: str) -> None:
        known = self.plan().operator.side_schemas
        if name not in known:
            raise InputError(
                f"there is no side output {name!r}",
                hint=f"there is: {', '.join(known)}" if known else "this stream has none",
            )

    def _output(self, name: str) -> Stream:
        from holdfast.spark.flow.stand_in import stand_in

        operator = self.plan().operator
        schema = operator.output_schema if not name else operator.side_schemas[name]
        df = stand_in(self.inputs[0].df.sparkSession, schema)
        mark = None
        if not name and self.result_time is not None and self.has_watermark:
            late = max(stream.lateness_ms for stream in self.inputs)
            mark = WatermarkSpec(
                self.result_time,
                0,
                late,
                derived=True,
                behind_ms=self.behind_ms,
                is_end=self.result_time_is_end,
            )
        return Stream((Branch(Output(self, name), df, (), mark),))
