"""PySpark's own words for stateful processing: ``groupBy(…).transformWithState(…)``.

Names, arguments and defaults are those of ``pyspark.sql.GroupedData``, so that a job is moved over by
putting ``hf.stream`` around its DataFrame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.stream import ResultStream, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from holdfast.checkpoint.time import Watermark
    from holdfast.spark.plan import Plan

__all__ = ["GroupedStream", "TransformedStream"]


@dataclass(frozen=True)
class GroupedStream:
    """Rows grouped by columns."""

    source: Stream
    keys: tuple[str | Column, ...]

    def transformWithState(  # noqa: N802 - PySpark's own name, as the next ones
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803
        outputStructType: StructType | str,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeMode: str,  # noqa: N803
        initialState: GroupedData | None = None,  # noqa: N803
        eventTimeColumnName: str = "",  # noqa: N803
    ) -> Any:
        """Run an unchanged ``StatefulProcessor`` that takes rows.

        On a streaming DataFrame this gives a :class:`TransformedStream`, on a batch DataFrame a
        DataFrame.
        """
        return TransformedStream(
            self.source,
            self.keys,
            statefulProcessor,
            outputStructType,
            outputMode,
            timeMode,
            initialState,
            eventTimeColumnName,
            pandas=False,
        ).result()

    def transformWithStateInPandas(  # noqa: N802
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803
        outputStructType: StructType | str,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeMode: str,  # noqa: N803
        initialState: GroupedData | None = None,  # noqa: N803
        eventTimeColumnName: str = "",  # noqa: N803
    ) -> Any:
        """Run an unchanged ``StatefulProcessor`` that takes pandas frames."""
        return TransformedStream(
            self.source,
            self.keys,
            statefulProcessor,
            outputStructType,
            outputMode,
            timeMode,
            initialState,
            eventTimeColumnName,
            pandas=True,
        ).result()


@dataclass(frozen=True)
class TransformedStream(ResultStream):
    """What a ``StatefulProcessor`` puts out, epoch by epoch."""

    source: Stream
    keys: tuple[str | Column, ...]
    processor: StatefulProcessor
    output: StructType | str
    output_mode: str
    time_mode: str
    initial: GroupedData | None
    event_time_column: str
    pandas: bool

    def result(self) -> TransformedStream | DataFrame:
        """Itself, checked; for a batch DataFrame what comes out of it."""
        from holdfast.spark.stateful.api import run_batch

        if not self.source.df.isStreaming:
            return run_batch(self)
        self.plan()
        return self

    def plan(self) -> Plan:
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.stateful.api import plan_stateful

        return plan_stateful(self)

    @property
    def frame(self) -> DataFrame:
        """The DataFrame that the query streams."""
        return self.source.df

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """How the watermark of the source moves."""
        from holdfast.spark.process import watermarks

        return watermarks(self.source, None)
