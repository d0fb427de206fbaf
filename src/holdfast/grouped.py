"""PySpark's own words for stateful processing: ``groupBy(…).transformWithState(…)``.

Names, arguments and defaults are those of ``pyspark.sql.GroupedData``, so that a job is moved over by
putting ``hf.stream`` around its DataFrame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.spark.says_how import GROUPED, SaysHow
from holdfast.stream import ResultStream, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from holdfast.spark.plans.base import OperatorPlan
    from holdfast.spark.stateful.api import TransformWithState

__all__ = ["GroupedStream", "TransformedStream"]


@dataclass(frozen=True, eq=False)
class GroupedStream(SaysHow):
    """Rows grouped by columns, for a ``StatefulProcessor``: what ``groupBy`` returns.

    >>> import holdfast as hf
    >>> def moved(readings: hf.Stream, processor: object) -> hf.TransformedStream:
    ...     grouped: hf.GroupedStream = readings.groupBy("sensor")
    ...     return grouped.transformWithState(processor, "sensor string", "Update", "None")
    """

    _how = GROUPED
    source: Stream
    keys: tuple[str | Column, ...]

    def transformWithState(  # noqa: N802 - PySpark's own names, as below
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

        >>> import holdfast as hf
        >>> from pyspark.sql import Row
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Count(StatefulProcessor):
        ...     def init(self, handle):
        ...         self.n = handle.getValueState("n", "n long")
        ...
        ...     def handleInputRows(self, key, rows, timerValues):
        ...         n = sum(1 for _ in rows) + (self.n.get()[0] if self.n.exists() else 0)
        ...         self.n.update((n,))
        ...         yield Row(value=key[0], n=n)
        ...
        ...     def close(self):
        ...         pass
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> counts = ticks.groupBy("value").transformWithState(
        ...     Count(), "value long, n long", outputMode="Update", timeMode="None"
        ... )
        >>> counts.rows.df.columns
        ['value', 'n']
        """
        from holdfast.spark.stateful.api import TransformWithState

        return self._transformed(
            TransformWithState(
                statefulProcessor,
                outputStructType,
                outputMode,
                timeMode,
                initialState,
                eventTimeColumnName,
                pandas=False,
            )
        )

    def transformWithStateInPandas(  # noqa: N802
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803
        outputStructType: StructType | str,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeMode: str,  # noqa: N803
        initialState: GroupedData | None = None,  # noqa: N803
        eventTimeColumnName: str = "",  # noqa: N803
    ) -> Any:
        """Run an unchanged ``StatefulProcessor`` that takes pandas frames.

        >>> import holdfast as hf
        >>> import pandas as pd
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Largest(StatefulProcessor):
        ...     def init(self, handle):
        ...         pass
        ...
        ...     def handleInputRows(self, key, frames, timerValues):
        ...         yield pd.DataFrame({"n": [max(frame["value"].max() for frame in frames)]})
        ...
        ...     def close(self):
        ...         pass
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> largest = ticks.groupBy("value").transformWithStateInPandas(
        ...     Largest(), "n long", outputMode="Append", timeMode="None"
        ... )
        """
        from holdfast.spark.stateful.api import TransformWithState

        return self._transformed(
            TransformWithState(
                statefulProcessor,
                outputStructType,
                outputMode,
                timeMode,
                initialState,
                eventTimeColumnName,
                pandas=True,
            )
        )

    def _transformed(self, call: TransformWithState) -> TransformedStream | DataFrame:
        from holdfast.spark.stateful.batch import transform_batch

        if not self.source.df.isStreaming:
            return transform_batch(self.source.df, self.keys, call)
        transformed = TransformedStream(self, call)
        # Planned here once so that what is wrong is reported where it was written.
        transformed.plan()
        return transformed


@dataclass(frozen=True, eq=False)
class TransformedStream(ResultStream):
    """What a ``StatefulProcessor`` puts out, epoch by epoch: what ``transformWithState`` returns.

    >>> import holdfast as hf
    >>> def late(transformed: hf.TransformedStream) -> hf.Pipeline:
    ...     return transformed.write_to(hf.sinks.parquet("out"), late=hf.sinks.parquet("late"))
    """

    kind: ClassVar[str] = "process"
    grouped: GroupedStream
    call: TransformWithState
    name: str | None = None
    priority: int = 0

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.grouped.source,)

    @property
    def result_time(self) -> str | None:
        """``eventTimeColumnName``."""
        return self.call.event_time_column or None

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.process import event_times
        from holdfast.spark.stateful.api import plan_stateful

        source = self.grouped.source
        time = event_times(source, None).get("main")
        return plan_stateful(source.df, self.grouped.keys, self.call, time, id=id or self.label)
