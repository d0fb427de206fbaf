"""Spark's plans, which are trees of the JVM: taken, walked, and told of in Python's terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from holdfast.spark.jvm.probing import Capability

__all__ = [
    "PRUNING",
    "TREES",
    "StreamingStep",
    "analyzed",
    "comes_of",
    "computes_row_by_row",
    "count_sources",
    "each",
    "execution_of",
    "kind",
    "nodes",
    "optimized",
    "plan_words",
    "planned",
    "streaming_steps",
]

TREES = Capability(
    "plans as trees",
    {
        "org.apache.spark.sql.classic.Dataset": ["queryExecution/0"],
        "org.apache.spark.sql.execution.QueryExecution": [
            "analyzed/0",
            "optimizedPlan/0",
            "sparkPlan/0",
        ],
        "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan": [
            *("children/0", "expressions/0", "isStreaming/0", "nodeName/0", "output/0"),
            *("references/0", "toString/0"),
        ],
        "org.apache.spark.sql.catalyst.expressions.NamedExpression": ["exprId/0", "name/0"],
        "org.apache.spark.sql.catalyst.expressions.Expression": ["deterministic/0"],
        "org.apache.spark.sql.catalyst.plans.logical.Project": ["projectList/0"],
        "org.apache.spark.sql.catalyst.streaming.StreamingRelationV2": ["extraOptions/0"],
        "org.apache.spark.sql.execution.streaming.runtime.StreamingRelation": ["dataSource/0"],
    },
)

# What Spark numbers anew in every session: expressions, objects, nodes.
_NUMBERS = re.compile(r"#\d+L?|@[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|plan_id=\d+")


PRUNING = Capability(
    "reading only the columns that are looked at",
    {
        "org.apache.spark.sql.execution.QueryExecution": ["optimizedPlan/0"],
        "org.apache.spark.sql.catalyst.expressions.AttributeSet": ["toSeq/0"],
        "org.apache.spark.sql.catalyst.expressions.ExprId": ["id/0"],
    },
    slower="all columns of a source are read",
)


@dataclass(frozen=True, slots=True)
class StreamingStep:
    """A step of a frame that streams."""

    name: str
    """Spark's word for it."""
    is_source: bool
    of_two_streams: bool
    """Whether it joins two of them."""
    options: tuple[tuple[str, str], ...]
    """What a source was given."""


def execution_of(frame: DataFrame) -> Any:
    """All that Spark makes of a frame."""
    return frame._jdf.queryExecution()


def analyzed(frame: DataFrame) -> Any:
    """The logical plan of a frame, its names resolved."""
    return execution_of(frame).analyzed()


def optimized(frame: DataFrame) -> Any:
    """The logical plan as Spark will run it."""
    return execution_of(frame).optimizedPlan()


def planned(frame: DataFrame) -> Any:
    """The physical plan of a frame, before Spark makes it ready to run."""
    return execution_of(frame).sparkPlan()


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))


def nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, from its top."""
    yield plan
    for child in each(plan.children()):
        yield from nodes(child)


def kind(node: Any) -> str:
    """The class of a node or an expression."""
    return str(node.getClass().getSimpleName())


def count_sources(frame: DataFrame) -> int:
    """How many sources Spark reads for a stream."""
    every = nodes(analyzed(frame))
    return sum(node.children().isEmpty() and node.isStreaming() for node in every)


def streaming_steps(frame: DataFrame) -> Iterator[StreamingStep]:
    """The steps of a frame through which a stream goes, from the last."""
    for node in nodes(analyzed(frame)):
        if node.isStreaming():
            name = str(node.nodeName())
            of_two = name == "Join" and node.left().isStreaming() and node.right().isStreaming()
            is_source = bool(node.children().isEmpty())
            options = tuple(_source_options(node)) if is_source else ()
            yield StreamingStep(name, is_source, bool(of_two), options)


def _source_options(leaf: Any) -> Iterator[tuple[str, str]]:
    """The options that a streaming source was given; none if the leaf is another."""
    name = leaf.nodeName()
    if name == "StreamingRelation":
        pairs = leaf.dataSource().options().iterator()
        while pairs.hasNext():
            pair = pairs.next()
            yield pair._1(), pair._2()
    elif name == "StreamingRelationV2":
        for entry in leaf.extraOptions().asCaseSensitiveMap().entrySet():
            yield entry.getKey(), entry.getValue()


def plan_words(frame: DataFrame) -> str:
    """Sources and steps of a frame in words: the same in every session, as far as Spark says so."""
    plan = analyzed(frame)
    leaves = (node for node in nodes(plan) if node.children().isEmpty())
    options = [sorted(_source_options(leaf)) for leaf in leaves]
    return _NUMBERS.sub("", f"{plan.toString()}{options}")


def computes_row_by_row(frame: DataFrame) -> tuple[bool, bool]:
    """Whether the one column of a frame is computed from one row alone, and always alike."""
    plan = analyzed(frame)
    if plan.nodeName() != "Project" or plan.child().nodeName() != "LocalRelation":
        return False, False
    return True, bool(plan.projectList().apply(0).deterministic())


def comes_of(frame: DataFrame, leaf: str) -> set[str]:
    """The columns of a frame's leaf, of a kind, that its plan needs."""
    plan = optimized(frame)
    every = list(nodes(plan))
    leaves = [node for node in every if node.nodeName() == leaf]
    names = {a.exprId().id(): a.name() for part in leaves for a in each(part.output())}
    wanted = {a.exprId().id() for a in each(plan.output())}
    for node in every:
        if node.nodeName() != leaf:
            wanted |= {a.exprId().id() for a in each(node.references().toSeq())}
    return {name for id_, name in names.items() if id_ in wanted}
