"""Spark's physical plans, made ready and run as they are."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.jvm.gateway import java_class, java_session, jvm_of, scala_object
from holdfast.spark.jvm.probing import Capability
from holdfast.spark.jvm.trees import each, planned

__all__ = ["PREPARED", "activate", "frame_of_plan", "prepared", "rdd_of"]

PREPARED = Capability(
    "physical plans made ready and run as they are",
    {
        "org.apache.spark.sql.execution.QueryExecution$": [
            "preparations/3",
            "prepareForExecution/2",
        ],
        "org.apache.spark.sql.classic.SparkSession": ["setActiveSession/1"],
        "org.apache.spark.sql.execution.SparkPlan": ["execute/0", "metrics/0"],
        "org.apache.spark.rdd.RDD": ["getNumPartitions/0", "dependencies/0", "toJavaRDD/0"],
    },
)

_SORTING = "org.apache.spark.sql.execution.exchange.EnsureRequirements"


def activate(session: SparkSession) -> None:
    """Have the steps that this thread makes belong to a session.

    A step belongs to the session of the thread that makes it, and a thread of our own has none.
    """
    spark = java_class(jvm_of(session), "org.apache.spark.sql.classic.SparkSession")
    spark.setActiveSession(java_session(session))


def prepared(session: SparkSession, plan: Any, *, unshuffled_steps: int = 0) -> Any:
    """A physical plan made ready to run.

    So many of its topmost steps, ``unshuffled_steps``, get their rows as they come, not shuffled or sorted as they
    ask for.

    Spark itself would prepare a copy. What the steps of a copy count isn't seen by others who hold
    the same steps, as Spark's stream does those that scan its sources.
    """
    jvm, own = jvm_of(session), java_session(session)
    activate(session)
    preparing = scala_object(jvm, "org.apache.spark.sql.execution.QueryExecution")
    none = scala_object(jvm, "scala.None")
    rules = preparing.preparations(own, none, False)
    if not unshuffled_steps:
        return preparing.prepareForExecution(rules, plan)
    for rule in each(rules):
        below = unshuffled_steps if rule.ruleName() == _SORTING else 0
        plan = _applied(rule, plan, below)
    return plan


def _applied(rule: Any, plan: Any, below: int) -> Any:
    """A plan with a rule applied to what is below so many of its steps."""
    if not below:
        return rule.apply(plan)
    return plan.withNewChildInternal(_applied(rule, plan.children().head(), below - 1))


def rdd_of(frame: DataFrame) -> Any:
    """The rows of a frame as an RDD of the JVM's."""
    return prepared(frame.sparkSession, planned(frame)).execute()


def frame_of_plan(session: SparkSession, logical: Any, physical: Any) -> DataFrame:
    """A frame that is computed by a physical plan whose columns are those of a logical one."""
    jvm, own = jvm_of(session), java_session(session)
    stage = java_class(jvm, "org.apache.spark.sql.execution.adaptive.LogicalQueryStage")
    dataset = java_class(jvm, "org.apache.spark.sql.classic.Dataset")
    made = dataset.ofRows(own, stage(logical, physical))
    return DataFrame(made, session)
