"""A finite run says that its input has ended: all that waits comes out, once, and the log says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.entry import END_MS, Checkpoint
from holdfast.checkpoint.log import read_log
from holdfast.errors import (
    ConfigurationError,
    HoldfastError,
    InputError,
    ProcessingError,
    StorageError,
)
from holdfast.failpoints import arm, disarm
from holdfast.spark.query import Query
from holdfast.storage import open_storage
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
SCHEMA = "k string, n long, ts timestamp"
PAYMENTS = "k string, paid long, at timestamp"
SINKS = ("hours", "days", "paid", "chain", "rounds")


class Chain(hf.KeyedProcess):
    """Says the time an hour after each row, and each hour from then on until four."""

    output = "k string, at timestamp"

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> None:
        for row in rows:
            ctx.timers.set(row.ts + HOUR)
        ctx.timers.set(ctx.processing_time + timedelta(days=999), "processing")

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield key.k, when
        if when < NOON + 4 * HOUR:
            ctx.timers.set(when + HOUR)


def body(rows: hf.Stream) -> tuple[hf.Stream, hf.Stream]:
    less = rows.with_column("n", F.col("n") - 1)
    return less.filter("n > 0"), less.filter("n <= 0").select("k", "ts")


def pipeline(orders: EpochSource, payments: EpochSource, prefix: str) -> hf.Pipeline:
    """Windows behind windows, a join that holds rows back, timers that set timers, and a loop."""
    rows = hf.stream(orders.df).with_watermark("ts", "10 minutes")
    others = hf.stream(payments.df).with_watermark("at", "10 minutes")
    hours = rows.key_by("k").window(hf.tumbling("1 hour")).aggregate(n=hf.sum("n")).named("hours")
    days = hours.window(hf.tumbling("1 day")).aggregate(n=hf.sum("n"), hours=hf.count())
    joined = rows.join(others, "k", how="left", between=("0 s", "2 hours")).named("join")
    paid = joined.window(hf.tumbling("1 day")).aggregate(n=hf.count(), paid=hf.count("paid"))
    chain = rows.key_by("k").process(Chain()).named("chain")
    rounds = rows.iterate(body, name="rounds")
    results = (hours, days.named("days"), paid.named("paid"), chain, rounds)
    pairs = zip(SINKS, results, strict=True)
    return hf.pipeline(*(r.write_to(hf.sinks.memory(f"{prefix}-{name}")) for name, r in pairs))


def filled(spark: SparkSession, folder: Path) -> tuple[EpochSource, EpochSource]:
    orders = EpochSource(spark, SCHEMA, folder / "in")
    payments = EpochSource(spark, PAYMENTS, folder / "payments")
    orders.add([("a", 3, NOON), ("b", 1, NOON + HOUR / 2)])
    orders.add([("a", 2, NOON + HOUR), ("b", 4, NOON + 2 * HOUR)])
    payments.add([("a", 1, NOON + HOUR / 4)])
    payments.add([("b", 1, NOON + 3 * HOUR)])
    return orders, payments


def published(prefix: str) -> dict[str, list[tuple[Any, ...]]]:
    def shown(name: str) -> list[tuple[Any, ...]]:
        rows = hf.sinks.memory_table(f"{prefix}-{name}").to_pylist()
        return sorted(tuple(map(str, row.values())) for row in rows)

    return {name: shown(name) for name in SINKS}


def expected(spark: SparkSession, orders: EpochSource, payments: EpochSource) -> dict[str, Any]:
    """Windows and joins as Spark's batch engine has them; the rest by hand."""
    left, right = orders.rows_so_far(), payments.rows_so_far()
    cut = left.groupBy("k", F.window("ts", "1 hour").alias("w")).agg(F.sum("n").alias("n"))
    hours = cut.select("k", "w.start", "w.end", "n")
    days = hours.groupBy(F.window("start", "1 day").alias("w")).agg(F.sum("n"), F.count("*"))
    near = F.col("at").between(F.col("ts"), F.col("ts") + F.expr("INTERVAL 2 HOURS"))
    joined = left.join(right, (left.k == right.k) & near, "left")
    paid = joined.groupBy(F.window("ts", "1 day").alias("w")).agg(F.count("*"), F.count("paid"))

    def shown(frame: Any) -> list[tuple[Any, ...]]:
        table = frame.toArrow().to_pylist()
        return sorted(tuple(map(str, row.values())) for row in table)

    fired = [("a", h) for h in (1, 2, 3, 4)] + [("b", h) for h in (1.5, 2.5, 3, 3.5, 4, 4.5)]
    return {
        "hours": shown(hours),
        "days": shown(days.select("w.start", "w.end", "sum(n)", "count(1)")),
        "paid": shown(paid.select("w.start", "w.end", "count(1)", "count(paid)")),
        "rounds": shown(left.drop("n")),
        "chain": sorted((k, str(NOON + HOUR * h)) for k, h in fired),
    }


def assert_complete(spark: SparkSession, prefix: str, *sources: EpochSource) -> None:
    assert published(prefix) == expected(spark, *sources)


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Newest first."""
    return list(read_log(open_storage(folder)).checkpoints())


@pytest.mark.slow
def test_all_that_waits_comes_out_once_and_the_log_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders, payments = filled(spark, tmp_path)

    def run(**options: Any) -> Query:
        settings: dict[str, Any] = {"trigger": "available-now", "local_dir": tmp_path / "local"}
        parts = pipeline(orders, payments, "end")
        return parts.start("end", tmp_path / "ck", **(settings | options))

    run().await_termination()
    assert published("end")["days"] == [], "without a word about the end all is as it was"
    query = run(end_of_input=True)
    query.process_all_available()
    assert not query.is_active
    assert_complete(spark, "end", orders, payments)
    newest, before, *_ = checkpoints(tmp_path / "ck")
    last = newest.epochs[-1]
    assert (last.watermark_ms, last.ended, last.rows) == (END_MS, True, 0)
    assert last.previous_watermark_ms == before.epochs[-1].watermark_ms
    assert not any(record.at_end for record in before.epochs)

    orders.add([])
    run(trigger="1 s").await_termination()
    assert checkpoints(tmp_path / "ck")[0].number == newest.number, "nothing happened"
    orders.add([("a", 5, NOON + 3 * HOUR)])
    with pytest.raises(ConfigurationError, match=r"pipeline 'end' has ended.* more") as caught:
        run().await_termination()
    assert f"from_entry={before.number}" in str(caught.value)
    before_more = published("end")
    run(from_entry=before.number, end_of_input=True).await_termination()
    again = published("end")
    assert all(set(before_more[name]) <= set(again[name]) for name in SINKS)
    assert ("a", str(NOON + 3 * HOUR), str(NOON + 4 * HOUR), "5") in again["hours"]


# A failure here is followed by another start, as after a kill: nothing is kept but the log.
WINDOWS = [
    "end.before",
    "epoch.before_record",
    "end.recorded",
    "checkpoint.after_store",
    "checkpoint.after_pre_commit",
    "checkpoint.after_entry",
    "checkpoint.before_acknowledge",
    "start.published",
]


@pytest.mark.slow
def test_a_crash_around_the_last_epoch_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    orders, payments = filled(spark, tmp_path)

    def run(**options: Any) -> None:
        pipeline(orders, payments, "crash").start(
            "crash",
            tmp_path / "ck",
            trigger="available-now",
            local_dir=tmp_path / "local",
            checkpoint_interval=None,
            **options,
        ).await_termination()

    run()
    for point in WINDOWS:
        arm(point, "fail")
        try:
            run(end_of_input=True)
        except (HoldfastError, OSError):
            pass
        finally:
            disarm(point)
    run()
    assert_complete(spark, "crash", orders, payments)
    assert checkpoints(tmp_path / "ck")[0].epochs[-1].ended


_DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import holdfast as hf
from tests.spark.test_end_of_input import reported

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = hf.configure(builder).getOrCreate()
reported(spark, Path(sys.argv[1])).await_termination()
"""


def reported(spark: SparkSession, work: Path) -> Query:
    """A finite run that counts the rows of each hour in JSON files."""
    rows = hf.stream(spark.readStream.schema(SCHEMA).json(str(work / "in")))
    hours = rows.with_watermark("ts", "10 minutes").window(hf.tumbling("1 hour"))
    return (
        hours.aggregate(n=hf.sum("n"))
        .write_to(hf.sinks.parquet(work / "out"))
        .start(
            "report",
            work / "ck",
            trigger="available-now",
            end_of_input=True,
            local_dir=work / "local",
        )
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
@pytest.mark.parametrize("action", ["kill", "stop"])
def test_a_driver_that_dies_or_sleeps_in_its_last_epochs_and_another_that_ends_them(
    spark: SparkSession, tmp_path: Path, action: str
) -> None:
    (tmp_path / "in").mkdir()
    given = [{"k": "a", "n": n, "ts": (NOON + n * HOUR / 2).isoformat()} for n in range(5)]
    (tmp_path / "in" / "rows.json").write_text("\n".join(map(json.dumps, given)))
    environment = {
        **os.environ,
        "HOLDFAST_FAILPOINTS": f"end.recorded={action}",
        "PYSPARK_PYTHON": sys.executable,
    }
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(tmp_path)],
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    happened = os.waitid(os.P_PID, driver.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert happened is not None
    assert happened.si_code == (os.CLD_STOPPED if action == "stop" else os.CLD_KILLED)
    reported(spark, tmp_path).await_termination()
    os.kill(driver.pid, signal.SIGCONT)
    # 75: it has been fenced.
    assert driver.wait(120) == (75 if action == "stop" else -signal.SIGKILL)
    counted = spark.read.parquet(str(tmp_path / "out")).orderBy("window_start")
    assert [row.n for row in counted.collect()] == [1, 5, 4]
    assert checkpoints(tmp_path / "ck")[0].epochs[-1].ended


class Later(hf.KeyedProcess):
    """Sends rows on an hour later, one less."""

    output = SCHEMA
    n = hf.ValueState("long")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> None:
        self.n.value = rows[-1].n
        ctx.timers.set(rows[-1].ts + HOUR)

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield key.k, self.n.value - 1, when


@pytest.mark.slow
def test_rows_that_the_end_sends_round_take_an_epoch_each(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", 3, NOON), ("b", 2, NOON + HOUR / 2)])

    def delayed(rows: hf.Stream) -> tuple[hf.Stream, hf.Stream]:
        later = rows.key_by("k").process(Later()).with_watermark("ts", "0 s")
        return later.filter("n > 0"), later.filter("n <= 0")

    def run(name: str = "round") -> Query:
        loop = hf.stream(source.df).with_watermark("ts", "0 s").iterate(delayed, name="loop")
        return loop.write_to(hf.sinks.memory(name)).start(
            name, tmp_path / name, trigger="available-now", end_of_input=True
        )

    arm("end.between", "fail")
    with pytest.raises(HoldfastError, match=r"failpoint"):
        run().await_termination()
    disarm("end.between")
    last = checkpoints(tmp_path / "round")[0].epochs[-1]
    assert (last.at_end, last.ended) == (True, False), "rows still go round"
    run().await_termination()
    assert checkpoints(tmp_path / "round")[0].epochs[-1].ended
    rows = hf.sinks.memory_table("round").to_pylist()
    assert sorted((row["k"], row["ts"]) for row in rows) == [
        ("a", NOON + 3 * HOUR),
        ("b", NOON + 2.5 * HOUR),
    ]

    monkeypatch.setattr("holdfast.driver.ending._MOST_EPOCHS", 2)
    with pytest.raises(ProcessingError, match=r"'endless' has ended.*rows still go round"):
        run("endless").await_termination()


def test_a_run_that_is_stopped_early_has_not_ended(spark: SparkSession, tmp_path: Path) -> None:
    """By somebody who stops Spark's query, here while its first epoch of the run is at work."""
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    for n in range(3):
        source.add([("a", 1, NOON + n * HOUR)])
    hours = hf.stream(source.df).with_watermark("ts", "0 s").window(hf.tumbling("1 hour"))
    result = hours.aggregate(n=hf.count()).write_to(hf.sinks.memory("early"))
    started = threading.Event()

    def stop_it() -> None:
        assert started.wait(60)
        threading.Thread(target=query.spark_query.stop, daemon=True).start()
        while query.spark_query.isActive:
            time.sleep(0.01)

    arm("epoch.recorded", stop_it)
    try:
        query: Query = result.start(
            "early", tmp_path / "ck", trigger="available-now", end_of_input=True
        )
        started.set()
        query.await_termination()
    finally:
        disarm("epoch.recorded")
    assert not checkpoints(tmp_path / "ck")[0].epochs[-1].at_end
    query = result.start("early", tmp_path / "ck", trigger="available-now", end_of_input=True)
    query.await_termination()
    assert [row["n"] for row in hf.sinks.memory_table("early").to_pylist()] == [1, 1, 1]


def test_what_the_last_rows_watermark_has_passed_comes_out_in_the_same_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in Spark: all rows came in one epoch, whose own watermark was that of before them."""
    source = EpochSource(spark, SCHEMA, tmp_path / "in")

    def run(**options: Any) -> Query:
        rows = hf.stream(source.df).with_watermark("ts", "10 minutes").key_by("k")
        hours = rows.window(hf.tumbling("1 hour")).aggregate(n=hf.sum("n")).named("hours")
        days = hours.window(hf.tumbling("2 hours")).aggregate(n=hf.sum("n"), hours=hf.count())
        results = hours.write_to(hf.sinks.memory("h")), days.write_to(hf.sinks.memory("d"))
        query = hf.pipeline(*results).start(
            "passed", tmp_path / "ck", trigger="available-now", **options
        )
        query.await_termination()
        return query

    def seen(name: str) -> list[tuple[datetime, int]]:
        rows = hf.sinks.memory_table(name).to_pylist()
        return sorted((row["window_start"], row["n"]) for row in rows)

    source.add([("a", n, NOON + n * HOUR / 2) for n in range(6)])
    assert len(run().progress) == 2
    assert seen("h") == [(NOON, 1), (NOON + HOUR, 5)]
    assert seen("d") == [(NOON, 6)]
    newest = checkpoints(tmp_path / "ck")[0]
    assert [record.rows for record in newest.epochs[-2:]] == [6, 0]

    assert len(run().progress) == 1, "a start looks what waits; the watermark has not moved since"
    assert len(seen("h")) == 2
    late = ("a", 9, NOON + HOUR)
    source.add([late, ("a", 7, NOON + 3.2 * HOUR)])
    query = run()
    assert [epoch.late_rows for epoch in query.progress] == [1, 0]
    source.add([("a", 1, NOON + 3.3 * HOUR)])
    assert len(run().progress) == 1, "nothing is due though the watermark has moved"
    query = run(end_of_input=True)
    assert seen("h") == [(NOON, 1), (NOON + HOUR, 5), (NOON + 2 * HOUR, 9), (NOON + 3 * HOUR, 8)]
    assert seen("d") == [(NOON, 6), (NOON + 2 * HOUR, 17)]


def test_all_that_is_available_is_processed_when_that_epoch_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", n, NOON + n * HOUR) for n in range(3)])
    hours = hf.stream(source.df).with_watermark("ts", "0 s").window(hf.tumbling("1 hour"))
    query = (
        hours.aggregate(n=hf.sum("n"))
        .write_to(hf.sinks.memory("all"))
        .start(
            "all",
            tmp_path / "ck",
            trigger="available-now",
            checkpoint_interval=None,
            max_ahead_bytes=1,
        )
    )
    query.process_all_available()
    assert not query.is_active
    assert sorted(row["n"] for row in hf.sinks.memory_table("all").to_pylist()) == [0, 1]
    entries = [[epoch.epoch for epoch in entry.epochs] for entry in checkpoints(tmp_path / "ck")]
    assert entries == [[1], [0]], "it waits for an entry as every epoch does that is too far ahead"


def test_a_run_whose_storage_fails_before_that_epoch_ends_with_what_storage_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", n, NOON + n * HOUR) for n in range(3)])
    hours = hf.stream(source.df).with_watermark("ts", "0 s").window(hf.tumbling("1 hour"))
    result = hours.aggregate(n=hf.sum("n")).write_to(hf.sinks.memory("fails"))

    def fail(self: Coordinator) -> None:
        self.last_error = StorageError("no storage")

    with monkeypatch.context() as without_storage:
        without_storage.setattr(Coordinator, "checkpoint", fail)
        query = result.start("fails", tmp_path / "ck", trigger="available-now", max_ahead_bytes=1)
        with pytest.raises(StorageError, match="no storage"):
            query.await_termination(120)
    result.start("fails", tmp_path / "ck", trigger="available-now").await_termination()
    assert sorted(row["n"] for row in hf.sinks.memory_table("fails").to_pylist()) == [0, 1]


@pytest.mark.parametrize("point", ["end.watermark", "end.recorded"])
def test_a_run_that_fails_around_the_epoch_of_its_last_rows_watermark_puts_nothing_out_twice(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", n, NOON + n * HOUR) for n in range(3)])
    windows = hf.stream(source.df).with_watermark("ts", "0 s").window(hf.tumbling("1 hour"))
    result = windows.aggregate(n=hf.sum("n")).write_to(hf.sinks.memory(point))

    def run() -> None:
        result.start("back", tmp_path / "ck", trigger="available-now").await_termination()

    def seen() -> list[int]:
        return [row["n"] for row in hf.sinks.memory_table(point).to_pylist()]

    arm(point, "fail")
    try:
        with pytest.raises(HoldfastError, match="failpoint"):
            run()
    finally:
        disarm(point)
    run()
    assert sorted(seen()) == [0, 1]
    source.add([("a", 5, NOON + 2 * HOUR), ("a", 1, NOON + 3 * HOUR)])
    run()
    assert sorted(seen()) == [0, 1, 7]


def test_input_that_goes_on_has_no_end(spark: SparkSession, tmp_path: Path) -> None:
    for trigger in ("manual", "1 s", 0.5):
        with pytest.raises(InputError, match=r"end_of_input=True .*available-now"):
            hf.Pipeline(()).start("never", tmp_path / "ck", trigger=trigger, end_of_input=True)
    with pytest.raises(InputError, match=r"'0 s' unless given"):
        hf.Pipeline(()).start("never", tmp_path / "ck", end_of_input=True)
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.end()
    with pytest.raises(InputError, match=r"has ended.*before end\(\)"):
        EpochSource(spark, SCHEMA, tmp_path / "in").add([("a", 1, NOON)])


@pytest.mark.slow
def test_sources_that_end_while_epochs_come_by_themselves(
    spark: SparkSession, tmp_path: Path
) -> None:
    sources = filled(spark, tmp_path)
    query = pipeline(*sources, "by-itself").start(
        "p", checkpoint_dir=tmp_path / "ck", trigger="0 s"
    )
    query.process_all_available()
    assert published("by-itself")["days"] == []
    for source in sources:
        source.end()
    query.process_all_available()
    assert_complete(spark, "by-itself", *sources)
    assert query.await_termination(0.0)
    assert checkpoints(tmp_path / "ck")[0].epochs[-1].ended
