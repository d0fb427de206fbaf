"""The child process of a trial: ``python -m bench.kit.nexmark.worker TASK.json``."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.kit.contenders.common import Tell, await_end, epochs_of, make_session, versions
from bench.kit.contenders.holdfast import run_pipeline
from bench.kit.contenders.spark_own import SETTINGS
from bench.kit.nexmark.task import Task
from bench.kit.trial import MARK, Note, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _say(note: Note) -> None:
    print(MARK + msgspec.json.encode(note).decode(), flush=True)


def _end_with_parent() -> None:
    """Wait for the end of the standard input; the JVM and its workers end when we do."""
    sys.stdin.buffer.read()
    os._exit(1)


def _frames(spark: SparkSession, task: Task) -> Mapping[str, DataFrame]:
    """The streams, each a source of its own: an epoch takes a file of each."""
    frames = {}
    for stream in task.streams:
        folder = str(Path(task.trial.input, stream))
        reader = spark.readStream.schema(spark.read.parquet(folder).schema)
        frames[stream] = reader.option("maxFilesPerTrigger", 1).parquet(folder)
    return frames


def _on_holdfast(task: Task, tell: Tell) -> Outcome:
    from bench.kit.nexmark.holdfast_programs import pipeline_of

    spark = make_session(task.trial)
    return run_pipeline(spark, pipeline_of(task.job, _frames(spark, task)), task.trial, tell)


def _on_spark(task: Task, tell: Tell) -> Outcome:
    from bench.kit.nexmark.spark_queries import PROGRAMS

    settings = SETTINGS["rocksdb"]
    spark = make_session(task.trial, **settings)
    program, mode = PROGRAMS[task.job]
    result = program(_frames(spark, task))
    began = time.perf_counter()
    query = (
        result.writeStream.outputMode(mode)
        .format("noop")
        .option("checkpointLocation", str(Path(task.trial.work, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    await_end(query, tell)
    seconds = time.perf_counter() - began
    epochs = epochs_of(query)
    kept = _state_rows(query.recentProgress)
    return Outcome(epochs, seconds, kept, versions=versions(spark), settings=settings)


def _state_rows(progresses: Sequence[Any]) -> int | None:
    """What all operators kept after the last epoch with input; one without lets more go."""
    counts = [
        sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
        for progress in progresses
        if progress["numInputRows"] > 0
    ]
    return counts[-1] if counts else None


def _counted(outcome: Outcome, task: Task) -> Outcome:
    """With the events that an epoch stands for: Spark counts rows once per reader of a source."""
    if len(outcome.epochs) != task.trial.epochs:
        raise RuntimeError(f"{len(outcome.epochs)} epochs had input, not {task.trial.epochs}")
    epochs = [msgspec.structs.replace(epoch, rows=task.rows) for epoch in outcome.epochs]
    return msgspec.structs.replace(outcome, epochs=epochs)


def main(path: str) -> int:
    """Run the task described in a file; notes go to the standard output."""
    task = msgspec.json.decode(Path(path).read_bytes(), type=Task)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run = _on_holdfast if task.engine == "holdfast" else _on_spark
    try:
        outcome = _counted(run(task, lambda epoch: _say(Note(epoch=epoch))), task)
    except Exception as error:  # noqa: BLE001 - the harness reports it as this engine's result
        traceback.print_exc()
        _say(Note(error=f"{type(error).__name__}: {str(error).splitlines()[0][:400]}"))
        return 1
    _say(Note(outcome=outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
