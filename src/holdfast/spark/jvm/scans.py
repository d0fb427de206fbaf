"""Plans under a batch: the scans of a query's sources, as Spark's stream itself made them.

What Spark hands over as a batch is an RDD of rows that have been written out. The plan under it is
that of scans, filters, projections and unions; others are not known here. Scans stay the objects that
they are: by what they count Spark's query knows its progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.jvm.frames import without_rows
from holdfast.spark.jvm.gateway import java_class, jvm_of, scala_object, sequence
from holdfast.spark.jvm.prepared import frame_of_plan
from holdfast.spark.jvm.probing import Capability, has
from holdfast.spark.jvm.streams import last_plan
from holdfast.spark.jvm.trees import analyzed, each, kind

__all__ = ["SCANS", "Part", "ScanColumns", "parts_of_batch"]

# Spark puts these in again where they are needed.
_ADDED = {"WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec"}
_STEPS = {"FilterExec", "ProjectExec", "UnionExec"}
_EMPTY = "LocalTableScanExec"
_LEAVES = {_EMPTY, "FileSourceScanExec", "MicroBatchScanExec", "RDDScanExec"}
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_PROJECT = "org.apache.spark.sql.execution.ProjectExec"
SCANS = Capability(
    "rows straight from Spark's scan",
    {
        "org.apache.spark.sql.execution.streaming.runtime.StreamExecution": ["lastExecution/0"],
        "org.apache.spark.sql.execution.QueryExecution": ["executedPlan/0"],
        _PROJECT: ["new/2", "child/0", "projectList/0", "withNewChildren/1"],
        "org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec": ["output/0"],
        "org.apache.spark.sql.execution.FileSourceScanExec": ["output/0"],
        "org.apache.spark.sql.execution.LocalTableScanExec": ["rows/0"],
        "org.apache.spark.sql.execution.adaptive.LogicalQueryStage": ["new/2"],
        f"{_EXPRESSIONS}.Alias": ["new/6"],
        f"{_EXPRESSIONS}.GetStructField": ["new/3"],
        f"{_EXPRESSIONS}.CreateNamedStruct": ["valExprs/0"],
    },
    slower="every row of a batch is written once more",
)


class Part(NamedTuple):
    """Where the rows of a source come from."""

    plan: Any
    values: list[Any]
    """The expressions that its columns are, on the rows of the plan."""


class ScanColumns:
    """The columns that are read of a source: they have the same ids in all epochs."""

    def __init__(self, session: SparkSession, frame: DataFrame) -> None:
        self._jvm = jvm_of(session)
        self._leaf = analyzed(without_rows(frame))
        self._columns = [(c.name(), c.exprId()) for c in each(self._leaf.output())]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._columns)

    def scan(self, part: Part) -> Any:
        """A physical plan of a part's rows with these columns."""
        pairs = zip(part.values, self._columns, strict=True)
        columns = sequence(self._jvm, [self._alias(value, *column) for value, column in pairs])
        return java_class(self._jvm, _PROJECT)(columns, part.plan)

    def frame(self, session: SparkSession, scan: Any) -> DataFrame:
        """The rows of such a plan."""
        return frame_of_plan(session, self._leaf, scan)

    def _alias(self, value: Any, name: str, id_: Any) -> Any:
        nil = scala_object(self._jvm, "scala.collection.immutable.Nil")
        none = scala_object(self._jvm, "scala.None")
        return java_class(self._jvm, f"{_EXPRESSIONS}.Alias")(value, name, id_, nil, none, nil)


def parts_of_batch(session: SparkSession, columns: Sequence[ScanColumns]) -> list[Part] | None:
    """Of each source the plan under the batch that this thread was called with.

    None if that has steps that aren't known.
    """
    made = last_plan(session) if has(SCANS) else None
    plan = None if made is None else _stripped(jvm_of(session), made)
    if plan is None or len(columns) > 1:
        return None if plan is None else _of_union(jvm_of(session), plan, columns)
    return [Part(plan, list(each(plan.output())))]


def _stripped(jvm: Any, plan: Any) -> Any | None:
    """The plan as it was before Spark made it ready to run; None if it has unknown steps."""
    name = kind(plan)
    if name in _LEAVES:
        return plan
    if name in _ADDED:
        return _stripped(jvm, plan.children().head())
    if name not in _STEPS:
        return None
    children = [_stripped(jvm, child) for child in each(plan.children())]
    return None if None in children else plan.withNewChildren(sequence(jvm, children))


def _of_union(jvm: Any, plan: Any, columns: Sequence[ScanColumns]) -> list[Part] | None:
    """The parts of what :func:`~holdfast.spark.flow.slices.as_one` made of several sources."""
    parts: list[Part] = []
    if kind(plan) != "UnionExec":
        return None
    for number, part in enumerate(each(plan.children())):
        if number == len(columns):
            break  # the ticks
        if kind(part) == _EMPTY and part.rows().isEmpty():
            parts.append(_nothing(jvm, number, part, len(columns[number])))
            continue
        if kind(part) != "ProjectExec":
            return None
        values = [column.child() for column in each(part.projectList())]
        rows = values[1 + number]
        if values[0].toString() != str(number) or kind(rows) != "CreateNamedStruct":
            return None
        parts.append(Part(part.child(), list(each(rows.valExprs()))))
    return parts if len(parts) == len(columns) else None


def _nothing(jvm: Any, number: int, part: Any, count: int) -> Part:
    """A source without new rows, for which Spark has made the columns of the union at once."""
    rows, none = part.output().apply(1 + number), scala_object(jvm, "scala.None")
    field = java_class(jvm, f"{_EXPRESSIONS}.GetStructField")
    return Part(part, [field(rows, i, none) for i in range(count)])
