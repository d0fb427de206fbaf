"""How Spark's own parser reads a text of SQL, and what it makes of functions in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.spark.jvm.quiet import told_by_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["aggregates_rows", "is_builtin", "reading"]

# What differs from one reading to the next: numbers of columns and of
# the results of aggregates, and where bytes lie in memory.
_OF_THE_MOMENT = re.compile(r'"(expr|result)Id":\{[^}]*\}|#\d+|\[B@[0-9a-f]+')


def reading(session: SparkSession, statement: str) -> str:
    """What Spark's parser makes of a statement: equal texts mean that it reads them alike.

    Raises what Spark raises if it can't read it.
    """
    with told_by_us():
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    # Neither has all: the tree leaves out the end of a long list, the JSON some kinds of arguments.
    return _OF_THE_MOMENT.sub("", f"{plan.toString()}\n{plan.toJSON()}")


def is_builtin(session: SparkSession, function: str) -> bool:
    """Whether a function is one of Spark's own."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    catalyst = jvm.org.apache.spark.sql.catalyst
    known = catalyst.analysis.FunctionRegistry.builtin()
    return bool(known.functionExists(catalyst.FunctionIdentifier(function)))


def aggregates_rows(df: DataFrame) -> bool:
    """Whether the last that is done to rows is to aggregate them."""
    return str(df._jdf.queryExecution().analyzed().nodeName()) == "Aggregate"
