"""Steps without state: each is PySpark's of that name, and what is known of the rows goes along."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.testing import EpochSource


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 12, 0, second, tzinfo=timezone.utc)


ROWS = [("kelp", 1, 3), ("rock", 2, 4), (None, 3, 5)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda s: s.where("n > 1"), lambda df: df.where("n > 1")),
        (lambda s: s.where(F.col("n") > 1), lambda df: df.where(F.col("n") > 1)),
        (lambda s: s.filter("word IS NULL"), lambda df: df.filter("word IS NULL")),
        (lambda s: s.drop("n", "nowhere"), lambda df: df.drop("n", "nowhere")),
        (lambda s: s.drop(F.col("n")), lambda df: df.drop(F.col("n"))),
        (lambda s: s.select("m", "n"), lambda df: df.select("m", "n")),
        (
            lambda s: s.select_expr("n + m AS sum", "upper(word) AS w"),
            lambda df: df.selectExpr("n + m AS sum", "upper(word) AS w"),
        ),
        (
            lambda s: s.with_columns({"k": F.col("n") * 2, "n": F.lit(0)}),
            lambda df: df.withColumns({"k": F.col("n") * 2, "n": F.lit(0)}),
        ),
        (
            lambda s: s.with_column_renamed("n", "number"),
            lambda df: df.withColumnRenamed("n", "number"),
        ),
        (
            lambda s: s.with_columns_renamed({"n": "k", "word": "w"}),
            lambda df: df.withColumnsRenamed({"n": "k", "word": "w"}),
        ),
    ],
)
def test_a_step_is_pysparks(
    spark: SparkSession,
    tmp_path: Path,
    ours: Callable[[hf.Stream], hf.Stream],
    theirs: Callable[[DataFrame], DataFrame],
) -> None:
    source = EpochSource(spark, "word string, n int, m int")
    source.add(ROWS)
    sink = hf.sinks.memory("steps")
    query = ours(hf.stream(source.df)).write_to(sink).start(
        "steps", tmp_path / "ck", trigger="available-now", local_dir=tmp_path / "local"
    )  # fmt: skip
    query.await_termination("2 minutes")
    expected = theirs(source.rows_so_far())
    assert ours(hf.stream(source.df)).df.schema == expected.schema
    assert sink.rows() == [row.asDict() for row in expected.collect()]


def test_a_column_that_is_not_there_can_not_be_renamed(spark: SparkSession) -> None:
    words = hf.stream(EpochSource(spark, "word string, n int").df)
    with pytest.raises(hf.InputError, match=r"no column 'm' to rename. .* are word, n"):
        words.with_column_renamed("m", "k")


def test_two_columns_may_change_places(spark: SparkSession) -> None:
    words = hf.stream(EpochSource(spark, "word string, n int").df)
    swapped = words.with_columns_renamed({"word": "n", "n": "word"}).df
    assert [(f.name, f.dataType.simpleString()) for f in swapped.schema] == [
        ("n", "string"), ("word", "int")
    ]  # fmt: skip


def test_what_is_known_of_a_column_goes_along_with_its_new_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, "word string, ts timestamp")
    for second in (1, 3, 25):
        source.add([("kelp", at(second))])
    rows = hf.stream(source.df).with_watermark("ts", "2 s").with_column_renamed("ts", "at")
    assert rows.watermark is not None
    assert rows.watermark.column == "at"
    windows = rows.key_by("word").window(hf.tumbling("10 s")).aggregate(n=hf.count())
    renamed = windows.with_columns_renamed({"window_end": "end", "word": "what"})
    again = renamed.key_by("what").window(hf.tumbling("10 s")).aggregate(most=hf.max("n"))
    sink = hf.sinks.memory("renamed")
    again.write_to(sink).start(
        "renamed", tmp_path / "ck", trigger="available-now", end_of_input=True,
        local_dir=tmp_path / "local",
    ).await_termination("2 minutes")  # fmt: skip
    assert [(row["what"], row["window_start"], row["most"]) for row in sink.rows()] == [
        ("kelp", at(0), 2), ("kelp", at(20), 1)
    ]  # fmt: skip
    counts = rows.key_by("word").aggregate(n=hf.count()).with_column_renamed("word", "what")
    assert counts.changes == hf.Changes("update", ("what",))


def test_a_table_is_no_part_of_a_union(spark: SparkSession) -> None:
    table: Any = spark.range(1)
    words = hf.stream(EpochSource(spark, "id bigint").df)
    with pytest.raises(hf.InputError, match="union takes a stream, not a DataFrame"):
        words.union(table)


def test_conditions_are_taken_in_both_forms(spark: SparkSession) -> None:
    words = hf.stream(EpochSource(spark, "word string, n int").df)
    column: Column = F.col("n") > 1
    assert words.where(column).df.columns == words.filter("n > 1").df.columns == ["word", "n"]
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        words.where("nowhere > 1")
