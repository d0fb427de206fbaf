"""What the program that takes over wants of the old state: its operator, and rows for its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from holdfast.errors import InputError
from holdfast.operators.base import Operator
from holdfast.spark.adopt.aggregate import our_buffers
from holdfast.spark.adopt.keys import hash_and_keys, unpacked
from holdfast.spark.adopt.kinds import check_kind
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator
from holdfast.spark.adopt.tables import AdoptedTable
from holdfast.spark.lift import AggregatePlan, plan_aggregate

if TYPE_CHECKING:
    from holdfast.stream import AggregatedStream, Pipeline

__all__ = ["Adopter", "adopter_of", "count_sources"]


class Adopter(Protocol):
    """A program that can go on with the state of one kind of Spark's operators."""

    @property
    def frame(self) -> DataFrame:
        """Its input."""

    @property
    def operator(self) -> Operator:
        """Its operator."""

    def tables(self, old: OldQuery, chosen: StatefulOperator) -> list[AdoptedTable]:
        """The rows that its tables begin with; ``InputError`` if the old state doesn't fit."""


def adopter_of(pipeline: Pipeline | AggregatedStream) -> Adopter:
    """The adopter for a program."""
    source: Any = getattr(pipeline, "source", pipeline)
    if not hasattr(source, "aggregates"):
        raise InputError(
            f"{pipeline!r} can't take over the state of a Spark query",
            hint="give a pipeline, or a stream behind aggregate(...)",
        )
    keyed = source.keyed
    plan = plan_aggregate(keyed.source.df, "aggregate", keyed.keys, source.aggregates)
    return _AggregateAdopter(keyed.source.df, plan)


def count_sources(frame: DataFrame) -> int:
    """How many sources a stream reads."""
    return sum(1 for _ in _streaming_leaves(frame._jdf.queryExecution().analyzed()))


def _streaming_leaves(node: Any) -> Iterator[Any]:
    children = node.children()
    if children.isEmpty() and node.isStreaming():
        yield node
    for index in range(children.size()):
        yield from _streaming_leaves(children.apply(index))


@dataclass(frozen=True, slots=True)
class _AggregateAdopter:
    frame: DataFrame
    plan: AggregatePlan

    @property
    def operator(self) -> Operator:
        return self.plan.operator

    def tables(self, old: OldQuery, chosen: StatefulOperator) -> list[AdoptedTable]:
        check_kind(chosen, ("stateStoreSave",), "aggregate()")
        state, (keys, values) = unpacked(old.state(chosen), "key", "value")
        table = self.plan.operator.tables[0]
        # One total over everything is keyed by a constant in the program, which needs no input.
        hashed = hash_and_keys(table.keys, keys) if keys else list(self.plan.keys)
        buffers = our_buffers(self.plan.operator.aggregates, values)
        named = [c.alias(n) for c, n in zip(buffers, table.value_names, strict=True)]
        try:
            rows = state.select(*hashed, *named)
        except AnalysisException:
            raise InputError(
                "the old query has one total over everything, the program one per "
                + ", ".join(table.key_names),
                hint="key the program by a constant, such as F.lit(0).alias('all')",
            ) from None
        return [AdoptedTable(table, rows)]
