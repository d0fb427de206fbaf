"""Group the rows of each map partition without a shuffle.

Spark plans a grouping as a partial aggregate, an exchange and a final aggregate; the exchange is
there because the final aggregate *requires* rows of a key to be in one partition. Here they need not
be: whoever reads the groups merges them by key again. So the requirement is taken out of the plan
before Spark prepares it for execution. Both aggregates then run back to back (Spark 4.3 makes them
one), in the same generated code as the steps before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from holdfast.errors import InternalError
from holdfast.spark.trees import each

__all__ = ["Preaggregated", "group_partitions"]

_REQUIREMENT = "requiredChildDistributionExpressions"


class Preaggregated(NamedTuple):
    """Groups of each partition, and how many rows they were made of."""

    frame: DataFrame
    source_rows: Callable[[], int]
    """The number of rows that were grouped; known once the frame has been computed."""


def group_partitions(
    batch: DataFrame, keys: Sequence[Column], aggregates: Sequence[Column], schema: StructType
) -> Preaggregated:
    """``batch.groupBy(*keys).agg(*aggregates)``, of the given schema, within each partition.

    The result's plan is fixed here: it must be used with the session's settings of this moment, in
    which adaptive execution is off (otherwise exchanges of the user's own would run at once).
    """
    groups = batch.groupBy(*keys).agg(*aggregates)._jdf
    session = groups.sparkSession()
    jvm: Any = batch.sparkSession._jvm
    none = _scala_object(jvm.scala, "None")
    plan = _without_requirement(groups.queryExecution().sparkPlan(), none)
    preparing = _scala_object(jvm.org.apache.spark.sql.execution, "QueryExecution")
    rules = preparing.preparations(session, none, False)
    plan = preparing.prepareForExecution(rules, plan)
    # Spark would promise for some columns that they hold no nulls; lifted ones promise nothing.
    declared = session.parseDataType(schema.json())
    frame = session.internalCreateDataFrame(plan.execute(), declared, False)
    return Preaggregated(DataFrame(frame, batch.sparkSession), lambda: _rows_into(plan))


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _without_requirement(plan: Any, none: Any) -> Any:
    """The final aggregate, on top of the plan, made to take rows wherever they are."""
    # A batch that Spark knows to be empty has a plan without aggregates.
    if not plan.nodeName().endswith("Aggregate"):
        return plan
    if plan.productElementName(0) != _REQUIREMENT:
        raise InternalError(f"Spark's {plan.nodeName()} doesn't begin with {_REQUIREMENT}")
    rest = [plan.productElement(i) for i in range(1, plan.productArity())]
    return plan.copy(none, *rest)


def _rows_into(plan: Any) -> int:
    """The rows that the topmost step with a counter, below the aggregates, has put out."""
    counter = plan.metrics().get("numOutputRows")
    if not plan.nodeName().endswith("Aggregate") and counter.isDefined():
        return int(counter.get().value())
    return sum(_rows_into(child) for child in each(plan.children()))
