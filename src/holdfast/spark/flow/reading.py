"""Which columns of its sources a pipeline reads: Spark is asked for no others.

In an epoch rows come as an RDD, behind which Spark can't see that a column is never looked at. So this
is found out before the query starts: each operator's way to its input is planned on a frame without
rows, and what is left of the source's columns is what is streamed. Steps see all columns all the same,
null where nobody looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.spark.flow.graph import FlowGraph
from holdfast.spark.jvm.frames import without_rows
from holdfast.spark.jvm.probing import has
from holdfast.spark.jvm.trees import PRUNING, comes_of
from holdfast.types import quoted

__all__ = ["SourceReading", "readings"]

_LEAF = "LogicalRDD"


@dataclass(frozen=True)
class SourceReading:
    """A source, and what of it is read."""

    source: DataFrame
    used: tuple[str, ...]

    @property
    def streamed(self) -> DataFrame:
        """The columns that are read."""
        return self.source.select(*(quoted(name) for name in self.used))

    def whole(self, rows: DataFrame) -> DataFrame:
        """Rows that were read, with all columns of the source."""
        return rows if self._columns is None else rows.select(*self._columns)

    @cached_property
    def _columns(self) -> list[Column] | None:
        fields = self.source.schema.fields
        if len(self.used) == len(fields):
            return None
        return [
            F.col(quoted(field.name))
            if field.name in self.used
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in fields
        ]


def readings(graph: FlowGraph) -> list[SourceReading]:
    """What is read of each source of a pipeline. Runs no Spark job."""
    return [
        SourceReading(source, _used(graph, number, source))
        for number, source in enumerate(graph.sources)
    ]


def _used(graph: FlowGraph, number: int, source: DataFrame) -> tuple[str, ...]:
    if not has(PRUNING):
        return tuple(source.columns)
    blank = without_rows(source)
    used: set[str] = set()
    for node in graph.nodes:
        for port, feeds in enumerate(node.ports):
            for feed in feeds:
                if feed.source != number:
                    continue
                frame = blank
                for step in feed.steps:
                    frame = step(frame)
                used |= comes_of(node.plan.needed_columns(frame, port), _LEAF)
    names = source.columns
    # Rows without columns can't be counted by everyone.
    return tuple(name for name in names if name in used) or (names[0],)
