"""``transformWithState`` on a batch DataFrame: one epoch, on state that begins and ends with it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.driver.pacing import StageShape
from holdfast.errors import InputError, ProcessingError
from holdfast.operators.base import Clock, Operator, Place
from holdfast.spark.stateful.api import TransformWithState, plan_stateful
from holdfast.spark.types import spark_schema
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import partition_range
from holdfast.storage.memory import MemoryStorage
from holdfast.tasks.spill import Ingest
from holdfast.tasks.state import EpochState
from holdfast.tiers.opener import RunOpener

__all__ = ["transform_batch"]

_MEMORY_BYTES = 256 << 20


def transform_batch(
    df: DataFrame, keys: Sequence[str | Column], call: TransformWithState
) -> DataFrame:
    """The rows that the processor puts out for a batch, as a DataFrame, computed when it is used.

    As in PySpark, there is no watermark, and timers by processing time that are due fire.
    """
    plan = plan_stateful(df, keys, call, batch=True)
    partitions = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    lifted = plan.lift(df, first=True)
    placed = plan.partitioned(lifted, StageShape(partitions, shuffle=True, preaggregate=False))
    operator: Operator = plan.operator
    clock = Clock(0, time.time_ns() // 1_000_000)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        named = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        return _run(operator, clock, context.partitionId(), partitions, named)

    # Numbered on the way: mapInArrow can't do with dots in names.
    names = operator.input_schema.names
    columns = [F.col(f"`{name.replace('`', '``')}`").alias(f"c{i}") for i, name in enumerate(names)]
    return placed.select(*columns).mapInArrow(task, spark_schema(operator.output_schema))


def _run(
    operator: Operator,
    clock: Clock,
    partition: int,
    partitions: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    within = partition_range(partition, partitions)
    with tempfile.TemporaryDirectory(prefix="holdfast-batch-") as name:
        ingest = Ingest(
            operator, Path(name), _MEMORY_BYTES, lambda rows: (operator.receive(rows, clock),)
        )
        ingest.read(batches)
        opener = RunOpener(Path(name), MemoryStorage("no-state"))
        table_clock = TableClock(clock.processing_time_ms, None)
        state = EpochState(operator.tables, {}, within, opener, table_clock)
        session = operator.open(state, clock, Place(partition, partitions, within))
        try:
            for part, rows in ingest.pieces(within):
                yield from session.update(rows, part).output.to_batches()
        except (ProcessingError, InputError) as error:
            # It quotes the code that it comes from, whose own error Spark may not be able to say.
            raise error from None
        finally:
            session.close()
            ingest.close()
