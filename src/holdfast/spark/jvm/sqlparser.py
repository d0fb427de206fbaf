"""How Spark's own parser reads a text of SQL, and what it makes of functions in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.spark.jvm.gateway import java_class, java_session, jvm_of
from holdfast.spark.jvm.probing import Capability, require
from holdfast.spark.jvm.quiet import told_by_us
from holdfast.spark.jvm.trees import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SQL", "aggregates_rows", "is_builtin", "reading"]

_CATALYST = "org.apache.spark.sql.catalyst"
SQL = Capability(
    "Spark's own reading of SQL",
    {
        "org.apache.spark.sql.classic.SparkSession": ["sessionState/0"],
        "org.apache.spark.sql.internal.SessionState": ["sqlParser/0"],
        f"{_CATALYST}.parser.ParserInterface": ["parsePlan/1"],
        f"{_CATALYST}.plans.logical.LogicalPlan": ["toJSON/0"],
        f"{_CATALYST}.analysis.FunctionRegistry": ["builtin/0"],
        f"{_CATALYST}.FunctionIdentifier": ["new/1"],
    },
)

# What differs from one reading to the next: numbers of columns and of
# the results of aggregates, and where bytes lie in memory.
_OF_THE_MOMENT = re.compile(r'"(expr|result)Id":\{[^}]*\}|#\d+|\[B@[0-9a-f]+')


def reading(session: SparkSession, statement: str) -> str:
    """What Spark's parser makes of a statement: equal texts mean that it reads them alike.

    Raises what Spark raises if it can't read it.
    """
    require(SQL, "hf.sql", session.sparkContext)
    with told_by_us():
        plan = java_session(session).sessionState().sqlParser().parsePlan(statement)
    # Neither has all: the tree leaves out the end of a long list, the JSON some kinds of arguments.
    return _OF_THE_MOMENT.sub("", f"{plan.toString()}\n{plan.toJSON()}")


def is_builtin(session: SparkSession, function: str) -> bool:
    """Whether a function is one of Spark's own."""
    jvm = jvm_of(session)
    known = java_class(jvm, f"{_CATALYST}.analysis.FunctionRegistry").builtin()
    name = java_class(jvm, f"{_CATALYST}.FunctionIdentifier")(function)
    return bool(known.functionExists(name))


def aggregates_rows(df: DataFrame) -> bool:
    """Whether the last that is done to rows is to aggregate them."""
    return str(analyzed(df).nodeName()) == "Aggregate"
