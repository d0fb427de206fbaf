"""Windows: rows cut up by event time, and what is made of each piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.changes import Changes
from holdfast.choices import OutputMode, check_choice
from holdfast.durations import Duration, parse_ms
from holdfast.errors import InputError
from holdfast.operators.window.spec import (
    WINDOW_END,
    WINDOW_START,
    Emit,
    GlobalWindow,
    SessionGap,
    Sliding,
    Tumbling,
    WindowSpec,
)
from holdfast.spark.says_how import WINDOWED, SaysHow
from holdfast.stream import ResultStream, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column

    from holdfast.aggregates import Aggregate
    from holdfast.spark.plans.base import OperatorPlan

__all__ = [
    "AppliedStream",
    "WindowResultStream",
    "WindowedStream",
    "emit",
    "global_window",
    "session",
    "sliding",
    "tumbling",
    "windowed",
]


def tumbling(size: Duration, *, offset: Duration = 0) -> Tumbling:
    """Windows of one size, one behind the other.

    >>> import holdfast as hf
    >>> print(hf.tumbling("1 minute"))
    tumbling windows of 60000 ms from 0 ms
    """
    return Tumbling(parse_ms(size, "size"), parse_ms(offset, "offset"))


def sliding(size: Duration, slide: Duration, *, offset: Duration = 0) -> Sliding:
    """Windows of one size that begin every ``slide``: a row is in several.

    >>> import holdfast as hf
    >>> print(hf.sliding("10 s", "2 s"))
    sliding windows of 10000 ms every 2000 ms from 0 ms
    """
    return Sliding(parse_ms(size, "size"), parse_ms(slide, "slide"), parse_ms(offset, "offset"))


def session(gap: Duration) -> SessionGap:
    """Windows that end when a key has had no rows for ``gap``.

    >>> import holdfast as hf
    >>> print(hf.session("30 s"))
    sessions with gaps of 30000 ms
    """
    return SessionGap(parse_ms(gap, "gap"))


def global_window() -> GlobalWindow:
    """One window for all time; ``emit``, or the output mode, says when its result goes out.

    >>> import holdfast as hf
    >>> print(hf.global_window())
    one window for all time
    """
    return GlobalWindow()


def emit(
    *, early_rows: int | None = None, early_every: Duration | None = None, late: bool = True
) -> Emit:
    """When results go out, besides when the watermark has passed their window.

    ``early_rows``: at the end of an epoch in which so many rows have come since the last time;
    ``early_every``: after so much processing time; ``late``: whenever late rows change a window that
    has closed, while the allowed lateness lasts.

    >>> import holdfast as hf
    >>> print(hf.emit(early_every="5 s"))
    every 5000 ms, late rows too
    """
    every = None if early_every is None else parse_ms(early_every, "early_every")
    return Emit(early_rows, every, late)


def windowed(
    source: Stream,
    keys: tuple[str | Column, ...],
    window: WindowSpec,
    emit: Emit | None,
    output_mode: OutputMode,
) -> WindowedStream:
    """Check what was said of a window."""
    source.must_stream()
    check_choice("output_mode", output_mode, OutputMode)
    if not isinstance(window, WindowSpec):
        raise InputError(
            f"{window!r} is no window", hint='say hf.tumbling("1 minute"), for example'
        )
    if emit is not None and not isinstance(emit, Emit):
        raise InputError(
            f"emit can't be {emit!r}", hint='say emit=hf.emit(early_every="5 s"), for example'
        )
    if source.watermark is None and not isinstance(window, GlobalWindow):
        raise InputError(
            f"{window} need to know when rows happened, but the stream has no watermark",
            hint='say with_watermark("ts", "10 seconds") before, with the column of the event time',
        )
    return WindowedStream(source, keys, window, emit or Emit(), output_mode)


@dataclass(frozen=True, eq=False)
class WindowedStream(SaysHow):
    """Rows in windows, on their way to an operator: what ``window`` returns.

    >>> import holdfast as hf
    >>> def per_minute(bids: hf.Stream) -> hf.WindowResultStream:
    ...     windows: hf.WindowedStream = bids.key_by("auction").window(hf.tumbling("1 minute"))
    ...     return windows.aggregate(n=hf.count())
    """

    _how = WINDOWED
    source: Stream
    keys: tuple[str | Column, ...]
    window: WindowSpec
    emit: Emit
    output_mode: OutputMode

    def aggregate(self, **aggregates: Aggregate) -> WindowResultStream:
        """Keep aggregates per key and window.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> windows = ticks.window(hf.sliding("1 minute", "10 s"), emit=hf.emit(early_every="5 s"))
        >>> windows.aggregate(n=hf.count()).rows.df.columns
        ['window_start', 'window_end', 'n']
        """
        if not aggregates:
            raise InputError("aggregate needs at least one aggregate", hint="say n=hf.count()")
        stream = WindowResultStream(self, dict(aggregates))
        stream.plan()
        return stream

    def apply(self, function: Callable[[pa.Table], pa.Table], output: object) -> AppliedStream:
        """Call a function on the rows of all windows that close, as one Arrow table.

        It gets the keys, ``window_start``, ``window_end`` and the other columns, sorted by key, window
        and event time, and returns a table with the columns of ``output``.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load()).with_watermark("timestamp", "10 s")
        >>> def first(rows):
        ...     return rows.group_by("window_end", use_threads=False).aggregate([("value", "first")])
        >>> firsts = ticks.window(hf.tumbling("1 minute")).apply(
        ...     first, output="window_end timestamp, value_first long"
        ... )
        """
        stream = AppliedStream(self, function, output)
        stream.plan()
        return stream


class _ResultsOfWindows(ResultStream):
    """What windows have in common."""

    windows: WindowedStream

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.windows.source,)

    @property
    def may_repeat_results(self) -> bool:
        """Whether a window may have several results, though each is put out as if it were the only one."""
        late = self.windows.emit.late and self.windows.source.lateness_ms > 0
        return self.windows.emit.is_early or late


@dataclass(frozen=True, eq=False)
class WindowResultStream(_ResultsOfWindows):
    """Aggregates per key and window: what ``WindowedStream.aggregate`` returns.

    >>> import holdfast as hf
    >>> def visits(clicks: hf.Stream) -> hf.WindowResultStream:
    ...     return clicks.key_by("user").window(hf.session("30 minutes")).aggregate(n=hf.count())
    """

    kind: ClassVar[str] = "window"
    windows: WindowedStream
    aggregates: dict[str, Aggregate]
    name: str | None = None
    priority: int = 0

    @property
    def puts_out(self) -> Changes:
        """A window's new result replaces the one before, or takes it back."""
        windows = self.windows
        mode = windows.output_mode
        if mode == "retract" or (mode == "append" and not self.may_repeat_results):
            return Changes(mode)
        if isinstance(windows.window, SessionGap):
            why = 'a session has other bounds when it grows: say output_mode="retract"'
            return Changes("update", None, why)
        from holdfast.spark.plans.rows import resolve_keys

        bounds = [] if isinstance(windows.window, GlobalWindow) else [WINDOW_START]
        names = [key.name for key in resolve_keys(windows.source.df, windows.keys)]
        return Changes("update", (*names, *bounds))

    @property
    def result_time(self) -> str | None:
        """The end of the window."""
        return None if isinstance(self.windows.window, GlobalWindow) else WINDOW_END

    @property
    def result_time_is_end(self) -> bool:
        """Results are of the moment before it."""
        return True

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.window import plan_window

        return plan_window(id or self.label, self.windows, self.aggregates)


@dataclass(frozen=True, eq=False)
class AppliedStream(_ResultsOfWindows):
    """What a function makes of each window's rows: what ``WindowedStream.apply`` returns.

    >>> import holdfast as hf
    >>> def sizes(clicks: hf.Stream) -> hf.AppliedStream:
    ...     windows = clicks.window(hf.tumbling("1 minute"))
    ...     return windows.apply(lambda rows: rows.select(["window_end"]), "window_end timestamp")
    """

    kind: ClassVar[str] = "window"
    windows: WindowedStream
    function: Callable[[pa.Table], pa.Table]
    output: object
    name: str | None = None
    priority: int = 0

    @property
    def puts_out(self) -> Changes:
        """What the function returns; late rows may have it called again for a window."""
        if not self.may_repeat_results:
            return Changes("append")
        return Changes("update", None, "a window's function is called again when late rows come")

    @property
    def result_time(self) -> str | None:
        """The end of the window, if the function passes it on."""
        names = self.plan().operator.output_schema.names
        return WINDOW_END if WINDOW_END in names else None

    @property
    def result_time_is_end(self) -> bool:
        """Results are of the moment before it."""
        return True

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.window import plan_window_function

        return plan_window_function(id or self.label, self.windows, self.function, self.output)
