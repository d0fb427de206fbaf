"""What the program that takes over wants of the old state: rows for its operator's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.time import Watermark
from holdfast.errors import InputError
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.base import Operator
from holdfast.operators.deduplicate import DeduplicateOperator
from holdfast.operators.process.batch import BatchOperator
from holdfast.operators.process.operator import ProcessOperator
from holdfast.sinks import noop
from holdfast.spark.adopt.aggregate import our_buffers
from holdfast.spark.adopt.keys import hash_and_keys, unpacked
from holdfast.spark.adopt.kinds import check_kind
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator
from holdfast.spark.adopt.process import process_tables
from holdfast.spark.adopt.tables import AdoptedTable
from holdfast.spark.flow.graph import build_graph
from holdfast.spark.flow.slices import as_one
from holdfast.spark.jvm.trees import count_sources
from holdfast.spark.plans.base import OperatorPlan
from holdfast.spark.plans.lift import AggregatePlan
from holdfast.spark.said import SaidPipeline, SaidResult

__all__ = ["NewProgram", "adopted_tables"]


@dataclass(frozen=True, slots=True)
class NewProgram:
    """The program that takes over."""

    frame: DataFrame
    plan: OperatorPlan
    watermarks: dict[str, Watermark]

    @classmethod
    def of(cls, pipeline: SaidPipeline | SaidResult) -> NewProgram:
        """That of a pipeline with one operator, or of a stream that isn't one yet."""
        whole: Any = pipeline
        if hasattr(whole, "plan"):
            # Without a sink the graph has no end; which one it is doesn't matter here.
            whole = whole.write_to(noop())
        if not hasattr(whole, "outputs"):
            raise InputError(
                f"{pipeline!r} has no operator that could take over a state",
                hint="give a pipeline, or a stream behind aggregate(...) and the like",
            )
        graph = build_graph(whole)
        stateful = [node for node in graph.nodes if node.stateful]
        if len(stateful) != 1:
            raise InputError(
                f"the program has {len(stateful)} operators with state, and the old query one",
                hint="adopt with the operator alone; further ones may be added at a later start",
            )
        return cls(as_one(graph.sources), stateful[0].plan, graph.watermarks)

    @property
    def operator(self) -> Operator:
        """Its operator."""
        return self.plan.operator

    @property
    def sources(self) -> int:
        """How many sources it reads, without the one that Holdfast adds for timers."""
        return count_sources(self.frame)


def adopted_tables(
    program: NewProgram, old: OldQuery, chosen: StatefulOperator, record: EpochRecord
) -> list[AdoptedTable]:
    """The rows that the program's tables begin with; ``InputError`` if the old state doesn't fit."""
    plan, operator = program.plan, program.operator
    if isinstance(plan, AggregatePlan) and isinstance(operator, AggregateOperator):
        return [_groups(plan, operator, old, chosen)]
    if isinstance(operator, DeduplicateOperator):
        return [_seen(operator, old, chosen)]
    if isinstance(operator, ProcessOperator | BatchOperator):
        return process_tables(operator, old, chosen, record)
    raise InputError(
        f"operator {operator.id!r} of the program can't take over a state of Spark's",
        hint="what can be adopted is in docs/adopt.md",
    )


def _groups(
    plan: AggregatePlan, operator: AggregateOperator, old: OldQuery, chosen: StatefulOperator
) -> AdoptedTable:
    check_kind(chosen, ("stateStoreSave",), "aggregate()")
    state, (keys, values) = unpacked(old.state(chosen), "key", "value")
    table = operator.tables[0]
    # One total over everything is keyed by a constant in the program, which needs no input.
    hashed = hash_and_keys(table.keys, keys) if keys else list(plan.keys)
    buffers = our_buffers(operator.aggregates, values)
    named = [c.alias(n) for c, n in zip(buffers, table.value_names, strict=True)]
    try:
        rows = state.select(*hashed, *named)
    except AnalysisException:
        raise InputError(
            "the old query has one total over everything, the program one per "
            + ", ".join(table.key_names),
            hint="key the program by a constant, such as F.lit(0).alias('all')",
        ) from None
    return AdoptedTable(table, rows)


def _seen(operator: DeduplicateOperator, old: OldQuery, chosen: StatefulOperator) -> AdoptedTable:
    table, time, after_ms = operator.tables[0], operator.event_time, operator.expires_after_ms
    by_key = time is not None and time.column in table.key_names
    if after_ms is None or by_key:
        check_kind(chosen, ("dedupe",), "drop_duplicates()")
    else:
        check_kind(chosen, ("dedupeWithinWatermark",), "drop_duplicates(within_watermark=True)")
    state, (keys, values) = unpacked(old.state(chosen), "key", "value")
    hashed = hash_and_keys(table.keys, keys)
    if after_ms is None or time is None:
        return AdoptedTable(table, state.select(*hashed))
    if not by_key:
        until = _milliseconds_up(values[0].column)
        return AdoptedTable(table, state.select(*hashed, F.lit(True), until))
    rows = state.select(*hashed)
    until = _milliseconds_up(F.unix_micros(F.col(f"`{time.column}`").cast("timestamp")))
    return AdoptedTable(table, rows.select("*", F.lit(True), until + F.lit(after_ms)))


def _milliseconds_up(micros: Column) -> Column:
    """Rounded up, as the operator does it: a watermark in ms has passed a time in µs only then."""
    return F.ceil(micros / F.lit(1000)).cast("bigint")
