"""Finds steps that only choose and rename columns: what they do, a task can do itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.jvm.frames import empty
from holdfast.spark.jvm.probing import Capability, has
from holdfast.spark.jvm.trees import analyzed, each
from holdfast.spark.types import spark_schema

__all__ = ["RENAMING", "renamed_columns"]

RENAMING = Capability(
    "choosing and renaming columns in tasks",
    {
        "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias": ["child/0"],
        "org.apache.spark.sql.catalyst.plans.logical.LocalRelation": ["output/0"],
        "org.apache.spark.sql.catalyst.expressions.Alias": ["child/0", "exprId/0"],
    },
    slower="results that are only renamed go through a stage of their own",
)


def renamed_columns(
    spark: SparkSession, schema: pa.Schema, steps: Sequence[Callable[[DataFrame], DataFrame]]
) -> tuple[tuple[str, str], ...] | None:
    """For each column behind the steps the one it was before, and its name; None if they do more.

    The steps are taken on an empty DataFrame, and Spark says what they come to.
    """
    if not has(RENAMING):
        return None
    frame = empty(spark, spark_schema(schema))
    for step in steps:
        frame = step(frame)
    plan = analyzed(frame)
    known = _origins(plan)
    if known is None:
        return None
    return tuple((known[a.exprId().id()], a.name()) for a in each(plan.output()))


def _origins(plan: Any) -> dict[int, str] | None:
    """Which column of the leaf each column of a plan is, by Spark's ids."""
    name = plan.nodeName()
    if name == "LocalRelation":
        return {attribute.exprId().id(): attribute.name() for attribute in each(plan.output())}
    if name not in ("Project", "SubqueryAlias"):
        return None
    below = _origins(plan.child())
    if below is None or name == "SubqueryAlias":
        return below
    chosen: dict[int, str] = {}
    for made in each(plan.projectList()):
        source = made.child() if made.nodeName() == "Alias" else made
        if source.nodeName() != "AttributeReference" or source.exprId().id() not in below:
            return None
        chosen[made.exprId().id()] = below[source.exprId().id()]
    return chosen
