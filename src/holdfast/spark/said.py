"""What users have said, as this room reads it.

The user's vocabulary is above this room and imports it. So nothing here knows its classes, only what
they remember: :class:`~holdfast.stream.Stream` is a :class:`SaidStream`, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.choices import JoinKind, OutputMode, TopOutputMode, VersionedKind
    from holdfast.operators.window.spec import Emit, WindowSpec
    from holdfast.sinks.base import Sink
    from holdfast.spark.flow.branch import Branch, WatermarkSpec
    from holdfast.spark.plans.base import OperatorPlan

__all__ = [
    "SaidIntervalJoin",
    "SaidKeyed",
    "SaidPipeline",
    "SaidResult",
    "SaidStream",
    "SaidTop",
    "SaidVersionedJoin",
    "SaidWindows",
    "SaidWritten",
]


class SaidStream(Protocol):
    """Rows on their way."""

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Where they come from, and the steps that they take."""

    @property
    def df(self) -> DataFrame:
        """What they look like."""

    @property
    def watermark(self) -> WatermarkSpec | None:
        """When they happened."""

    @property
    def lateness_ms(self) -> int:
        """How much later than the watermark they may come."""

    @property
    def derived(self) -> bool:
        """Whether some are an operator's results."""

    @property
    def behind_ms(self) -> int:
        """How far they may be behind the pipeline's watermark."""


class SaidResult(Protocol):
    """What an operator puts out."""

    @property
    def kind(self) -> str:
        """What operators of its kind are called if they get no name."""

    @property
    def name(self) -> str | None:
        """The operator's own."""

    @property
    def label(self) -> str:
        """What it is called."""

    @property
    def priority(self) -> int:
        """The higher, the sooner its state is restored."""

    @property
    def inputs(self) -> tuple[SaidStream, ...]:
        """The streams that it reads, in the order of its plan's ports."""

    @property
    def timed(self) -> bool:
        """Whether it looks at the event times of its input."""

    @property
    def has_watermark(self) -> bool:
        """Whether it, or an operator above it, follows the event time of a source."""

    @property
    def behind_ms(self) -> int:
        """How far results may be behind the pipeline's watermark."""

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002 - the operator's word for it
        """How rows reach it; made anew."""

    def checkpoint_complete(self, epoch: int) -> None:
        """A checkpoint that holds the state after ``epoch`` is in the log."""


class SaidWritten(Protocol):
    """A stream and the sinks it goes to."""

    @property
    def stream(self) -> SaidStream:
        """The stream."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Its sinks."""

    @property
    def side_outputs(self) -> Mapping[str, Sink]:
        """Those of the side outputs of the operator whose results it has."""


class SaidPipeline(Protocol):
    """A whole pipeline."""

    @property
    def outputs(self) -> tuple[SaidWritten, ...]:
        """What it writes."""


class SaidKeyed(Protocol):
    """Rows grouped by key."""

    @property
    def source(self) -> SaidStream:
        """The rows."""

    @property
    def keys(self) -> tuple[str | Column, ...]:
        """Their keys."""


class SaidWindows(SaidKeyed, Protocol):
    """Rows in windows, of each key if there are any."""

    @property
    def window(self) -> WindowSpec:
        """Which windows."""

    @property
    def emit(self) -> Emit:
        """When results come before a window closes."""

    @property
    def output_mode(self) -> OutputMode:
        """What results say of those before."""


class SaidTop(Protocol):
    """The first rows of each key."""

    @property
    def keyed(self) -> SaidKeyed:
        """The rows."""

    @property
    def n(self) -> int:
        """How many."""

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        """The columns that they are ordered by, and whether downwards."""

    @property
    def output_mode(self) -> TopOutputMode:
        """What results say of those before."""

    @property
    def until(self) -> str | None:
        """The column that says when a row counts no more."""

    @property
    def rank(self) -> str | None:
        """The column of the results with a row's place."""


class _SaidJoin(Protocol):
    @property
    def left(self) -> SaidStream:
        """The left side."""

    @property
    def right(self) -> SaidStream:
        """The right side."""

    @property
    def on(self) -> tuple[str, ...]:
        """The columns that are equal."""


class SaidIntervalJoin(_SaidJoin, Protocol):
    """Pairs of rows of two streams."""

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """How long before a left row a right one may have happened, and how long after."""

    @property
    def how(self) -> JoinKind:
        """What becomes of rows without a match."""


class SaidVersionedJoin(_SaidJoin, Protocol):
    """Rows, each with the version of a table that was valid at its time."""

    @property
    def how(self) -> VersionedKind:
        """What becomes of rows without a version."""

    @property
    def deleted(self) -> str | None:
        """The column that says that a version ends the one before."""
