"""PySpark's own transformWithState on RocksDB, with Rows or pandas frames."""

from __future__ import annotations

import time
from pathlib import Path

from bench.kit.contenders.common import (
    Tell,
    await_end,
    epochs_of,
    make_session,
    source,
    versions,
)
from bench.kit.contenders.processors import OUTPUT, CountPandas, CountRows
from bench.kit.contenders.spark_own import SETTINGS
from bench.kit.trial import Outcome, Trial

__all__ = ["run"]


def run(trial: Trial, tell: Tell) -> Outcome:
    """Process all input in update mode; Spark's checkpoint is on disk."""
    spark = make_session(trial, **SETTINGS["rocksdb"])
    grouped = source(spark, trial).groupBy("word")
    if trial.contender == "tws-row":
        counts = grouped.transformWithState(CountRows(), OUTPUT, "Update", "None")
    else:
        counts = grouped.transformWithStateInPandas(CountPandas(), OUTPUT, "Update", "None")
    began = time.perf_counter()
    query = (
        counts.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(Path(trial.work, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    await_end(query, tell)
    seconds = time.perf_counter() - began
    epochs = epochs_of(query)
    return Outcome(
        epochs=epochs,
        seconds=seconds,
        state_rows=epochs[-1].state_rows if epochs else None,
        versions=versions(spark),
        settings=SETTINGS["rocksdb"],
    )
