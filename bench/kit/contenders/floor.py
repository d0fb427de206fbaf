"""The stateless floor: Holdfast's own shuffle and Arrow pass, with tasks that only count batches.

No keyed state in Python can be faster without sending less: the same columns (hash, key, 1, amount)
are made by the same expressions, cut by the same formula into the same partitions and handed over
in the same Arrow batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from bench.kit.contenders.common import (
    Tell,
    await_end,
    epochs_of,
    make_session,
    source,
    versions,
)
from bench.kit.trial import Outcome, Trial

__all__ = ["run"]


def run(trial: Trial, tell: Tell) -> Outcome:
    """Shuffle and drain all input, an epoch at a time."""
    import holdfast as hf
    from holdfast.spark.flow.job import NOTHING, columns_of
    from holdfast.spark.jvm.frames import map_in_arrow
    from holdfast.spark.plans.lift import plan_aggregate
    from holdfast.state.hashing import partition_sql
    from holdfast.state.schema import HASH

    spark = make_session(trial)
    stream = source(spark, trial)
    aggregates = {"n": hf.count(), "total": hf.sum("amount")}
    plan = plan_aggregate(stream, "aggregate", ("word",), aggregates)
    columns = columns_of(plan.operator.input_schema.names)
    partition = expr(partition_sql(HASH, trial.partitions))

    def on_batch(batch: DataFrame, epoch: int) -> None:
        del epoch
        shuffled = plan.lift(batch).repartitionById(trial.partitions, partition)
        drained = map_in_arrow(shuffled, columns, _drain, NOTHING)
        drained._jdf.queryExecution().toRdd().count()

    began = time.perf_counter()
    query = (
        stream.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(Path(trial.work, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    await_end(query, tell)
    return Outcome(
        epochs=epochs_of(query),
        seconds=time.perf_counter() - began,
        state_rows=None,
        versions=versions(spark),
    )


def _drain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())
