"""Old queries to adopt, and what their state must come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.reader import stored_tables
from holdfast.cli.results import finisher
from holdfast.storage import open_storage
from tests.spark.batch_oracle import batch_expression
from tests.spark.support import write_epoch

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDERS = {"rocksdb": ROCKSDB, "heap": HEAP}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"

SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("size", pa.int32()),
        ("amount", pa.int64()),
        ("ratio", pa.float64()),
        ("small", pa.decimal128(8, 2)),
        ("price", pa.decimal128(12, 3)),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def add_input(work: Path, files: int, rows: int = 40, keys: int = 12, seed: int = 0) -> None:
    """Add files behind those that are there: each is a batch. Every column has nulls."""
    there = len(list((work / "in").glob("*.parquet")))
    for number in range(there, there + files):
        random = np.random.default_rng(100 * seed + number)

        def some(values: list[Any], random: Any = random) -> list[Any]:
            return [None if random.random() < 0.15 else value for value in values]

        at = datetime(2026, 1, 1)
        columns = [
            some([f"w{n}" for n in random.integers(0, keys, rows)]),
            some(random.integers(-2, 3, rows).tolist()),
            some(random.integers(-(10**6), 10**6, rows).tolist()),
            some([(1.5, -0.0, 0.0, math.nan, 1e300)[n] for n in random.integers(0, 5, rows)]),
            some([Decimal(int(n)).scaleb(-2) for n in random.integers(-(10**8) + 1, 10**8, rows)]),
            some([Decimal(int(n)).scaleb(-3) for n in random.integers(0, 10**12, rows)]),
            some([bool(n) for n in random.integers(0, 2, rows)]),
            some([at + timedelta(seconds=int(n)) for n in random.integers(0, 10**6, rows)]),
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        write_epoch(work / "in", number, pa.Table.from_arrays(arrays, schema=SCHEMA))


def stream(spark: SparkSession, work: Path) -> DataFrame:
    schema = spark.read.parquet(str(work / "in")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(work / "in"))


def run_spark(
    frame: DataFrame,
    work: Path,
    *,
    provider: str = "rocksdb",
    mode: str = "update",
    **settings: str,
) -> Path:
    """Run a query of Spark's own over all the input there is; its checkpoint location."""
    conf = frame.sparkSession.conf
    chosen = {PROVIDER: PROVIDERS[provider], **settings}
    for name, value in chosen.items():
        conf.set(name, value)
    try:
        writer = frame.writeStream.outputMode(mode).format("noop")
        writer = writer.option("checkpointLocation", str(work / "old"))
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        for name in chosen:
            conf.unset(name)
    return work / "old"


def spark_expression(aggregate: hf.Aggregate) -> Column:
    """The function of Spark's that a query which is to be adopted has for an aggregate."""
    by: dict[str, Callable[..., Column]] = {"first": F.min_by, "last": F.max_by}
    if aggregate.kind in by:
        return by[aggregate.kind](*aggregate.columns)
    if aggregate.kind == "any_value":
        return F.any_value(*aggregate.columns)  # type: ignore[arg-type]
    return batch_expression(aggregate)


def results(work: Path, keys: int = 1) -> dict[Any, tuple[Any, ...]]:
    """What the newest checkpoint's aggregates have come to, by key."""
    storage = open_storage(work / "ck")
    entry = read_log(storage).last_checkpoint
    assert entry is not None
    view = stored_tables(entry, storage)["aggregate.groups"]
    finish = finisher(view.schema, entry.program["aggregate"])
    assert finish is not None
    rows = finish(pa.concat_tables(list(view.scan())))
    return by_key(rows.to_pylist(), keys)


def by_key(rows: list[dict[str, Any]], keys: int = 1) -> dict[Any, tuple[Any, ...]]:
    found = {}
    for row in rows:
        values = tuple(row.values())
        assert values[:keys] not in found
        found[values[:keys]] = values[keys:]
    return found


def batch(
    spark: SparkSession, work: Path, keys: list[Any], aggregates: Mapping[str, hf.Aggregate]
) -> dict[Any, tuple[Any, ...]]:
    """The same of Spark's batch engine over all rows."""
    frame = spark.read.parquet(str(work / "in"))
    grouped = frame.groupBy(*keys).agg(
        *(batch_expression(a).alias(name) for name, a in aggregates.items())
    )
    return by_key(grouped.toArrow().to_pylist(), len(keys))


def assert_same(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    """Equal, but for the last digits of doubles, whose sums depend on the order of adding."""
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        for value, wanted in zip(found[key], values, strict=True):
            if isinstance(wanted, float) and value is not None:
                assert value == pytest.approx(wanted, rel=1e-9, nan_ok=True), key
            else:
                assert value == wanted, key
