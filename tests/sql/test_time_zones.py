"""Lengths of days: where clocks go forward and back, Spark adds days of 23 and of 25 hours."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.sql import sql
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

SCHEMA = "k int, n int, ts timestamp"
# The days before those on which the clocks of Berlin go forward and back, and one of 24 hours.
NOONS = [datetime(2025, *day, 11, tzinfo=timezone.utc) for day in ((3, 29), (10, 25), (7, 1))]
AROUND = (-61, -60, -59, -1, 0, 1, 59, 60, 61)
JOIN = "SELECT a.n, b.n AS m FROM a JOIN b ON a.k = b.k AND "
DAYS = (
    "SELECT k, window_start, window_end, count(*) AS n FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' DAY,"
    " INTERVAL '2' DAY) GROUP BY k, window_start, window_end"
)
STATEMENTS = {
    "a day": JOIN + "b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' DAY",
    "a day before": JOIN + "b.ts - INTERVAL '24' HOUR <= a.ts AND b.ts > a.ts",
    "the next day": JOIN + "b.ts = a.ts + INTERVAL '1' DAY",
    "parts of a day": JOIN.replace("JOIN", "LEFT JOIN")
    + "b.ts BETWEEN a.ts AND a.ts + INTERVAL '12' HOUR + INTERVAL '12' HOUR",
}


@pytest.fixture
def berlin(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    return session


@pytest.fixture
def sources(berlin: SparkSession) -> dict[str, EpochSource]:
    made = {name: EpochSource(berlin, SCHEMA) for name in "ab"}
    made["a"].add([(1, i, noon) for i, noon in enumerate(NOONS)])
    made["b"].add(
        [
            (1, i * 100 + minutes, noon + timedelta(days=1, minutes=minutes))
            for i, noon in enumerate(NOONS)
            for minutes in AROUND
        ]
    )
    return made


def streams(sources: dict[str, EpochSource]) -> dict[str, hf.Stream]:
    return {
        name: hf.stream(source.df).with_watermark("ts", "365 days")
        for name, source in sources.items()
    }


def counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_days_are_those_of_the_sessions_time_zone(
    berlin: SparkSession, sources: dict[str, EpochSource], tmp_path: Path
) -> None:
    tables = streams(sources)
    again = f"SELECT window_start, window_end, sum(n) AS n FROM ({DAYS}) GROUP BY window_start, window_end"
    parts = [
        sql(text, **tables).write_to(hf.sinks.memory(f"zones {name}"))
        for name, text in STATEMENTS.items()
    ]
    query = hf.pipeline(
        *parts, sql(again, a=tables["a"]).write_to(hf.sinks.memory("zones again"))
    ).start("zones", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local", partitions=1)
    for source in sources.values():
        source.end()
    while query.step():
        pass
    for name, source in sources.items():
        source.rows_so_far().createOrReplaceTempView(name)
    for name, text in STATEMENTS.items():
        expected = counted(berlin.sql(text).toArrow())
        assert counted(hf.sinks.memory_table(f"zones {name}")) == expected, name
    windows = hf.sinks.memory_table("zones again").to_pylist()
    assert len(windows) == 2 * len(NOONS)
    assert all(row["window_end"] - row["window_start"] == timedelta(days=2) for row in windows)


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
def test_a_day_decides_no_match_alone(sources: dict[str, EpochSource], kind: str) -> None:
    """Only behind inner joins can the exact bound be looked at."""
    text = "SELECT a.n FROM a {} JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + {}"
    day, parts = "INTERVAL '1' DAY", "INTERVAL '12' HOUR + INTERVAL '12' HOUR"
    with pytest.raises(hf.InputError, match=r"may have 23 or 25 hours.*INTERVAL '12' HOUR \+"):
        sql(text.format(kind, day), **streams(sources))
    sql(text.format(kind, parts), **streams(sources))


def test_times_with_a_zone_and_without_are_not_compared(berlin: SparkSession) -> None:
    times = [("a", "timestamp_ntz"), ("b", "timestamp")]
    tables = {
        name: hf.stream(EpochSource(berlin, f"k int, ts {kind}").df).with_watermark("ts", "1 s")
        for name, kind in times
    }
    statement = (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND"
    )
    with pytest.raises(hf.InputError, match=r"timestamp_ntz and timestamp, which .* time zone"):
        sql(statement, **tables)
