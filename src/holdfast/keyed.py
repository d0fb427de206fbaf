"""Streams grouped by key, and the operators on them: aggregates, processes, deduplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.arguments import check_rows, once_called
from holdfast.changes import Changes, passed_on
from holdfast.choices import OutputMode, SortOrder, TopOutputMode, check_choice
from holdfast.errors import InputError
from holdfast.spark.says_how import CONNECTED, KEYED, SaysHow
from holdfast.stream import ResultStream, Rows, Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from holdfast.aggregates import Aggregate
    from holdfast.operators.process.batch import BatchProcess
    from holdfast.operators.process.keyed import KeyedProcess
    from holdfast.operators.process.unkeyed import Process
    from holdfast.operators.window.spec import Emit, WindowSpec
    from holdfast.spark.plans.base import OperatorPlan
    from holdfast.tops import TopStream
    from holdfast.windows import WindowedStream

__all__ = [
    "AggregatedStream",
    "ConnectedStream",
    "DeduplicatedStream",
    "KeyedStream",
    "PartitionStream",
    "ProcessedStream",
]


@dataclass(frozen=True, eq=False)
class KeyedStream(SaysHow):
    """Rows grouped by key, on their way to an operator: what ``key_by`` returns.

    >>> import holdfast as hf
    >>> def spent(orders: hf.Stream) -> hf.AggregatedStream:
    ...     by_user: hf.KeyedStream = orders.key_by("user")
    ...     return by_user.aggregate(total=hf.sum("amount"))
    """

    _how = KEYED
    source: Stream
    keys: tuple[str | Column, ...]

    def aggregate(self, **aggregates: Aggregate) -> AggregatedStream:
        """Keep aggregates per key; every epoch puts out the changed keys with their new values.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> totals = ticks.key_by("value").aggregate(n=hf.count(), newest=hf.max("timestamp"))
        >>> totals.rows.df.columns
        ['value', 'n', 'newest']
        """
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

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> class Total(hf.KeyedProcess):
        ...     output = "digit long, total long"
        ...     total = hf.ValueState("long", default=0)
        ...
        ...     def process(self, key, rows, ctx):
        ...         self.total.value += sum(row.value for row in rows)
        ...         yield key.digit, self.total.value
        >>> totals = ticks.select_expr("value % 10 AS digit", "value").key_by("digit").process(Total())
        """
        return ProcessedStream(self, process, output).checked()

    def drop_duplicates(self, *, within_watermark: bool = False) -> DeduplicatedStream:
        """Let the first row of each key through, and no other.

        Keys are remembered for ever, unless the watermark's column is one of them, or
        ``within_watermark`` says that a key counts only as long as the watermark waits for rows.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> once = ticks.key_by("value").drop_duplicates(within_watermark=True)
        """
        stream = DeduplicatedStream(self, within_watermark)
        stream.plan()
        return stream

    @once_called(trigger="emit", output="output_mode")
    def window(
        self, window: WindowSpec, *, emit: Emit | None = None, output_mode: OutputMode = "append"
    ) -> WindowedStream:
        """Cut each key's rows into windows by event time.

        ``window`` is ``hf.tumbling(size)``, ``hf.sliding(size, slide)``, ``hf.session(gap)`` or
        ``hf.global_window()``. With the output mode ``append`` a result goes out when the watermark
        has passed its window, and as ``hf.emit(...)`` says; with ``update`` in every epoch that
        changes it; with ``retract`` as well, with what was put out before taken back.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> per_minute = ticks.key_by("value").window(hf.tumbling("1 minute"), output_mode="update")
        >>> per_minute.aggregate(n=hf.count()).rows.df.columns
        ['value', 'window_start', 'window_end', 'n']
        """
        from holdfast.windows import windowed

        return windowed(self.source, self.keys, window, emit, output_mode)

    @once_called(output="output_mode")
    def top(
        self,
        n: int,
        by: str | tuple[str, SortOrder] | Sequence[str | tuple[str, SortOrder]],
        *,
        rank: str | None = None,
        output_mode: TopOutputMode = "retract",
        until: str | None = None,
    ) -> TopStream:
        """Keep of each key the first ``n`` rows by some columns: ``by=[("price", "desc"), "ts"]``.

        The results say what changes: a column ``change`` is 1 for rows that come in and -1 for those
        that leave. ``until`` names a key column with a time, such as ``window_end``: state is freed
        when the watermark reaches it, and with ``output_mode="append"`` the rows go out then, once.
        ``rank`` names a column for the row's place.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> newest = ticks.key_by("value").top(1, by=("timestamp", "desc"))
        >>> newest.rows.df.columns
        ['timestamp', 'value', 'change']
        """
        from holdfast.tops import TopStream, parse_order

        check_choice("output_mode", output_mode, TopOutputMode)
        stream = TopStream(self, n, parse_order(by), rank, output_mode, until)
        stream.plan()
        return stream

    def connect(self, control: Rows) -> ConnectedStream:
        """Connect a control stream, whose rows every partition gets; see ``ConnectedStream.broadcast``.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> limits = hf.stream(spark.readStream.format("rate").load()).select("value")
        >>> connected = ticks.key_by("value").connect(limits)
        """
        check_rows(control, "connect")
        return ConnectedStream(self, control.rows)


@dataclass(frozen=True, eq=False)
class ConnectedStream(SaysHow):
    """Rows beside those of a control stream: what ``connect`` returns.

    >>> import holdfast as hf
    >>> def limited(payments: hf.Stream, limits: hf.Stream, process: hf.KeyedProcess) -> hf.Rows:
    ...     connected: hf.ConnectedStream = payments.key_by("card").connect(limits)
    ...     return connected.broadcast(process)
    """

    _how = CONNECTED
    main: KeyedStream | Stream
    control: Stream

    def broadcast(
        self, process: KeyedProcess | Process, output: object = None
    ) -> ProcessedStream | PartitionStream:
        """Run a process whose broadcast state the control stream updates.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> limits = hf.stream(spark.readStream.format("rate").load()).select("value")
        >>> class Above(hf.KeyedProcess):
        ...     output = "value long"
        ...     limit = hf.BroadcastState("string", "long")
        ...
        ...     def process_broadcast(self, rows, ctx):
        ...         self.limit["now"] = rows[-1].value
        ...
        ...     def process(self, key, rows, ctx):
        ...         if key.value > self.limit.get("now", 0):
        ...             yield (key.value,)
        >>> above = ticks.key_by("value").connect(limits).broadcast(Above())
        """
        if isinstance(self.main, Stream):
            return PartitionStream(self.main, process, output, self.control).checked()  # type: ignore[arg-type]
        return ProcessedStream(self.main, process, output, self.control).checked()  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class AggregatedStream(ResultStream):
    """Changed keys with their new values, epoch by epoch: what ``KeyedStream.aggregate`` returns.

    >>> import holdfast as hf
    >>> def counts(words: hf.Stream) -> hf.AggregatedStream:
    ...     return words.key_by("word").aggregate(n=hf.count())
    """

    kind: ClassVar[str] = "aggregate"
    keyed: KeyedStream
    aggregates: dict[str, Aggregate]
    name: str | None = None
    priority: int = 0
    constant: tuple[str, ...] = ()
    """Columns of the key that are the same in all rows, and so tell none from another."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.keyed.source,)

    @property
    def puts_out(self) -> Changes:
        """A changed key's new values replace those before."""
        names = self.plan().operator.key_names
        return Changes("update", tuple(name for name in names if name not in self.constant))

    @property
    def timed(self) -> bool:
        """An aggregate over everything has no time."""
        return False

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.lift import plan_aggregate

        return plan_aggregate(
            self.keyed.source.df, id or self.label, self.keyed.keys, self.aggregates
        )


@dataclass(frozen=True, eq=False)
class ProcessedStream(ResultStream):
    """What a process puts out, epoch by epoch: what ``KeyedStream.process`` returns.

    >>> import holdfast as hf
    >>> def carts(clicks: hf.Stream, cart: hf.KeyedProcess) -> hf.ProcessedStream:
    ...     return clicks.key_by("user").process(cart, output="user string, total double")
    """

    kind: ClassVar[str] = "process"
    keyed: KeyedStream
    process_: KeyedProcess | BatchProcess
    output: object = None
    control: Stream | None = None
    name: str | None = None
    priority: int = 0

    def checked(self) -> ProcessedStream:
        """Itself, if it can be planned."""
        self.plan()
        return self

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.keyed.source, *([self.control] if self.control else []))

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.process import plan_process

        return plan_process(id or self.label, self.keyed, self.process_, self.output, self.control)

    def checkpoint_complete(self, epoch: int) -> None:
        """Tell the process."""
        self.process_.checkpoint_complete(epoch)


@dataclass(frozen=True, eq=False)
class PartitionStream(ResultStream):
    """What a process without a key puts out, epoch by epoch: what ``Rows.process`` returns.

    >>> import holdfast as hf
    >>> def numbered(lines: hf.Stream, process: hf.Process) -> hf.PartitionStream:
    ...     return lines.process(process, output="n long, text string")
    """

    kind: ClassVar[str] = "process"
    source: Stream
    process_: Process
    output: object = None
    control: Stream | None = None
    name: str | None = None
    priority: int = 0

    def checked(self) -> PartitionStream:
        """Itself, if it can be planned."""
        self.plan()
        return self

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.source, *([self.control] if self.control else []))

    @property
    def timed(self) -> bool:
        """A process without a key has no event time."""
        return False

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.process import plan_unkeyed

        return plan_unkeyed(id or self.label, self.source, self.process_, self.output, self.control)

    def checkpoint_complete(self, epoch: int) -> None:
        """Tell the process."""
        self.process_.checkpoint_complete(epoch)


@dataclass(frozen=True, eq=False)
class DeduplicatedStream(ResultStream):
    """The first row of every key, epoch by epoch: what ``KeyedStream.drop_duplicates`` returns.

    >>> import holdfast as hf
    >>> def once(events: hf.Stream) -> hf.DeduplicatedStream:
    ...     return events.key_by("id").drop_duplicates()
    """

    kind: ClassVar[str] = "deduplicate"
    keyed: KeyedStream
    within_watermark: bool = False
    name: str | None = None
    priority: int = 0

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.keyed.source,)

    @property
    def puts_out(self) -> Changes:
        """The rows are the input's."""
        return passed_on(self.inputs, "drop_duplicates()")

    @property
    def result_time(self) -> str | None:
        """The rows' own time."""
        mark = self.keyed.source.watermark
        return mark.column if mark else None

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.deduplicate import plan_deduplicate

        return plan_deduplicate(
            id or self.label, self.keyed, within_watermark=self.within_watermark
        )
