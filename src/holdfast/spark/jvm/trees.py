"""Walks Spark's plans, which are trees of the JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["count_sources", "each", "nodes", "plan_words", "source_options"]

# What Spark numbers anew in every session: expressions, objects, nodes.
_NUMBERS = re.compile(r"#\d+L?|@[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|plan_id=\d+")


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))


def nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, from its top."""
    yield plan
    for child in each(plan.children()):
        yield from nodes(child)


def count_sources(frame: DataFrame) -> int:
    """How many sources Spark reads for a stream."""
    plan = frame._jdf.queryExecution().analyzed()
    return sum(node.children().isEmpty() and node.isStreaming() for node in nodes(plan))


def source_options(leaf: Any) -> Iterator[tuple[str, str]]:
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
    plan = frame._jdf.queryExecution().analyzed()
    leaves = (node for node in nodes(plan) if node.children().isEmpty())
    options = [sorted(source_options(leaf)) for leaf in leaves]
    return _NUMBERS.sub("", f"{plan.toString()}{options}")
