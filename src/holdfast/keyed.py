"""Streams grouped by key, and the operators on them: aggregates, processes, deduplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from holdfast.arguments import check_choice, check_rows
from holdfast.changes import Changes, passed_on
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
    from holdfast.operators.window.spec import Output as WindowOutput
    from holdfast.operators.window.spec import Trigger, WindowSpec
    from holdfast.spark.plans.base import Plan
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
    """Rows grouped by key."""

    _how = KEYED
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

    def window(
        self, window: WindowSpec, *, trigger: Trigger | None = None, output: WindowOutput = "append"
    ) -> WindowedStream:
        """Cut each key's rows into windows by event time.

        ``window`` is ``hf.tumbling(size)``, ``hf.sliding(size, slide)``, ``hf.session(gap)`` or
        ``hf.global_window()``. With the output ``append`` a result goes out when the watermark has
        passed its window, and as ``hf.trigger(...)`` says; with ``update`` in every epoch that
        changes it; with ``retract`` as well, with what was put out before taken back.
        """
        from holdfast.windows import windowed

        return windowed(self.source, self.keys, window, trigger, output)

    def top(
        self,
        n: int,
        by: str | tuple[str, str] | Sequence[str | tuple[str, str]],
        *,
        rank: str | None = None,
        output: Literal["append", "retract"] = "retract",
        until: str | None = None,
    ) -> TopStream:
        """Keep of each key the first ``n`` rows by some columns: ``by=[("price", "desc"), "ts"]``.

        The output says what changes: a column ``change`` is 1 for rows that come in and -1 for those
        that leave. ``until`` names a key column with a time, such as ``window_end``: state is freed
        when the watermark reaches it, and with ``output="append"`` the rows go out then, once.
        ``rank`` names a column for the row's place.
        """
        from holdfast.tops import TopStream, parse_order

        check_choice("output", output, ("append", "retract"))
        stream = TopStream(self, n, parse_order(by), rank, output, until)
        stream.plan()
        return stream

    def connect(self, control: Rows) -> ConnectedStream:
        """Connect a control stream, whose rows every partition gets."""
        check_rows(control, "connect")
        return ConnectedStream(self, control.rows)


@dataclass(frozen=True, eq=False)
class ConnectedStream(SaysHow):
    """Rows beside those of a control stream."""

    _how = CONNECTED
    main: KeyedStream | Stream
    control: Stream

    def broadcast(
        self, process: KeyedProcess | Process, output: object = None
    ) -> ProcessedStream | PartitionStream:
        """Run a process whose broadcast state the control stream updates."""
        if isinstance(self.main, Stream):
            return PartitionStream(self.main, process, output, self.control).checked()  # type: ignore[arg-type]
        return ProcessedStream(self.main, process, output, self.control).checked()  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class AggregatedStream(ResultStream):
    """Changed keys with their new values, epoch by epoch."""

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

    def plan(self, id: str | None = None) -> Plan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.lift import plan_aggregate

        return plan_aggregate(
            self.keyed.source.df, id or self.label, self.keyed.keys, self.aggregates
        )


@dataclass(frozen=True, eq=False)
class ProcessedStream(ResultStream):
    """What a process puts out, epoch by epoch."""

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

    def plan(self, id: str | None = None) -> Plan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.process import plan_process

        return plan_process(id or self.label, self.keyed, self.process_, self.output, self.control)

    def checkpoint_complete(self, epoch: int) -> None:
        """Tell the process."""
        self.process_.checkpoint_complete(epoch)


@dataclass(frozen=True, eq=False)
class PartitionStream(ResultStream):
    """What a process without a key puts out, epoch by epoch."""

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

    def plan(self, id: str | None = None) -> Plan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.process import plan_unkeyed

        return plan_unkeyed(id or self.label, self.source, self.process_, self.output, self.control)

    def checkpoint_complete(self, epoch: int) -> None:
        """Tell the process."""
        self.process_.checkpoint_complete(epoch)


@dataclass(frozen=True, eq=False)
class DeduplicatedStream(ResultStream):
    """The first row of every key, epoch by epoch."""

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

    def plan(self, id: str | None = None) -> Plan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.deduplicate import plan_deduplicate

        return plan_deduplicate(
            id or self.label, self.keyed, within_watermark=self.within_watermark
        )
