"""Spark's own streaming aggregation, on the heap store or on RocksDB with changelog checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import functions as sf

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

_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
_STORE = "spark.sql.streaming.stateStore"
SETTINGS = {
    "heap": {f"{_STORE}.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider"},
    "rocksdb": {
        f"{_STORE}.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def run(trial: Trial, tell: Tell) -> Outcome:
    """Process all input in update mode; Spark's checkpoint is on disk."""
    settings = SETTINGS[trial.contender]
    spark = make_session(trial, **settings)
    grouped = source(spark, trial).groupBy("word")
    counts = grouped.agg(sf.count("*").alias("n"), sf.sum("amount").alias("total"))
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
        settings=settings,
    )
