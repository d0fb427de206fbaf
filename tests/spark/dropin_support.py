"""Runs a processor on Spark's own engine and on Holdfast, on the same files, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.types import parse_schema
from tests.spark import dropin_processors
from tests.spark.support import write_epoch

# Spark's workers don't have this folder on their path.
cloudpickle.register_pickle_by_value(dropin_processors)  # type: ignore[no-untyped-call]

PROTOBUF = "pip install 'protobuf>=6.33': Spark's own transformWithState needs it, Holdfast doesn't"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Batches = dict[int, list[str]]
"""Per batch the rows that were put out, as text, in order."""


@dataclass
class Case:
    """A processor, its input and how it is called."""

    make: Callable[[], Any]
    columns: str
    epochs: list[list[tuple[Any, ...]]]
    output: str
    keys: tuple[str, ...] = ("id",)
    time_mode: str = "None"
    watermark: tuple[str, str] | None = None
    initial: tuple[str, list[tuple[Any, ...]], tuple[str, ...]] | None = None
    pandas: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """A file per epoch."""
        schema = parse_schema(self.columns)
        for number, rows in enumerate(self.epochs):
            dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
            write_epoch(folder, number, pa.Table.from_pylist(dicts, schema))

    def read(self, spark: SparkSession, folder: Path) -> DataFrame:
        """The files as a stream, one per batch, in a session of its own."""
        session = spark.newSession()
        for name, value in {"spark.sql.shuffle.partitions": "2", **self.settings}.items():
            session.conf.set(name, value)
        rows = session.readStream.schema(self.columns).option("maxFilesPerTrigger", 1)
        df = rows.parquet(str(folder))
        return df.withWatermark(*self.watermark) if self.watermark else df

    def call(self, grouped: Any, session: SparkSession) -> Any:
        """PySpark's call, on whatever has its methods."""
        initial = None
        if self.initial is not None:
            columns, rows, keys = self.initial
            initial = session.createDataFrame(rows, columns).groupBy(*keys)
        name = "transformWithStateInPandas" if self.pandas else "transformWithState"
        return getattr(grouped, name)(
            statefulProcessor=self.make(),
            outputStructType=self.output,
            outputMode="Update",
            timeMode=self.time_mode,
            initialState=initial,
        )


def spark_batches(spark: SparkSession, case: Case, folder: Path, checkpoint: Path) -> Batches:
    """What Spark's own engine, on RocksDB, makes of the files."""
    df = case.read(spark, folder)
    df.sparkSession.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    found: Batches = {}
    last = len(case.epochs) - 1
    done = threading.Event()

    def keep(batch: DataFrame, number: int) -> None:
        found[number] = _texts(batch)
        if number >= last:
            done.set()

    result = case.call(df.groupBy(*case.keys), df.sparkSession)
    writer = result.writeStream.foreachBatch(keep).outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    if case.time_mode.lower() == "processingtime":
        # With processing time Spark goes on for ever, in batches without data.
        with _ended(query, done):
            done.wait(120)
        query.stop()
        return {number: rows for number, rows in found.items() if number <= last}
    query.awaitTermination()
    return found


@contextmanager
def _ended(query: Any, done: threading.Event) -> Iterator[None]:
    """Sets ``done`` also when the query fails, and raises what it failed with."""

    def wait() -> None:
        try:
            query.awaitTermination()
        except Exception:
            done.set()

    threading.Thread(target=wait, daemon=True).start()
    yield
    if query.exception() is not None:
        raise query.exception()


def _pipeline(spark: SparkSession, case: Case, folder: Path, found: Batches) -> hf.Pipeline:
    df = case.read(spark, folder)

    def keep(batch: DataFrame, epoch: int, maybe_repeated: bool) -> None:
        assert maybe_repeated or epoch not in found
        found[epoch] = _texts(batch)

    results = case.call(hf.stream(df).groupBy(*case.keys), df.sparkSession)
    pipeline: hf.Pipeline = results.write_to(hf.sinks.foreach_batch(keep))
    return pipeline


def holdfast_run(spark: SparkSession, case: Case, folder: Path, checkpoint: Path) -> Batches:
    """What Holdfast makes of the files that are new since the last run."""
    found: Batches = {}
    query = _pipeline(spark, case, folder, found).start(
        "dropin", checkpoint_dir=checkpoint, trigger="available-now", partitions=2
    )
    query.await_termination()
    return found


def holdfast_batches(
    spark: SparkSession, case: Case, folder: Path, checkpoint: Path, done: int = 0
) -> Batches:
    """What Holdfast makes of the files but the first ``done``; its clock moves with every look."""
    found: Batches = {}
    ticks = iter(range(10**6))
    query = _pipeline(spark, case, folder, found).start(
        "dropin",
        checkpoint_dir=checkpoint,
        trigger="manual",
        partitions=2,
        clock=lambda: dropin_processors.BASE_MS + next(ticks) * 1000,
    )
    for _ in range(len(case.epochs) - done):
        assert query.step()
    if case.time_mode.lower() != "processingtime":
        while query.step():
            pass
    query.stop()
    return {number: [] for number in range(done, len(case.epochs))} | found


def assert_same(ours: Batches, theirs: Batches, case: Case) -> None:
    """Every batch of input, and all that came out behind it, where either may pass over numbers."""
    last = len(case.epochs) - 1
    assert {n for n in ours if n <= last} == {n for n in theirs if n <= last}
    for number in sorted(ours):
        assert number > last or ours[number] == theirs[number], f"batch {number}"
    behind = [[made[n] for n in sorted(made) if n > last and made[n]] for made in (ours, theirs)]
    assert behind[0] == behind[1]


def _texts(batch: DataFrame) -> list[str]:
    return sorted(repr(row) for row in batch.collect())
