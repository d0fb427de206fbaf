"""Reads at the beginning of an epoch what the one before fed back."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast.state.expiry import TableClock
from holdfast.state.hashing import partition_range
from holdfast.tasks.state import EpochState
from holdfast.tasks.task import TaskSpec
from holdfast.tiers.opener import RunOpener

__all__ = ["read_loop"]


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
