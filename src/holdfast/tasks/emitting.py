"""The task at the end of a stream without an operator of its own: rows go to their sinks.

Nothing here imports PySpark, as in :mod:`holdfast.tasks.task`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pyarrow as pa

from holdfast import runtime
from holdfast.failpoints import failpoint
from holdfast.sinks.base import StageWriter
from holdfast.tasks.task import TaskReport, TaskSpec

__all__ = ["emit_rows"]


def emit_rows(
    spec: TaskSpec, partition: int, batches: Iterable[pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, TaskReport]:
    """Stage all rows for the sinks; nothing goes on to anyone else."""
    failpoint("task.start")
    spent = 0.0
    attempt = runtime.new_id()
    stages: dict[str, StageWriter] = {}
    schema = spec.operator.output_schema
    rows = largest = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            # Until here, others worked.
            began = runtime.monotonic()
            rows += batch.num_rows
            largest = max(largest, batch.nbytes)
            table = pa.Table.from_batches([batch]).cast(schema)
            for sink, stager in spec.stagers.items():
                if sink not in stages:
                    stages[sink] = stager.open(spec.clock.epoch, partition, attempt, schema)
                stages[sink].write(table)
            spent += runtime.monotonic() - began
        began = runtime.monotonic()
        staged = {sink: out for sink, w in stages.items() if (out := w.close()) is not None}
        spent += runtime.monotonic() - began
    except BaseException:
        for stage in stages.values():
            stage.abort()
        raise
    failpoint("task.before_report")
    yield from ()
    return TaskReport(
        epoch=spec.clock.epoch,
        partition=partition,
        attempt=attempt,
        changes=(),
        staged=staged,
        rows=rows,
        keys=0,
        new_keys=0,
        spilled_bytes=0,
        fetched_bytes=0,
        seconds={"stage": spent},
        job=spec.job,
        host=spec.host,
        operator=spec.operator.id,
        batch_bytes=largest,
    )
