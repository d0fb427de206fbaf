"""Walks Spark's plans, which are trees of the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["count_sources", "each", "nodes"]


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
