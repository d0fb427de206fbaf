"""Windows: rows cut up by event time, and what is made of each piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, get_args

from holdfast.arguments import check_choice
from holdfast.changes import Changes
from holdfast.durations import parse_duration
from holdfast.errors import InputError
from holdfast.operators.window.spec import (
    WINDOW_END,
    WINDOW_START,
    GlobalWindow,
    Output,
    SessionGap,
    Sliding,
    Trigger,
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
    from holdfast.spark.plans.base import Plan

__all__ = [
    "AppliedStream",
    "WindowResultStream",
    "WindowedStream",
    "global_window",
    "session",
    "sliding",
    "trigger",
    "tumbling",
    "windowed",
]


def _ms(value: str | float, what: str) -> int:
    return round(parse_duration(value, what) * 1000)


def tumbling(size: str | float, *, offset: str | float = 0) -> Tumbling:
    """Windows of one size, one behind the other.

    >>> import holdfast as hf
    >>> print(hf.tumbling("1 minute"))
    tumbling windows of 60000 ms from 0 ms
    """
    return Tumbling(_ms(size, "size"), _ms(offset, "offset"))


def sliding(size: str | float, slide: str | float, *, offset: str | float = 0) -> Sliding:
    """Windows of one size that begin every ``slide``: a row is in several.

    >>> import holdfast as hf
    >>> print(hf.sliding("10 s", "2 s"))
    sliding windows of 10000 ms every 2000 ms from 0 ms
    """
    return Sliding(_ms(size, "size"), _ms(slide, "slide"), _ms(offset, "offset"))


def session(gap: str | float) -> SessionGap:
    """Windows that end when a key has had no rows for ``gap``.

    >>> import holdfast as hf
    >>> print(hf.session("30 s"))
    sessions with gaps of 30000 ms
    """
    return SessionGap(_ms(gap, "gap"))


def global_window() -> GlobalWindow:
    """One window for all time; a trigger says when its result goes out.

    >>> import holdfast as hf
    >>> print(hf.global_window())
    one window for all time
    """
    return GlobalWindow()


def trigger(
    *, early_rows: int | None = None, early_every: str | float | None = None, late: bool = True
) -> Trigger:
    """When results go out, besides when the watermark has passed their window.

    ``early_rows``: at the end of an epoch in which so many rows have come since the last time;
    ``early_every``: after so much processing time; ``late``: whenever late rows change a window that
    has closed, while the allowed lateness lasts.

    >>> import holdfast as hf
    >>> print(hf.trigger(early_every="5 s"))
    every 5000 ms, late rows too
    """
    every = None if early_every is None else _ms(early_every, "early_every")
    return Trigger(early_rows, every, late)


def windowed(
    source: Stream,
    keys: tuple[str | Column, ...],
    window: WindowSpec,
    trigger: Trigger | None,
    output: Output,
) -> WindowedStream:
    """Check what was said of a window."""
    source.must_stream()
    check_choice("output", output, get_args(Output))
    if not isinstance(window, WindowSpec):
        raise InputError(
            f"{window!r} is no window", hint='say hf.tumbling("1 minute"), for example'
        )
    if source.watermark is None and not isinstance(window, GlobalWindow):
        raise InputError(
            f"{window} need to know when rows happened, but the stream has no watermark",
            hint='say with_watermark("ts", "10 seconds") before, with the column of the event time',
        )
    return WindowedStream(source, keys, window, trigger or Trigger(), output)


@dataclass(frozen=True, eq=False)
class WindowedStream(SaysHow):
    """Rows in windows."""

    _how = WINDOWED
    source: Stream
    keys: tuple[str | Column, ...]
    window: WindowSpec
    trigger: Trigger
    output: Output

    def aggregate(self, **aggregates: Aggregate) -> WindowResultStream:
        """Keep aggregates per key and window."""
        if not aggregates:
            raise InputError("aggregate needs at least one aggregate", hint="say n=hf.count()")
        stream = WindowResultStream(self, dict(aggregates))
        stream.plan()
        return stream

    def apply(self, function: Callable[[pa.Table], pa.Table], output: object) -> AppliedStream:
        """Call a function on the rows of all windows that close, as one Arrow table.

        It gets the keys, ``window_start``, ``window_end`` and the other columns, sorted by key, window
        and event time, and returns a table with the columns of ``output``.
        """
        stream = AppliedStream(self, function, output)
        stream.plan()
        return stream


class _InWindows(ResultStream):
    """What windows have in common."""

    windows: WindowedStream

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.windows.source,)

    @property
    def again(self) -> bool:
        """Whether a window may have several results, though each is put out as if it were the only one."""
        late = self.windows.trigger.late and self.windows.source.lateness_ms > 0
        return self.windows.trigger.is_early or late


@dataclass(frozen=True, eq=False)
class WindowResultStream(_InWindows):
    """Aggregates per key and window."""

    kind: ClassVar[str] = "window"
    windows: WindowedStream
    aggregates: dict[str, Aggregate]
    name: str | None = None
    priority: int = 0

    @property
    def puts_out(self) -> Changes:
        """A window's new result replaces the one before, or takes it back."""
        windows = self.windows
        if windows.output == "retract" or (windows.output == "append" and not self.again):
            return Changes(windows.output)
        if isinstance(windows.window, SessionGap):
            why = 'a session has other bounds when it grows: say output="retract"'
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

    def plan(self, id: str | None = None) -> Plan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.window import plan_window

        return plan_window(id or self.label, self.windows, self.aggregates)


@dataclass(frozen=True, eq=False)
class AppliedStream(_InWindows):
    """What a function makes of each window's rows."""

    kind: ClassVar[str] = "window"
    windows: WindowedStream
    function: Callable[[pa.Table], pa.Table]
    output: object
    name: str | None = None
    priority: int = 0

    @property
    def puts_out(self) -> Changes:
        """What the function returns; late rows may have it called again for a window."""
        if not self.again:
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

    def plan(self, id: str | None = None) -> Plan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.window import plan_window_function

        return plan_window_function(id or self.label, self.windows, self.function, self.output)
