"""Plan the end of a loop, and read at the beginning of an epoch what the one before fed back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.operators.loop import LoopOperator
from holdfast.spark.plans.rows import RowPlan, columns_of
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import partition_range
from holdfast.tasks.state import EpochState
from holdfast.tasks.task import TaskSpec
from holdfast.tiers.opener import RunOpener

if TYPE_CHECKING:
    from holdfast.stream import Stream

__all__ = ["plan_loop", "read_loop"]


def plan_loop(id: str, source: Stream, max_records: int) -> RowPlan:  # noqa: A002
    """How rows that go round reach the place where they wait. Runs no Spark job."""
    columns = columns_of(source.df)
    operator = LoopOperator(id, columns, most=max_records)
    return RowPlan(operator, (), tuple(name for name, _ in columns))


def read_loop(spec: TaskSpec, partition: int) -> Iterator[pa.RecordBatch]:
    """The rows of a partition that wait in a loop; reading changes nothing."""
    within = partition_range(partition, spec.partitions)
    opener = RunOpener(spec.folder, spec.storage, own_claim=spec.claim)
    clock = TableClock(spec.clock.processing_time_ms)
    operator = spec.operator
    state = EpochState(operator.tables, spec.segments, within, opener, clock)
    for table in state.scan_within(operator.tables[0].table, within):
        yield from (
            table.select(operator.output_schema.names).cast(operator.output_schema).to_batches()
        )
