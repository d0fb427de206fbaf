"""Which kind of rows a stream has, and that folding them gives the operators' current results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

SCHEMA = "word string, n long, ts timestamp"
APPEND = hf.Changes("append")


@pytest.fixture
def source(spark: SparkSession) -> EpochSource:
    return EpochSource(spark, SCHEMA)


@pytest.fixture
def rows(source: EpochSource) -> hf.Stream:
    return hf.stream(source.df).with_watermark("ts", "1 s")


def counts(rows: hf.Rows, name: str = "counts") -> hf.AggregatedStream:
    keyed = rows.key_by("word", F.length("word").alias("size"))
    return keyed.aggregate(total=hf.sum("n"), most=hf.max("n")).named(name)


def windows(rows: hf.Rows, **more: Any) -> hf.WindowResultStream:
    return rows.key_by("word").window(hf.tumbling("10 s"), **more).aggregate(total=hf.sum("n"))


def top(rows: hf.Rows) -> hf.TopStream:
    return rows.key_by("word").top(2, by=("n", "desc"))


def others(source: EpochSource) -> hf.Stream:
    """Something to join with."""
    return hf.stream(source.df.selectExpr("word", "ts AS at")).with_watermark("at", "1 s")


def why(stream: hf.Rows) -> str:
    """Why it can't be folded; folding says so."""
    changes = stream.changes
    assert changes.key is None
    assert changes.why
    with pytest.raises(hf.InputError, match="can't be folded"):
        hf.fold(pa.table({}), of=stream)
    return changes.why


def test_what_operators_put_out(source: EpochSource, rows: hf.Stream) -> None:
    assert rows.changes == APPEND
    assert counts(rows).changes == hf.Changes("update", ("word", "size"))
    assert top(rows).changes == hf.Changes("retract")
    last = rows.key_by("word", "ts").top(1, by="n", until="ts", output_mode="append")
    assert last.changes == APPEND
    assert rows.key_by("word").drop_duplicates().changes == APPEND
    joined = rows.join(others(source), on="word", between=(0, 1))
    assert joined.changes == APPEND


def test_what_windows_put_out(rows: hf.Stream) -> None:
    by_window = hf.Changes("update", ("word", "window_start"))
    assert windows(rows).changes == APPEND
    assert windows(rows, output_mode="update").changes == by_window
    assert windows(rows, output_mode="retract").changes == hf.Changes("retract")
    early = hf.emit(early_rows=2)
    assert windows(rows, emit=early).changes == by_window
    late = rows.with_watermark("ts", "1 s", allowed_lateness="5 s")
    assert windows(late).changes == by_window
    assert windows(late, emit=hf.emit(late=False)).changes == APPEND
    everything = rows.window(hf.global_window(), output_mode="update").aggregate(total=hf.sum("n"))
    assert everything.changes == hf.Changes("update", ())
    sessions = rows.key_by("word").window(hf.session("5 s"), output_mode="update")
    assert "other bounds" in why(sessions.aggregate(total=hf.sum("n")))
    applied = late.key_by("word").window(hf.tumbling("10 s")).apply(lambda t: t, "word string")
    assert "called again" in why(applied)


def test_steps_keep_the_key_under_whatever_name(rows: hf.Stream) -> None:
    updated = counts(rows)
    renamed = updated.select(F.col("word").alias("w"), "size", "total").filter("size > 1")
    assert renamed.changes == hf.Changes("update", ("w", "size"))
    assert updated.with_column("twice", F.col("total") * 2).changes == updated.changes
    # What is put beside a row leaves none out.
    assert updated.with_column("at", F.current_timestamp()).changes == updated.changes
    ended = windows(rows, output_mode="update").select("total", "window_end", "word")
    assert ended.filter("window_end > '2026-01-01'").changes == hf.Changes(
        "update", ("word", "window_end")
    )
    back = top(rows).select("word", (F.col("n") + 1).alias("more"), "change").filter("more > 3")
    assert back.changes == hf.Changes("retract")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda s: s.select("word", "total"), "leaves out or replaces size"),
        (lambda s: s.with_column("word", F.upper("word")), "leaves out or replaces word"),
        (lambda s: s.filter("total > 3"), "filters by values that change"),
        (
            lambda s: s.with_column("t", F.col("total")).filter("t > 3 AND size > 1"),
            "filters by values that change",
        ),
        (
            lambda s: s.with_column("each", F.explode(F.sequence(F.lit(0), "total"))),
            "none or several rows of one",
        ),
        (lambda s: s.filter(F.rand() < 0.5), "filters by random values"),
        (lambda s: s.with_column("r", F.rand()).filter("r < 0.5"), "filters by random values"),
        (lambda s: s.filter(F.current_timestamp() < "2026-01-01"), "the current time"),
        (
            lambda s: s.with_column("today", F.current_date()).filter("today > '2026-01-01'"),
            "the current time",
        ),
    ],
)
def test_steps_behind_which_an_update_replaces_nothing(
    rows: hf.Stream, step: Callable[[hf.Rows], hf.Stream], words: str
) -> None:
    stream = step(counts(rows))
    assert stream.changes.kind == "update"
    assert words in why(stream)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda s: s.select("word"), "leaves out or replaces the column 'change'"),
        (lambda s: s.with_column("change", -F.col("change")), "replaces the column 'change'"),
        (lambda s: s.filter("change = 1"), "filters by 'change'"),
        (lambda s: s.with_column("r", F.rand()), "otherwise when it is taken back"),
        (lambda s: s.with_column("at", F.now()), "otherwise when it is taken back"),
        (lambda s: s.with_column("signed", F.expr("n * change")), "makes 'signed' of 'change'"),
        (lambda s: s.with_column("again", F.col("change")), "makes 'again' of 'change'"),
        (lambda s: s.with_column("e", F.explode(F.array("change"))), "makes 'e' of 'change'"),
    ],
)
def test_steps_behind_which_a_change_means_something_else(
    rows: hf.Stream, step: Callable[[hf.Rows], hf.Stream], words: str
) -> None:
    stream = step(top(rows))
    assert stream.changes.kind == "retract"
    assert words in why(stream)


def test_streams_that_are_put_together(source: EpochSource, rows: hf.Stream) -> None:
    first, second = top(rows).rows, top(rows.filter("n > 1")).rows
    assert first.union(second).changes == hf.Changes("retract")
    assert rows.union(rows).changes == APPEND
    both = counts(rows).rows.union(counts(rows, "others"))
    assert both.changes.kind == "update"
    assert "a union" in why(both)
    passed = top(rows).join(others(source), on="word", between=(0, 1))
    assert passed.changes.kind == "retract"
    assert "takes every row for a new one" in why(passed)


def test_a_statement_says_it_too(rows: hf.Stream) -> None:
    pytest.importorskip("sqlglot")
    grouped = hf.sql("SELECT sum(n) AS total, word AS w FROM t GROUP BY word", t=rows)
    assert grouped.changes == hf.Changes("update", ("w",))
    of_all = hf.sql("SELECT count(*) AS n, max(word) AS last FROM t", t=rows)
    assert of_all.changes == hf.Changes("update", ())
    published = pa.table({"n": [1, 2], "last": ["a", "b"]})
    assert hf.fold(published, of=of_all, in_order=True).to_pylist() == [{"n": 2, "last": "b"}]


def at(second: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second)


EPOCHS: list[list[tuple[str | None, int, datetime]]] = [
    [("a", 1, at(1)), ("a", 5, at(2)), ("bb", 2, at(3))],
    [("a", 3, at(4)), ("a", 7, at(5)), (None, 1, at(6))],
    [("bb", 9, at(7)), ("a", 1, at(16)), ("bb", 2, at(17))],
]


def rows_of(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(str, row.values())) for row in table.to_pylist())


def batch(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return rows_of(frame.toArrow())


@pytest.mark.slow
def test_folding_what_was_published_gives_the_current_results(
    spark: SparkSession, source: EpochSource, rows: hf.Stream, tmp_path: Path
) -> None:
    updated = counts(rows)
    streams: dict[str, hf.Rows] = {
        "counts": updated,
        "renamed": updated.select(F.col("size").alias("s"), "total", "word"),
        "windows": windows(rows, output_mode="update").named("windows"),
        "top": top(rows).named("top"),
        "first": rows.key_by("word").drop_duplicates().named("first"),
    }
    columns = {"counts": None, "renamed": "epoch", "windows": None, "top": "epoch", "first": None}
    pipeline = hf.pipeline(
        *(
            stream.write_to(
                hf.sinks.parquet(tmp_path / name, epoch_column=columns[name]),
                hf.sinks.memory(f"fold-{name}"),
            )
            for name, stream in streams.items()
        )
    )
    for added in EPOCHS:
        source.add(added)
    pipeline.start("fold", tmp_path / "ck", trigger="available-now").await_termination()

    every = [row for rows_ in EPOCHS for row in rows_]
    all_rows = spark.createDataFrame(every, SCHEMA)
    size = F.length("word").alias("size")
    totals = all_rows.groupBy("word", size).agg(F.sum("n").alias("total"), F.max("n").alias("most"))
    cut = all_rows.groupBy("word", F.window("ts", "10 seconds").alias("w"))
    ranked = all_rows.selectExpr(
        "*", "row_number() OVER (PARTITION BY word ORDER BY n DESC, ts) AS place"
    )
    expected = {
        "counts": batch(totals),
        "renamed": batch(totals.select("size", "total", "word")),
        "windows": batch(cut.agg(F.sum("n").alias("t")).select("word", "w.start", "w.end", "t")),
        "top": batch(ranked.filter("place <= 2").drop("place")),
    }
    for name, wanted in expected.items():
        stream = streams[name]
        published = spark.read.parquet(str(tmp_path / name))
        folded = hf.fold(published, of=stream)
        assert batch(folded) == wanted, name
        kept = [column for column in stream.rows.df.columns if column != "change"]
        assert folded.columns == kept, name
        kept_rows = hf.fold(hf.sinks.memory_table(f"fold-{name}"), of=stream, in_order=True)
        assert rows_of(kept_rows) == wanted, name
    assert hf.fold(spark.read.parquet(str(tmp_path / "first")), of=streams["first"]).count() == 3

    with pytest.raises(Exception, match="taken back that aren't there"):
        hf.fold(spark.read.parquet(str(tmp_path / "top"))).collect()

    # Arrow's reader gives epochs in the order of names, and a column for the folder.
    table = ds.dataset(tmp_path / "renamed", partitioning="hive").to_table()
    with pytest.raises(hf.InputError, match="columns that the stream has not: 'epoch'"):
        hf.fold(table, of=streams["renamed"], in_order=True)
    assert rows_of(hf.fold(table, of=streams["renamed"], epoch="epoch")) == expected["renamed"]


def test_what_spark_rows_it_refuses(spark: SparkSession, rows: hf.Stream, tmp_path: Path) -> None:
    with pytest.raises(hf.InputError, match="not a stream"):
        hf.fold(rows.df, key="word")
    made = spark.createDataFrame([("a", 1), ("a", 2)], "word string, n long")
    with pytest.raises(hf.InputError, match="don't come straight from files"):
        hf.fold(made, key="word")
    with pytest.raises(hf.InputError, match=r"in no order.* leave in_order= out"):
        hf.fold(made, key="word", in_order=True)
    assert hf.fold(made, key="word", epoch="n").collect() == [("a",)]
    made.coalesce(1).write.parquet(str(tmp_path / "compacted"))
    with pytest.raises(Exception, match="has no epoch in its name"):
        hf.fold(spark.read.parquet(str(tmp_path / "compacted")), key="word").collect()
    assert hf.fold(made, key=(), epoch="n").collect() == [("a",)]
    assert hf.fold(made.where("n > 9"), key=(), epoch="n").collect() == []
    with pytest.raises(hf.InputError, match="of kind 'append'"):
        hf.fold(made, of=rows, key="word")


def test_any_name_can_be_that_of_a_key(spark: SparkSession) -> None:
    made = spark.createDataFrame([("a", 1), ("a", 2)], "last string, n long")
    assert hf.fold(made, key="last", epoch="n").collect() == [("a",)]
