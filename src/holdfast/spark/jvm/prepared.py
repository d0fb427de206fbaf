"""Spark's physical plans, made ready and run as they are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.jvm.trees import each

__all__ = [
    "frame_of",
    "java_class",
    "prepared",
    "rdd_of",
    "scala_object",
    "sequence",
    "staged",
]

_SORTING = "org.apache.spark.sql.execution.exchange.EnsureRequirements"


@lru_cache(maxsize=256)
def java_class(jvm: Any, name: str) -> Any:
    """A class of the JVM's, looked up once: that is a call for every part of its name."""
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@lru_cache(maxsize=256)
def scala_object(jvm: Any, name: str) -> Any:
    """A singleton of Scala's."""
    return getattr(java_class(jvm, f"{name}$"), "MODULE$")


def sequence(jvm: Any, elements: Iterable[Any]) -> Any:
    """A sequence of Scala's."""
    made = java_class(jvm, "java.util.ArrayList")()
    for element in elements:
        made.add(element)
    return java_class(jvm, "org.apache.spark.api.python.PythonUtils").toSeq(made)


def prepared(session: SparkSession, plan: Any, *, settled: int = 0) -> Any:
    """A physical plan made ready to run.

    So many of its topmost steps, ``settled``, get their rows as they come, not shuffled or sorted as they
    ask for.

    Spark itself would prepare a copy. What the steps of a copy count isn't seen by others who hold
    the same steps, as Spark's stream does those that scan its sources.
    """
    jvm: Any = session._jvm
    # Steps that are put in belong to the session of the thread, and one of our own has none.
    java_class(jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(
        session._jsparkSession
    )
    preparing = scala_object(jvm, "org.apache.spark.sql.execution.QueryExecution")
    none = scala_object(jvm, "scala.None")
    rules = preparing.preparations(session._jsparkSession, none, False)
    if not settled:
        return preparing.prepareForExecution(rules, plan)
    for rule in each(rules):
        below = settled if rule.ruleName() == _SORTING else 0
        plan = _applied(rule, plan, below)
    return plan


def _applied(rule: Any, plan: Any, below: int) -> Any:
    """A plan with a rule applied to what is below so many of its steps."""
    if not below:
        return rule.apply(plan)
    return plan.withNewChildInternal(_applied(rule, plan.children().head(), below - 1))


def rdd_of(frame: DataFrame) -> Any:
    """The rows of a frame as an RDD of the JVM's."""
    return prepared(frame.sparkSession, frame._jdf.queryExecution().sparkPlan()).execute()


def frame_of(session: SparkSession, rdd: Any, schema: Any) -> DataFrame:
    """A frame of the rows of an RDD, with a schema of the JVM's."""
    made = session._jsparkSession.internalCreateDataFrame(rdd, schema, False)
    return DataFrame(made, session)


def staged(session: SparkSession, logical: Any, physical: Any) -> DataFrame:
    """A frame that is computed by a physical plan whose columns are those of a logical one."""
    jvm: Any = session._jvm
    stage = java_class(jvm, "org.apache.spark.sql.execution.adaptive.LogicalQueryStage")
    dataset = java_class(jvm, "org.apache.spark.sql.classic.Dataset")
    made = dataset.ofRows(session._jsparkSession, stage(logical, physical))
    return DataFrame(made, session)
