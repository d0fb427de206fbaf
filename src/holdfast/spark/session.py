"""Spark settings: what belongs to the session, and what Holdfast keeps to its own jobs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import ConfigurationError
from holdfast.spark.jvm.capabilities import ALWAYS, check
from holdfast.spark.jvm.frames import cloned, in_session
from holdfast.spark.jvm.gateway import master_of
from holdfast.spark.jvm.hosts import is_local
from holdfast.spark.jvm.jobs import own_properties
from holdfast.spark.jvm.quiet import mark_jobs

__all__ = [
    "ONE_HOST_SETTINGS",
    "QUERY_SETTINGS",
    "SESSION_SETTINGS",
    "batch_limit",
    "check_session",
    "configure",
    "in_background",
    "own_session",
]

logger = logging.getLogger("holdfast.spark")

SESSION_SETTINGS = {
    # Removes about 40 ms of TCP's delayed acknowledgement from every wave of Python tasks.
    "spark.python.unix.domain.socket.enabled": "true",
    # Lets background jobs run beside epochs instead of behind them.
    "spark.scheduler.mode": "FAIR",
}
QUERY_SETTINGS = {
    # With AQE, taking a plan's RDD would run the stage before it at once.
    "spark.sql.adaptive.enabled": "false",
    # The default forks a process for every file operation: 85 ms of every trigger.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
    # So few that bytes need not be counted row by row, unless rows are very wide: see batch_limit().
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Nothing here may change what expressions mean: steps, keys and aggregates are the user's, and
    # have the time zone and the ANSI mode of the user's session.
}
ONE_HOST_SETTINGS = {
    # A hash of every row, for the case that a part of a shuffle is lost and made again: with its host.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
_BATCH_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_MOST_BATCH_BYTES = 64 << 20
_NO_LIMIT = (1 << 31) - 1
_DAEMON = "holdfast.spark.jvm.daemon"
_MINIMUM = (4, 1)
_warned = False


def configure(
    builder: SparkSession.Builder, *, preload: bool | None = None
) -> SparkSession.Builder:
    """Set what only a new session can carry; everything else Holdfast sets for its own jobs.

    ``preload`` has Python daemons import Holdfast before they fork workers; unless told, only where
    the executors' Python surely has it: on this machine.

    >>> from pyspark.sql import SparkSession
    >>> import holdfast as hf
    >>> spark = hf.configure(SparkSession.builder.master("local[2]")).getOrCreate()
    """
    # Workers must run the interpreter that has Holdfast and its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    if preload is None:
        preload = is_local(master_of(builder))
    return builder.config("spark.python.daemon.module", _DAEMON) if preload else builder


def check_session(spark: SparkSession) -> None:
    """Refuse sessions that can't work, and say once what would make others faster."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "Spark Connect sessions can't run Holdfast: it needs the driver's JVM",
            hint="run the program on the driver with a classic session (no .remote(...))",
        )
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    if version < _MINIMUM:
        raise ConfigurationError(
            f"Spark {spark.version} is too old: Holdfast needs 4.1 or newer",
            hint="install pyspark>=4.1",
        )
    check(spark.sparkContext, ALWAYS, "Holdfast")
    global _warned
    conf = spark.sparkContext.getConf()
    missing = [k for k, v in SESSION_SETTINGS.items() if (conf.get(k) or "").lower() != v.lower()]
    if missing and not _warned:
        _warned = True
        logger.warning(
            "this Spark session works, but slower than it could: %s not set. "
            "Make it with hf.configure(SparkSession.builder)",
            ", ".join(missing),
        )


@contextmanager
def in_background(context: SparkContext, what: str, tag: str) -> Iterator[None]:
    """Have the jobs of this thread run beside epochs, not before them, under a tag to cancel them by.

    In here alone: the thread may be the user's, whose own jobs are none of ours, or that of the epochs.
    """
    with own_properties(context):
        context.setLocalProperty("spark.scheduler.pool", "holdfast-background")
        context.setJobDescription(f"holdfast: {what}")
        context.addJobTag(tag)
        mark_jobs(context)
        yield


def batch_limit(largest_bytes: int | None) -> dict[str, str]:
    """How large Arrow batches may be, if the largest of the last epoch had so many bytes.

    To keep a limit in bytes Spark adds up the size of all columns after every row, which takes as
    long as writing the row. So there is one only where batches have come near it, or might.

    >>> batch_limit(1_000_000)
    {'spark.sql.execution.arrow.maxBytesPerBatch': '2147483647'}
    """
    near = largest_bytes is None or largest_bytes > _MOST_BATCH_BYTES // 4
    return {_BATCH_LIMIT: str(_MOST_BATCH_BYTES if near else _NO_LIMIT)}


def own_session(df: DataFrame) -> DataFrame:
    """The same streaming DataFrame in a clone of its session that carries Holdfast's settings."""
    return in_session(cloned(df.sparkSession, QUERY_SETTINGS), df)
