"""The rows of each source, straight from Spark's scan of it.

What Spark hands over as a batch is an RDD of rows that have been written out. Whoever reads it has each
row written once more before a step of his own begins. So the plan under the batch is taken instead: an
operator's rows are computed in the same generated code that decodes the source, and if they are grouped
first, no row is ever written.

That is done for plans of scans, filters, projections and unions. Batches of others are read as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.flow.reading import Reading, without_rows
from holdfast.spark.flow.slices import split
from holdfast.spark.jvm.prepared import java_class, scala_object, sequence, staged
from holdfast.spark.jvm.trees import each

__all__ = ["Scans", "SourceRows"]

# Spark puts these in again where they are needed.
_ADDED = {"WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec"}
_STEPS = {"FilterExec", "ProjectExec", "UnionExec"}
_EMPTY = "LocalTableScanExec"
_LEAVES = {_EMPTY, "FileSourceScanExec", "MicroBatchScanExec", "RDDScanExec"}
_ALIAS = "org.apache.spark.sql.catalyst.expressions.Alias"
_PROJECT = "org.apache.spark.sql.execution.ProjectExec"
_QUERY_ID = "sql.streaming.queryId"


class SourceRows:
    """The rows of a source in one epoch."""

    def __init__(self, make: Callable[[], DataFrame], scan: Any | None = None) -> None:
        self._make = make
        self.scan = scan
        """The physical plan that gives them, if it is known; its columns are the same in all epochs."""

    @cached_property
    def frame(self) -> DataFrame:
        """The rows, with all columns of the source."""
        return self._make()


class _Part(NamedTuple):
    """Where the rows of a source come from."""

    plan: Any
    values: list[Any]
    """The expressions that its columns are, on the rows of the plan."""


class Scans:
    """Finds the plans under the batches of one query."""

    def __init__(self, session: SparkSession, reading: Sequence[Reading]) -> None:
        self._session = session
        self._reading = reading

    def rows(self, batch: DataFrame, *, ticks: bool) -> list[SourceRows]:
        """The rows of each source in a batch, which may have ticks beside them."""
        parts = self._parts()
        if parts is not None:
            return [self._scanned(batch, number, part) for number, part in enumerate(parts)]
        frames = split(batch, len(self._reading), ticks=ticks)
        pairs = zip(self._reading, frames, strict=True)
        return [SourceRows(partial(reading.whole, frame)) for reading, frame in pairs]

    def _parts(self) -> list[_Part] | None:
        """Of each source the plan under the batch; None if it has steps that aren't known."""
        plan = self._plan()
        if plan is None or len(self._reading) > 1:
            return None if plan is None else self._of_union(plan)
        return [_Part(plan, list(each(plan.output())))]

    def _plan(self) -> Any | None:
        """The physical plan of the batch that this thread was called with."""
        query_id = self._session.sparkContext.getLocalProperty(_QUERY_ID)
        query = None if query_id is None else self._session.streams.get(query_id)
        if query is None:
            return None
        return self._stripped(query._jsq.streamingQuery().lastExecution().executedPlan())

    def _stripped(self, plan: Any) -> Any | None:
        """The plan as it was before Spark made it ready to run; None if it has unknown steps.

        Scans stay the objects that they are: by what they count Spark's query knows its progress.
        """
        kind = _kind(plan)
        if kind in _LEAVES:
            return plan
        if kind in _ADDED:
            return self._stripped(plan.children().head())
        if kind not in _STEPS:
            return None
        children = [self._stripped(child) for child in each(plan.children())]
        return None if None in children else plan.withNewChildren(sequence(self._jvm, children))

    def _of_union(self, plan: Any) -> list[_Part] | None:
        """The parts of what :func:`~holdfast.spark.flow.slices.as_one` made of several sources."""
        parts: list[_Part] = []
        if _kind(plan) != "UnionExec":
            return None
        for number, part in enumerate(each(plan.children())):
            if number == len(self._reading):
                break  # the ticks
            if _kind(part) == _EMPTY and part.rows().isEmpty():
                parts.append(self._nothing(number, part))
                continue
            if _kind(part) != "ProjectExec":
                return None
            columns = [column.child() for column in each(part.projectList())]
            rows = columns[1 + number]
            if columns[0].toString() != str(number) or _kind(rows) != "CreateNamedStruct":
                return None
            parts.append(_Part(part.child(), list(each(rows.valExprs()))))
        return parts if len(parts) == len(self._reading) else None

    def _nothing(self, number: int, part: Any) -> _Part:
        """A source without new rows, for which Spark has made the columns of the union at once."""
        rows, none = part.output().apply(1 + number), scala_object(self._jvm, "scala.None")
        field = java_class(self._jvm, "org.apache.spark.sql.catalyst.expressions.GetStructField")
        return _Part(part, [field(rows, i, none) for i in range(len(self._columns[number]))])

    @cached_property
    def _leaves(self) -> list[Any]:
        """Per source a logical plan with the columns that are read of it."""
        frames = (without_rows(reading.streamed) for reading in self._reading)
        return [frame._jdf.queryExecution().analyzed() for frame in frames]

    def _scanned(self, batch: DataFrame, number: int, part: _Part) -> SourceRows:
        leaf, reading = self._leaves[number], self._reading[number]
        pairs = zip(part.values, self._columns[number], strict=True)
        columns = sequence(self._jvm, [self._alias(value, *column) for value, column in pairs])
        scan = java_class(self._jvm, _PROJECT)(columns, part.plan)
        return SourceRows(lambda: reading.whole(staged(batch.sparkSession, leaf, scan)), scan)

    @cached_property
    def _columns(self) -> list[list[tuple[str, Any]]]:
        """Per source the names and ids of these columns."""
        return [[(c.name(), c.exprId()) for c in each(leaf.output())] for leaf in self._leaves]

    def _alias(self, value: Any, name: str, id_: Any) -> Any:
        nil = scala_object(self._jvm, "scala.collection.immutable.Nil")
        none = scala_object(self._jvm, "scala.None")
        return java_class(self._jvm, _ALIAS)(value, name, id_, nil, none, nil)

    @property
    def _jvm(self) -> Any:
        return self._session.sparkContext._jvm


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
