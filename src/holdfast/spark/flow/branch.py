"""Where the rows of a stream come from, and the steps without state that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.spark.said import SaidResult

__all__ = ["Branch", "LoopStart", "Output", "StreamSource", "WatermarkSpec", "watermark_of"]


def watermark_of(df: DataFrame) -> WatermarkSpec | None:
    """The watermark that ``df.withWatermark`` was given: Holdfast keeps it itself."""
    from holdfast.spark.stateful.api import spark_watermark

    found = spark_watermark(df)
    return None if found is None else WatermarkSpec(found[0], found[1], 0, None)


@dataclass(frozen=True)
class WatermarkSpec:
    """When rows happened, and how far they may be out of order."""

    column: str
    delay_ms: int
    lateness_ms: int = 0
    idle_ms: int | None = None
    derived: bool = False
    """Whether the rows are an operator's results: then the pipeline's watermark is theirs too."""
    behind_ms: int = 0
    """How far the results may be behind the pipeline's watermark."""
    is_end: bool = False
    """Whether the column has the end of a window: its rows are of the moment before."""


@dataclass(frozen=True, eq=False)
class StreamSource:
    """A DataFrame that ``hf.stream`` was given."""

    df: DataFrame


@dataclass(frozen=True, eq=False)
class Output:
    """What an operator puts out: its main output (""), or a side output."""

    of: SaidResult
    name: str = ""


@dataclass(frozen=True, eq=False)
class LoopStart(Output):
    """Rows that the epoch before fed back into a loop; ``of`` is where it ends."""


@dataclass(frozen=True, eq=False)
class Branch:
    """Rows from one place, and the steps they take."""

    origin: StreamSource | Output
    df: DataFrame
    """What the rows look like behind the steps. Behind a source it is the stream itself."""
    steps: tuple[Callable[[DataFrame], DataFrame], ...]
    watermark: WatermarkSpec | None = None

    def then(
        self, step: Callable[[DataFrame], DataFrame], renamed: Mapping[str, str] | None = None
    ) -> Branch:
        """The branch with one more step; ``renamed`` are columns that it only calls otherwise."""
        from holdfast.spark.guard import check_stream
        from holdfast.spark.plans.process import check_event_time

        df, mark = step(self.df), self.watermark
        if mark is not None and renamed:
            mark = replace(mark, column=renamed.get(mark.column, mark.column))
        if not hasattr(df, "isStreaming"):
            raise InputError(
                f"a step gave {df!r}, which is no DataFrame",
                hint="let the function of transform(…) return the DataFrame that it makes",
            )
        if df.isStreaming:
            check_stream(df)
        if mark is not None and mark.derived and mark.column not in df.columns:
            mark = None
        elif mark is not None:
            check_event_time(df, mark.column)
        elif isinstance(self.origin, StreamSource):
            mark = watermark_of(df)
        return Branch(self.origin, df, (*self.steps, step), mark)
