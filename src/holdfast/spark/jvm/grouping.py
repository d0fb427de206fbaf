"""Group the rows of each map partition, or keep the first of each group, without a shuffle.

Spark plans a grouping as a partial aggregate, an exchange and a final aggregate; the exchange is
there because the final aggregate *requires* rows of a key to be in one partition. Here they need not
be: whoever reads the groups merges them by key again. So the requirement is taken out of the plan
before Spark prepares it for execution. Both aggregates then run back to back (Spark 4.3 makes them
one), in the same generated code as the steps before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import StructType
from pyspark.sql.window import WindowSpec

from holdfast.spark.jvm.frames import frame_of, java_schema, schema_of
from holdfast.spark.jvm.gateway import jvm_of, scala_object
from holdfast.spark.jvm.prepared import activate, prepared
from holdfast.spark.jvm.probing import Capability, OtherPlanError
from holdfast.spark.jvm.trees import analyzed, each, nodes, planned
from holdfast.types import quoted

__all__ = [
    "FIRST_ROWS",
    "GROUPING",
    "Grouped",
    "Preaggregated",
    "first_of_partitions",
    "group_partitions",
    "preaggregated",
]

_LIMIT = "WindowGroupLimit"
_SORT = "Sort"
_RANK = "_holdfast_rank"
_REQUIREMENT = "requiredChildDistributionExpressions"
_AGGREGATES = "org.apache.spark.sql.execution.aggregate"
_NEEDED = ["productElement/1", "productElementName/1", f"{_REQUIREMENT}/0"]
GROUPING = Capability(
    "grouping on the map side",
    {
        f"{_AGGREGATES}.HashAggregateExec": _NEEDED,
        f"{_AGGREGATES}.ObjectHashAggregateExec": _NEEDED,
        f"{_AGGREGATES}.SortAggregateExec": _NEEDED,
    },
    slower="all rows are sent, none grouped before",
)
FIRST_ROWS = Capability(
    "the first rows of each map partition",
    {
        "org.apache.spark.sql.execution.window.WindowGroupLimitExec": [
            "child/0",
            "output/0",
            "withNewChildInternal/1",
        ],
        "org.apache.spark.sql.execution.exchange.EnsureRequirements": ["apply/1", "ruleName/0"],
        "org.apache.spark.sql.execution.SortExec": ["withNewChildInternal/1"],
    },
    slower="all rows are sent to where the first are chosen",
)


class Grouped(NamedTuple):
    """Rows grouped within each partition: a physical plan that isn't ready to run yet."""

    plan: Any
    schema: Any
    analyzed: Any
    """The logical plan that it was made of."""
    without: tuple[str, ...] = ()
    """Columns that only group and sort."""
    unshuffled_steps: int = 0
    """How many of the topmost steps have rows in the order they need, though Spark can't see that."""


class Preaggregated(NamedTuple):
    """Groups of each partition, and how many rows they were made of."""

    frame: DataFrame
    source_rows: Callable[[], int]
    """The number of rows that were grouped; known once the frame has been computed."""


def group_partitions(
    batch: DataFrame, keys: Sequence[Column], aggregates: Sequence[Column], schema: StructType
) -> Grouped:
    """``batch.groupBy(*keys).agg(*aggregates)``, of the given schema, within each partition.

    The result's plan is fixed here: it must be used with the session's settings of this moment, in
    which adaptive execution is off (otherwise exchanges of the user's own would run at once).
    """
    groups = batch.groupBy(*keys).agg(*aggregates)
    session = batch.sparkSession
    activate(session)
    none = scala_object(jvm_of(session), "scala.None")
    plan = _without_requirement(planned(groups), none)
    # Spark would promise for some columns that they hold no nulls; lifted ones promise nothing.
    return Grouped(plan, java_schema(session, schema), analyzed(groups))


def first_of_partitions(
    rows: DataFrame, window: WindowSpec, n: int, *, by: str | None = None
) -> Grouped:
    """The first n rows of each group of a window, in its order, within each partition.

    That is the lower half of what Spark plans for rows whose ``rank()`` is at most n: rows that tie with
    the n-th are among them.

    ``by`` is a number that sorts rows as the window would: rows of a group stand in the window's order.
    Spark sorts by a single number several times faster than by the window's columns. Groups may be
    torn apart by it, and then have more first rows.
    """
    if by is not None:
        rows = rows.sortWithinPartitions(quoted(by))
    ranked = rows.withColumn(_RANK, F.rank().over(window)).filter(F.col(_RANK) <= n)
    whole, schema = planned(ranked), schema_of(rows)
    limits = [node for node in nodes(whole) if node.nodeName() == _LIMIT]
    is_sorted = by is None or (limits and limits[-1].children().head().nodeName() == _SORT)
    if not limits or not is_sorted or limits[-1].output().size() != schema.size():
        raise OtherPlanError(f"Spark's plan for the first {n} rows of a group has another form")
    return Grouped(limits[-1], schema, analyzed(ranked), unshuffled_steps=0 if by is None else 2)


def preaggregated(session: SparkSession, grouped: Grouped) -> Preaggregated:
    """The groups as rows."""
    plan = prepared(session, grouped.plan, unshuffled_steps=grouped.unshuffled_steps)
    frame = frame_of(session, plan.execute(), grouped.schema).drop(*grouped.without)
    # Asked more than once, and each time some calls to the JVM.
    return Preaggregated(frame, cache(lambda: _rows_into(plan)))


def _without_requirement(plan: Any, none: Any) -> Any:
    """The final aggregate, on top of the plan, made to take rows wherever they are."""
    # A batch that Spark knows to be empty has a plan without aggregates.
    if not plan.nodeName().endswith("Aggregate"):
        return plan
    if plan.productElementName(0) != _REQUIREMENT:
        raise OtherPlanError(f"Spark's {plan.nodeName()} doesn't begin with {_REQUIREMENT}")
    rest = [plan.productElement(i) for i in range(1, plan.productArity())]
    return plan.copy(none, *rest)


def _rows_into(plan: Any) -> int:
    """The rows that the topmost step with a counter, below what groups them, has put out."""
    counter = plan.metrics().get("numOutputRows")
    groups = plan.nodeName().endswith("Aggregate") or plan.nodeName() == _LIMIT
    if not groups and counter.isDefined():
        return int(counter.get().value())
    return sum(_rows_into(child) for child in each(plan.children()))
