"""A session's time zone and ANSI mode mean the same in a pipeline as they do in Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

import holdfast as hf
from holdfast.spark.jvm.grouping import preaggregated
from holdfast.spark.plans.lift import plan_aggregate
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

SCHEMA = "k string, ts timestamp, local timestamp_ntz, text string"
LATE = datetime(2026, 7, 1, 23, 30)
# The clocks of Berlin never showed it: they went from two to three.
SKIPPED = datetime(2026, 3, 29, 2, 30)


@pytest.fixture
def elsewhere(spark: SparkSession) -> SparkSession:
    """Another session than UTC's, in which what can't be computed is null."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    session.conf.set("spark.sql.ansi.enabled", "false")
    return session


def with_times(df: DataFrame) -> DataFrame:
    """Steps that say something else under other settings."""

    def hour(times: pd.Series) -> pd.Series:
        return times.dt.hour

    hour_in_python: Any = pandas_udf(hour, "int")  # type: ignore[call-overload]
    return df.select(
        "k",
        "ts",
        F.hour("ts").alias("hour"),
        hour_in_python("ts").alias("hour_in_python"),
        F.to_date("ts").alias("day"),
        F.expr("cast(text AS int)").alias("number"),
        (F.col("local").cast("timestamp") == F.col("ts")).alias("same"),
    )


class Seen(hf.KeyedProcess):
    """Gives back times of keys, rows and state."""

    output = "seen array<timestamp>"
    last = hf.ValueState("timestamp")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        self.last.value = rows[-1].nested["ts"]
        yield ([key.ts, rows[0].ts, self.last.value],)


def counted(rows: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows.collect())


@pytest.mark.slow
def test_steps_keys_and_aggregates_have_the_settings_of_the_users_session(
    elsewhere: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(elsewhere, SCHEMA, tmp_path / "in")
    rows = hf.stream(source.df)
    day = F.to_date("ts").alias("day")
    number = F.expr("cast(text AS long)")
    sums = rows.key_by(day).aggregate(n=hf.count(number), total=hf.sum(number), last=hf.max("ts"))
    seen = rows.with_column("nested", F.struct("ts")).key_by("ts").process(Seen())
    windows = rows.with_watermark("local", "0 s").window(
        hf.tumbling("1 hour"), output_mode="update"
    )
    delivered: dict[int, Any] = {}

    def keep(df: DataFrame, epoch: int, maybe_repeated: bool) -> None:
        delivered[epoch] = counted(df.select("day", F.hour("last")))

    steps, behind, closed, times = (hf.sinks.memory(f"settings {i}") for i in range(4))
    query = hf.pipeline(
        # Two readers of one source, so that their steps are taken in each epoch.
        rows.transform(with_times).write_to(steps),
        sums.write_to(hf.sinks.foreach_batch(keep)),
        sums.with_column("hour", F.hour("last")).write_to(behind),
        windows.aggregate(n=hf.count()).write_to(closed),
        seen.write_to(times),
    ).start("settings", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local")
    source.add([("a", LATE, SKIPPED, "1"), ("b", LATE, SKIPPED, "x")])
    query.step()
    query.stop()
    everything = source.rows_so_far()
    expected = counted(with_times(everything))
    assert len({row[2] for row in expected}) == 1
    assert as_spark(elsewhere, steps) == expected
    grouped = everything.groupBy(day).agg(
        F.count(number).alias("n"), F.sum(number).alias("total"), F.max("ts").alias("last")
    )
    assert as_spark(elsewhere, behind) == counted(grouped.withColumn("hour", F.hour("last")))
    assert delivered == {0: counted(grouped.select("day", F.hour("last")))}
    assert times.rows() == [{"seen": [LATE.replace(tzinfo=timezone.utc)] * 3}]
    (window,) = closed.rows()
    assert window["window_start"] == SKIPPED.replace(minute=0)
    assert window["n"] == 2


def as_spark(session: SparkSession, sink: Any) -> Counter[tuple[Any, ...]]:
    """Rows as they look to Spark in a session."""
    table: pa.Table = sink.table()
    return counted(session.createDataFrame(table.combine_chunks()))


@pytest.mark.parametrize("kind", ["long", "decimal(38,0)"])
def test_sums_of_groups_overflow_as_errors_without_ansi_mode_too(
    elsewhere: SparkSession, kind: str
) -> None:
    most = "9" * 38 if kind != "long" else str(2**63 - 1)
    one = f"cast('{most}' AS {kind})"
    rows = elsewhere.sql(f"SELECT 'a' AS k, {one} AS x UNION ALL SELECT 'a', {one}")
    plan = plan_aggregate(rows, "sums", ["k"], {"total": hf.sum("x")})
    with pytest.raises(PySparkException, match="overflows"):
        preaggregated(elsewhere, plan.preaggregate(rows.coalesce(1))).frame.collect()
