"""The windows that rows are of, and the columns that hold their bounds, through steps and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from holdfast.operators.window.spec import (
    WINDOW_END,
    WINDOW_START,
    GlobalWindow,
    Sliding,
    Tumbling,
    WindowSpec,
)
from holdfast.spark.flow.branch import StreamSource
from holdfast.stream import Branch, Output, ResultStream, Stream, WatermarkSpec, result_of
from holdfast.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Step: TypeAlias = Callable[[DataFrame], DataFrame]

__all__ = ["Spread", "WindowBounds", "cut_into", "of_both", "of_join", "timed", "windows_of"]

_NAMES = frozenset([WINDOW_START, WINDOW_END])
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class WindowBounds:
    """The windows that rows are results of, or were put into."""

    spec: WindowSpec | None
    """None if they are not known, or not those of all rows alike."""
    starts: frozenset[str] = _NONE
    ends: frozenset[str] = _NONE
    """The columns with their bounds: in every row those of the row's window."""
    others: frozenset[str] = _NONE
    """Further columns with bounds: only in some of the rows, or of windows that rows were in before."""
    times: frozenset[str] = _NONE
    """The columns by which rows were put into the windows, if they are no results of them."""

    @property
    def bounds(self) -> frozenset[str]:
        """All columns with bounds."""
        return self.starts | self.ends | self.others

    @property
    def columns(self) -> dict[str, str]:
        """The columns by which windows can be told, quoted, and which bound each has."""
        return {quoted(name): WINDOW_START for name in self.starts} | {
            quoted(name): WINDOW_END for name in self.ends
        }

    @property
    def telling(self) -> frozenset[str]:
        """The columns that tell the end of a row's window: the start does, if all are of one length."""
        return self.ends if self.size_ms is None or not self.ends else self.ends | self.starts

    @property
    def size_ms(self) -> int | None:
        """How long each is; None if that differs."""
        return self.spec.size_ms if isinstance(self.spec, Tumbling | Sliding) else None

    def called(self, names: Mapping[str, Iterable[str]]) -> WindowBounds:
        """The same windows, of rows whose columns have other names, or several each."""
        starts, ends, others, times = (
            frozenset(name for old in columns for name in names.get(old, ()))
            for columns in (self.starts, self.ends, self.others, self.times)
        )
        return replace(self, starts=starts, ends=ends, others=others, times=times)

    def among(self, columns: Iterable[str]) -> WindowBounds:
        """The same windows, of rows that have these columns alone."""
        return self.called({name: (name,) for name in columns})

    def unknown(self) -> WindowBounds:
        """What is left to know if nobody can tell the windows any more: there are bounds."""
        return WindowBounds(None, others=self.bounds)


@dataclass(frozen=True)
class Spread:
    """A step that gives rows the bounds of the windows they are in, and says so to whoever follows it."""

    spec: WindowSpec
    time: str
    texts: tuple[str, ...]

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The rows with these columns."""
        return frame.selectExpr(*self.texts)


def cut_into(
    spec: WindowSpec, before: WindowBounds | None, columns: Iterable[str], time: str | None = None
) -> WindowBounds | None:
    """The windows that rows, or groups of them, are in now; bounds that they had are mere columns.

    ``time`` is the column by which rows were put into them; None if they are results.
    """
    kept = _NONE if before is None else before.among(columns).bounds - _NAMES
    if isinstance(spec, GlobalWindow):
        return WindowBounds(None, others=kept) if kept else None
    times = _NONE if time is None else frozenset([time])
    return WindowBounds(spec, frozenset([WINDOW_START]), frozenset([WINDOW_END]), kept, times)


def of_both(one: WindowBounds | None, other: WindowBounds | None) -> WindowBounds | None:
    """The windows of rows that were put together, and have the same columns."""
    if one is None or other is None:
        found = one or other
        return None if found is None else found.unknown()
    starts, ends = one.starts & other.starts, one.ends & other.ends
    spec = one.spec if one.spec == other.spec else None
    others = (one.bounds | other.bounds) - starts - ends
    return WindowBounds(spec, starts, ends, others, one.times & other.times)


def of_join(timing: WindowBounds | None, other: WindowBounds | None) -> WindowBounds | None:
    """The windows of joined rows: of the side whose time they have, and of the other one."""
    if other is None:
        return timing
    if timing is None:
        return other.unknown()
    others = timing.others | other.bounds
    return replace(timing, others=others - timing.starts - timing.ends)


def windows_of(stream: Stream) -> WindowBounds | None:
    """The windows that the rows of a stream are results of."""
    return reduce(of_both, map(_of_branch, stream.branches))


def _of_branch(branch: Branch) -> WindowBounds | None:
    frame, windows = _at_origin(branch.origin)
    begin = 0
    for at, step in enumerate(branch.steps):
        if isinstance(step, Spread):
            before = _through(windows, frame, branch.steps[begin:at])
            frame = _behind(frame, branch.steps[begin : at + 1])
            windows, begin = cut_into(step.spec, before, frame.columns, step.time), at + 1
    return _through(windows, frame, branch.steps[begin:])


def _at_origin(origin: StreamSource | Output) -> tuple[DataFrame, WindowBounds | None]:
    if isinstance(origin, StreamSource):
        return origin.df, None
    result = result_of(origin)
    if origin.name:
        return result.side(origin.name).df, None
    return result.rows.df, _of_results(result)


def _behind(frame: DataFrame, steps: Sequence[Step]) -> DataFrame:
    return reduce(lambda made, step: step(made), steps, frame)


def _through(
    windows: WindowBounds | None, frame: DataFrame, steps: Sequence[Step]
) -> WindowBounds | None:
    """The windows of rows behind steps."""
    if windows is None or not steps:
        return windows
    from holdfast.spark.jvm.lineage import follow

    followed = follow(frame, steps)
    found = windows.called(followed.names)
    if "Union" in followed.others:
        found = found.unknown()  # Spark's plan follows the first of the frames alone.
    # What still goes by the name of a bound is taken for one, though a step made it anew.
    anew = _NAMES.intersection(_behind(frame, steps).columns) - found.bounds
    return replace(found, others=found.others | anew)


def _of_results(result: ResultStream) -> WindowBounds | None:
    from holdfast.joins import JoinedStream, VersionedStream
    from holdfast.keyed import DeduplicatedStream
    from holdfast.tops import TopStream
    from holdfast.windows import AppliedStream, WindowResultStream

    columns = result.rows.df.columns
    if isinstance(result, WindowResultStream):
        return cut_into(result.windows.window, windows_of(result.windows.source), columns)
    if isinstance(result, AppliedStream):
        # What the function makes of them is its own affair.
        named = _NAMES.intersection(columns)
        return WindowBounds(None, others=named) if named else None
    if isinstance(result, TopStream | DeduplicatedStream):
        return windows_of(result.keyed.source)
    if isinstance(result, JoinedStream | VersionedStream):
        left, right = windows_of(result.inputs[0]), windows_of(result.inputs[1])
        found = of_join(right, left) if result.how == "right" else of_join(left, right)
        if found is None:
            return None
        found = found.among(columns)
        # Either side may be missing.
        return found.unknown() if result.how == "full" else found
    return None


def timed(stream: Stream) -> Stream:
    """The stream with the watermark of results whose column steps have given another name."""
    marks = [_marks(branch) for branch in stream.branches]
    # Branches may call it differently: it is the time of all under a name that all share.
    shared = [key for key in marks[0] if all(key in found for found in marks)]
    if not shared:
        return stream
    pairs = zip(stream.branches, marks, strict=True)
    return Stream(tuple(replace(branch, watermark=found[shared[0]]) for branch, found in pairs))


def _marks(branch: Branch) -> dict[tuple[str, bool], WatermarkSpec]:
    """The watermarks that a branch can have: one for each name of its column."""
    if branch.watermark is not None:
        return {(branch.watermark.column, branch.watermark.is_end): branch.watermark}
    origin = branch.origin
    if not isinstance(origin, Output) or origin.name:
        return {}
    results = result_of(origin).rows
    mark = results.watermark
    if mark is None:
        return {}
    from holdfast.spark.jvm.lineage import follow

    followed = follow(results.df, branch.steps)
    if "Union" in followed.others:
        return {}  # Spark's plan follows the first of the frames alone.
    names = followed.names.get(mark.column, ())
    return {(name, mark.is_end): replace(mark, column=name) for name in names}
