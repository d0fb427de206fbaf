"""What every contender gets alike: the session, the source, and how epochs are read off."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.kit.trial import Epoch, Trial

__all__ = ["Tell", "await_end", "epochs_of", "make_session", "source", "versions"]

Tell = Callable[[int], None]
"""Called with the number of every epoch that has ended."""

_POLL_S = 0.5


def make_session(trial: Trial, **settings: str) -> SparkSession:
    """A session with Holdfast's settings for everybody: they help the others too."""
    from holdfast.spark.session import QUERY_SETTINGS, configure

    folder = Path(trial.work)
    common = {
        **QUERY_SETTINGS,
        "spark.driver.memory": trial.driver_memory,
        "spark.sql.shuffle.partitions": str(trial.partitions),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = configure(SparkSession.builder.master("local[2]").appName("holdfast-bench"))
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def source(spark: SparkSession, trial: Trial) -> DataFrame:
    """The input as a stream, a file an epoch."""
    reader = spark.readStream.schema("word string, amount double")
    return reader.option("maxFilesPerTrigger", 1).parquet(trial.input)


def await_end(query: StreamingQuery, tell: Tell) -> None:
    """Wait for a query of Spark's own, telling how far it is."""
    last = -1
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type] # seconds may be fractions
        progress: Any = query.lastProgress
        if progress is not None and progress["batchId"] > last:
            last = progress["batchId"]
            tell(last)


def epochs_of(query: StreamingQuery) -> list[Epoch]:
    """Every epoch with input, as Spark reports it."""
    progresses: list[Any] = list(query.recentProgress)
    return [_epoch(progress) for progress in progresses if progress["numInputRows"] > 0]


def _epoch(progress: Any) -> Epoch:
    phases = {name: ms / 1000 for name, ms in progress["durationMs"].items()}
    operators = progress["stateOperators"]
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    return Epoch(
        number=progress["batchId"],
        rows=progress["numInputRows"],
        seconds=phases.pop("triggerExecution"),
        began=began.timestamp(),
        state_rows=operators[0]["numRowsTotal"] if operators else None,
        phases=phases,
    )


def versions(spark: SparkSession) -> dict[str, str]:
    """What ran."""
    jvm: Any = spark.sparkContext._jvm
    return {
        "python": sys.version.split()[0],
        "spark": spark.version,
        "java": str(jvm.java.lang.System.getProperty("java.version")),
    }
