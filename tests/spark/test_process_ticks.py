"""Epochs without input: timers fire all the same, and where nothing is due nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.log import read_log
from holdfast.spark.query import Query
from holdfast.storage import open_storage
from holdfast.testing import EpochSource

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SCHEMA = "word string, ts timestamp"


class Reminder(hf.KeyedProcess):
    """Sets a timer of each kind and says when they fire."""

    output = "word string, what string"
    n = hf.ValueState("long", default=0)

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        self.n.value += len(rows)
        ctx.timers.set(rows[-1].ts + timedelta(minutes=1))
        ctx.timers.set(ctx.processing_time + timedelta(hours=1), "processing")
        yield key.word, f"row {self.n.value}"

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield key.word, f"{ctx.timer_clock} timer"

    def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
        pass


class Alone(Reminder):
    """The same without a control stream, and it remembers the checkpoints it was told of."""

    process_broadcast = hf.KeyedProcess.process_broadcast

    def __init__(self, checkpoint_dir: Path) -> None:
        self.checkpoint_dir = checkpoint_dir
        self.told: list[tuple[int, int]] = []

    def checkpoint_complete(self, epoch: int) -> None:
        self.told.append((epoch, checkpoints(self.checkpoint_dir)[-1].epoch))


def checkpoints(folder: Path) -> list[Checkpoint]:
    log = read_log(open_storage(folder))
    entries = [log.entry(number) for number in log.numbers]
    return [entry for entry in entries if isinstance(entry, Checkpoint)]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Clock:
    """Processing time in the test's hands."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def shown(sink: Any) -> list[str]:
    return [row["what"] for row in sink.table().to_pylist()]


def test_ticks_without_anything_due_write_no_entries(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", NOON)])
    sink, clock = hf.sinks.memory("ticks"), Clock()
    process = Alone(tmp_path / "ck")
    stream = hf.stream(source.df).with_watermark("ts", "0 s").key_by("word").process(process)
    query: Query = stream.write_to(sink).start(
        "ticks",
        tmp_path / "ck",
        trigger=0.1,
        checkpoint_interval=0.1,
        local_dir=tmp_path / "local",
        clock=clock,
    )
    try:
        until(lambda: bool(checkpoints(tmp_path / "ck")), "no checkpoint")
        first = query.status.last_epoch
        until(lambda: query.status.last_epoch >= first + 3, "no ticks")
        assert [p.rows for p in query.progress] == [1], "epochs without input were skipped"
        assert len(checkpoints(tmp_path / "ck")) == 1
        clock.ms += 3_600_000
        until(lambda: "processing timer" in shown(sink), "the timer did not fire")
        # Its watermark is that of noon, so the timer by event time waits for further rows.
        assert shown(sink) == ["row 1", "processing timer"]
        source.add([("b", NOON + timedelta(minutes=5))])
        until(lambda: "event timer" in shown(sink), "the timer did not fire")
        assert shown(sink).count("event timer") == 1
    finally:
        query.stop()
    told = [epoch for epoch, _ in process.told]
    assert told == [entry.epoch for entry in checkpoints(tmp_path / "ck")]
    assert all(epoch == in_log for epoch, in_log in process.told), "told of what the log holds"


def test_a_source_that_is_idle_lets_the_watermark_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    main = EpochSource(spark, SCHEMA, tmp_path / "in")
    rules = EpochSource(spark, SCHEMA, tmp_path / "rules")
    main.add([("a", NOON), ("b", NOON + timedelta(minutes=5))])
    rules.add([("rule", NOON - timedelta(days=1))])
    sink, clock = hf.sinks.memory("idle"), Clock()
    control = hf.stream(rules.df).with_watermark("ts", "0 s", idle_timeout="1 minute")
    keyed = hf.stream(main.df).with_watermark("ts", "0 s").key_by("word")
    query: Query = (
        keyed.connect(control)
        .broadcast(Reminder())
        .write_to(sink)
        .start(
            "idle",
            tmp_path / "ck",
            trigger=0.1,
            checkpoint_interval=0.2,
            local_dir=tmp_path / "local",
            clock=clock,
        )
    )
    try:
        until(lambda: len(shown(sink)) == 2, "no output")
        seen = query.status.last_epoch
        until(lambda: query.status.last_epoch >= seen + 2, "no ticks")
        assert sorted(shown(sink)) == ["row 1", "row 1"]
        clock.ms += 60_000
        until(lambda: "event timer" in shown(sink), "the watermark stood still")
    finally:
        query.stop()
    last = checkpoints(tmp_path / "ck")[-1].epochs[-1]
    noon_ms = int(NOON.timestamp() * 1000)
    assert last.watermark_ms == noon_ms + 5 * 60_000
    assert last.event_times == {"main": noon_ms + 5 * 60_000, "control": noon_ms - 86_400_000}
    # Only the timer of a, a minute after noon, is due.
    fired = [row for row in sink.table().to_pylist() if row["what"] == "event timer"]
    assert [row["word"] for row in fired] == ["a"]


def test_by_hand_no_tick_uses_up_a_step_that_is_meant_for_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    sink = hf.sinks.memory("early")
    stream = hf.stream(source.df).with_watermark("ts", "0 s").key_by("word")
    result = stream.process(Alone(tmp_path / "ck")).write_to(sink)
    looked = {"Waiting for data to arrive", "Processing new data"}

    def start() -> Query:
        query: Query = result.start(
            "early", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local"
        )
        spark_query = query.spark_query
        until(lambda: spark_query.status["message"] in looked, "Spark has not looked for input")
        return query

    query = start()
    try:
        assert not query.step()
        source.add([("a", NOON)])
        assert query.step()
        assert not query.step()
        assert [epoch.rows for epoch in query.progress] == [1]
    finally:
        query.stop()
    query = start()
    try:
        source.add([("a", NOON + timedelta(minutes=1))])
        assert query.step()
        assert [epoch.rows for epoch in query.progress] == [1]
        assert query.step(), "the row has moved the watermark to the first timer"
        query.checkpoint()
        assert sorted(shown(sink)) == ["event timer", "row 1", "row 2"]
    finally:
        query.stop()
    query = start()
    try:
        assert query.step(), "what waits isn't known after a restart"
        assert not query.step()
    finally:
        query.stop()


def test_by_hand_an_idle_source_lets_the_watermark_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    main = EpochSource(spark, SCHEMA, tmp_path / "in")
    rules = EpochSource(spark, SCHEMA, tmp_path / "rules")
    main.add([("a", NOON), ("b", NOON + timedelta(minutes=5))])
    rules.add([("rule", NOON - timedelta(days=1))])
    sink, clock = hf.sinks.memory("idle-by-hand"), Clock()
    control = hf.stream(rules.df).with_watermark("ts", "0 s", idle_timeout="1 minute")
    keyed = hf.stream(main.df).with_watermark("ts", "0 s").key_by("word")
    result = keyed.connect(control).broadcast(Reminder()).write_to(sink)
    query: Query = result.start(
        "idle-by-hand", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local", clock=clock
    )
    try:
        while query.step():
            pass
        clock.ms += 60_000
        assert query.step()
        assert not query.step()
        query.checkpoint()
        assert sorted(shown(sink)) == ["event timer", "row 1", "row 1"]
    finally:
        query.stop()
