"""Deduplications of Spark's, adopted: what they have seen stays seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.spark.adopt import adopt
from tests.spark.adopt_support import (
    PROVIDERS,
    add_input,
    run_spark,
    stream,
)
from tests.spark.support import write_epoch

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def go_on(program: hf.DeduplicatedStream, work: Path) -> DataFrame:
    sink = hf.sinks.parquet(str(work / "out"))
    query = program.write_to(sink).start(
        "moved", work / "ck", trigger="available-now", local_dir=work / "local"
    )
    query.await_termination()
    assert query.exception is None
    return program.rows.df.sparkSession.read.parquet(str(work / "out"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_keys_that_were_seen_stay_seen(provider: str, spark: SparkSession, tmp_path: Path) -> None:
    keys = ["word", "ratio"]
    add_input(tmp_path, files=2, keys=4, rows=12)
    before = {tuple(map(str, r)) for r in distinct(spark, tmp_path, keys)}
    old = run_spark(stream(spark, tmp_path).dropDuplicates(keys), tmp_path, provider=provider,
                    mode="append")  # fmt: skip
    program = hf.stream(stream(spark, tmp_path)).key_by(*keys).drop_duplicates()
    adopted = adopt(program, "moved", tmp_path / "ck", old)
    assert adopted.rows == {"deduplicate.seen": len(before)}
    add_input(tmp_path, files=3, keys=8, rows=12)
    every = {tuple(map(str, r)) for r in distinct(spark, tmp_path, keys)}
    assert len(every) > len(before)
    put_out = [tuple(map(str, r)) for r in go_on(program, tmp_path).select(*keys).collect()]
    assert sorted(put_out) == sorted(every - before)


def distinct(spark: SparkSession, work: Path, keys: list[str]) -> list[Any]:
    return spark.read.parquet(str(work / "in")).select(*keys).distinct().collect()


def timed(work: Path, *files: list[tuple[str, int]]) -> None:
    """Words and the seconds at which they were said, a file per batch."""
    there = len(list((work / "in").glob("*.parquet")))
    for number, rows in enumerate(files, there):
        table = pa.table(
            {
                "word": [word for word, _ in rows],
                "at": pa.array([s * 1_000_000 for _, s in rows], pa.timestamp("us", "UTC")),
            }
        )
        write_epoch(work / "in", number, table)


def words(frame: DataFrame) -> list[tuple[str, int]]:
    rows = frame.select("word", F.unix_seconds("at")).collect()
    return sorted((row[0], row[1]) for row in rows)


def test_keys_are_forgotten_when_the_old_query_would_have_forgotten_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    timed(tmp_path, [("a", 100), ("b", 130)], [("a", 110), ("c", 135)])
    frame = stream(spark, tmp_path).withWatermark("at", "20 seconds")
    old = run_spark(frame.dropDuplicatesWithinWatermark(["word"]), tmp_path, mode="append")
    watched = hf.stream(stream(spark, tmp_path)).with_watermark("at", "20 seconds")
    forever = watched.key_by("word").drop_duplicates()
    with pytest.raises(hf.InputError, match=r"dropDuplicatesWithinWatermark\(\), and the program"):
        adopt(forever, "moved", tmp_path / "ck", old)
    program = watched.key_by("word").drop_duplicates(within_watermark=True)
    adopt(program, "moved", tmp_path / "ck", old)
    # The watermark is 115 and moves to 125, which is past a's 100 + 20 and not past b's.
    timed(tmp_path, [("a", 116), ("b", 145), ("d", 115)], [("a", 140), ("b", 141), ("c", 126)])
    assert words(go_on(program, tmp_path)) == [("a", 140)]


def test_an_event_time_in_the_key_goes_on_with_its_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    timed(tmp_path, [("a", 100), ("b", 130)], [("a", 130), ("a", 131)])
    frame = stream(spark, tmp_path).withWatermark("at", "20 seconds")
    old = run_spark(frame.dropDuplicates(["word", "at"]), tmp_path, mode="append")
    watched = hf.stream(stream(spark, tmp_path)).with_watermark("at", "20 seconds")
    unwatched = hf.stream(stream(spark, tmp_path)).key_by("word", "at").drop_duplicates()
    [warning] = adopt(unwatched, "unwatched", tmp_path / "other", old).warnings
    assert "the old query has a watermark and the program has none" in warning
    program = watched.key_by("word", "at").drop_duplicates()
    adopt(program, "moved", tmp_path / "ck", old)
    timed(tmp_path, [("a", 131), ("c", 111), ("c", 112)])
    assert words(go_on(program, tmp_path)) == [("c", 112)]
