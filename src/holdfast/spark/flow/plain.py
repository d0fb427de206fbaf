"""Finds steps that only choose and rename columns: what they do, a task can do itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.types import spark_schema

__all__ = ["plain_columns"]


def plain_columns(
    spark: SparkSession, schema: pa.Schema, steps: Sequence[Callable[[DataFrame], DataFrame]]
) -> tuple[tuple[str, str], ...] | None:
    """For each column behind the steps the one it was before, and its name; None if they do more.

    The steps are taken on an empty DataFrame, and Spark says what they come to.
    """
    jvm: Any = spark._jvm
    declared = spark._jsparkSession.parseDataType(spark_schema(schema).json())
    empty = spark._jsparkSession.createDataFrame(jvm.java.util.ArrayList(), declared)
    frame = DataFrame(empty, spark)
    for step in steps:
        frame = step(frame)
    plan = frame._jdf.queryExecution().analyzed()
    known = _origins(plan)
    if known is None:
        return None
    output = plan.output()
    attributes = [output.apply(i) for i in range(output.size())]
    return tuple((known[a.exprId().id()], a.name()) for a in attributes)


def _origins(plan: Any) -> dict[int, str] | None:
    """Which column of the leaf each column of a plan is, by Spark's ids."""
    name = plan.nodeName()
    if name == "LocalRelation":
        output = plan.output()
        found = [output.apply(i) for i in range(output.size())]
        return {attribute.exprId().id(): attribute.name() for attribute in found}
    if name not in ("Project", "SubqueryAlias"):
        return None
    below = _origins(plan.child())
    if below is None or name == "SubqueryAlias":
        return below
    chosen: dict[int, str] = {}
    expressions = plan.projectList()
    for index in range(expressions.size()):
        made = expressions.apply(index)
        source = made.child() if made.nodeName() == "Alias" else made
        if source.nodeName() != "AttributeReference" or source.exprId().id() not in below:
            return None
        chosen[made.exprId().id()] = below[source.exprId().id()]
    return chosen
