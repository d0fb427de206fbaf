"""A running pipeline: what its user can see and do."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast import failpoints
from holdfast.checkpoint.entry import Checkpoint, entry_name
from holdfast.checkpoint.log import Log, read_log
from holdfast.checkpoint.retention import list_collectable
from holdfast.errors import FencedError, StateLostError
from holdfast.sinks._noop import NoopSink
from holdfast.spark.engine import SparkEngine
from holdfast.spark.session import QUERY_SETTINGS
from holdfast.storage import open_storage
from holdfast.testing import EpochSource
from tests.spark.support import state_table

pytestmark = pytest.mark.spark

SCHEMA = "word string, amount long"


def pipeline(source: EpochSource, *sinks: Any) -> hf.Pipeline:
    counts = hf.stream(source.df).key_by("word").aggregate(n=hf.count(), total=hf.sum("amount"))
    return counts.write_to(*sinks)


def start(source: EpochSource, work: Path, sink: Any, **options: Any) -> Any:
    chosen = {"checkpoint_interval": None, "local_dir": work / "local", **options}
    return pipeline(source, sink).start("q", work / "ck", **chosen)


def expected(source: EpochSource) -> dict[str, tuple[int, int]]:
    rows = (
        source.rows_so_far()
        .groupBy("word")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("t"))
    )
    return {r.word: (r.n, r.t) for r in rows.collect()}


def state(work: Path) -> dict[str, tuple[int, int]]:
    table = state_table(work)
    columns = [table[c].to_pylist() for c in ("word", "n.count", "total.sum")]
    return {word: (n, total) for word, n, total in zip(*columns, strict=True)}


def test_what_a_user_sees_of_a_running_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    sink = hf.sinks.memory("seen")
    events: list[hf.CheckpointEvent] = []
    query = start(source, tmp_path, sink, on_checkpoint=[events.append, lambda event: 1 / 0])
    assert query.status.state == "running"
    source.add([("a", 1), ("b", 2), ("a", 3)])
    source.add([("b", 5)])
    query.process_all_available()
    first, second = query.progress
    assert (first.epoch, first.rows, first.keys, first.state_rows) == (0, 3, 2, 2)
    assert (second.epoch, second.rows, second.keys, second.state_rows) == (1, 1, 1, 2)
    assert second.state_bytes > 0
    assert {"plan", "job", "receive", "state", "total"} <= set(second.seconds)
    assert second.last_checkpoint == 1
    assert events[-1].error is None
    assert events[-1].epoch == 1
    assert events[-1].new_bytes > 0
    assert query.status.last_checkpoint == 1
    assert query.status.ahead.epochs == 0
    source.add([("c", 1)])
    query.stop()
    assert not query.is_active
    assert query.exception is None
    assert query.status.state == "stopped"
    assert list(sink.epochs)[:2] == [0, 1]
    assert {"word": "a", "n": 2, "total": 4} in sink.rows()
    assert {"word": "b", "n": 2, "total": 7} in sink.rows()


def test_output_waits_for_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    query = start(source, tmp_path, hf.sinks.parquet(str(tmp_path / "out")))
    source.add([("a", 1)])
    query.spark_query.processAllAvailable()
    assert query.status.last_epoch == 0
    assert list((tmp_path / "out").glob("*.parquet")) == []
    assert query.checkpoint() == 0
    assert [p.name for p in (tmp_path / "out").glob("*.parquet")] == ["epoch-0000000000.parquet"]
    query.stop()


def test_text_that_is_not_utf8_is_state_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, "value binary", tmp_path / "in")
    delivered: list[tuple[bytes, int]] = []

    def deliver(df: Any, epoch: int, maybe_repeated: bool) -> None:
        rows = df.selectExpr("CAST(word AS BINARY) AS word", "n").collect()
        delivered.extend((bytes(row.word), row.n) for row in rows)

    sink = hf.sinks.memory("not-utf8")
    for restart in range(3):
        source.add([(b"ok",), (b"\xff\xfe",), (b"\xff\xfe",)])
        words = hf.stream(source.df.selectExpr("CAST(value AS STRING) AS word")).key_by("word")
        counted = words.aggregate(n=hf.count(), most=hf.max("word"))
        query = counted.write_to(sink, hf.sinks.foreach_batch(deliver)).start(
            "text",
            tmp_path / "ck",
            trigger="available-now",
            # With and without what is on the disk: each way has its own checks.
            local_dir=tmp_path / f"local-{restart // 2}",
        )
        query.await_termination()
    last = {row["word"]: (row["n"], row["most"]) for row in sink.rows()}
    assert last == {"ok": (3, "ok"), "\udcff\udcfe": (6, "\udcff\udcfe")}
    assert {(b"ok", 3), (b"\xff\xfe", 6)} <= set(delivered)


def test_manual_steps_run_one_epoch_each(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    query = start(source, tmp_path, hf.sinks.noop(), trigger="manual")
    source.add([("a", 1)])
    source.add([("a", 2)])
    assert query.step()
    assert query.status.last_epoch == 0
    assert query.step()
    assert query.status.last_epoch == 1
    assert not query.step()
    query.stop()
    assert state(tmp_path) == {"a": (2, 3)}


def test_stopping_while_an_epoch_waits_leaves_it_for_the_next_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", 1)])
    source.add([("a", 2)])
    query = start(source, tmp_path, hf.sinks.noop(), trigger="manual")
    assert query.step()
    query.stop()
    assert query.exception is None
    assert state(tmp_path) == {"a": (1, 1)}
    start(source, tmp_path, hf.sinks.noop(), trigger="available-now").await_termination()
    assert state(tmp_path) == {"a": (2, 3)}


def test_every_epoch_is_in_the_log_when_durability_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    for amount in range(4):
        source.add([("a", amount)])
    query = start(source, tmp_path, hf.sinks.noop(), durability="epoch", trigger="available-now")
    query.await_termination()
    log = read_log(open_storage(tmp_path / "ck"))
    entries = [log.entry(number) for number in log.numbers]
    assert [e.epoch for e in entries if isinstance(e, Checkpoint)] == [0, 1, 2, 3]


def test_only_retained_checkpoints_and_what_they_name_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    for amount in range(12):
        source.add([(f"w{amount % 5}", amount)])
    options = {"durability": "epoch", "trigger": "available-now", "keep_last": 3}
    start(source, tmp_path, hf.sinks.memory("kept"), **options).await_termination()
    log = read_log(open_storage(tmp_path / "ck"))
    checkpoints = list(log.checkpoints())
    assert [c.epoch for c in checkpoints] == [11, 10, 9]
    named = set().union(*(c.objects() for c in checkpoints))
    there = {
        str(p.relative_to(tmp_path / "ck"))
        for folder in ("runs", "blobs", "staged")
        for p in (tmp_path / "ck" / folder).glob("*")
    }
    assert named == there
    local = list((tmp_path / "local").rglob("*.run"))
    assert len(local) <= 9  # of more than twelve that were written
    open_files = [os.path.realpath(p) for p in Path("/proc/self/fd").iterdir()]
    assert not [name for name in open_files if name.startswith(str(tmp_path / "local"))]


def test_nothing_is_left_that_no_entry_names(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    query = start(source, tmp_path, hf.sinks.noop(), trigger="manual")
    merged = 0
    # As the thread that takes checkpoints does, behind the entry; or else it would be there first.
    with query._running.checkpoints.merging:
        for amount in range(8):
            source.add([(f"w{amount % 5}", amount)])
            query.step()
            query.checkpoint()
            merged += query._running.parts.jobs.compact()
    assert merged
    storage = open_storage(tmp_path / "ck")
    lost = f"runs/{query._running.coordinator.log.claim_number}-7-0-of-a-task-that-failed"
    storage.put(lost, b"half of a run")
    query.stop()
    log = read_log(storage)
    named = set().union(*(log.reader.summary(number).objects for number in log.numbers))
    assert set(list_collectable(storage)) == named
    assert state(tmp_path) == expected(source)


def test_batches_are_measured_while_rows_are_wide(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, "word string, note string", tmp_path / "in")
    notes = hf.stream(source.df).key_by("word").top(1, by="note")
    query = notes.write_to(hf.sinks.noop()).start(
        "wide", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local", partitions=1
    )
    limits = []
    for width in (8_000, 10, 10):
        source.add([(f"w{i}", f"{i} " + "x" * width) for i in range(3_000)])
        query.step()
        engine = query._running.parts.engine
        assert isinstance(engine, SparkEngine)
        limits.append(engine._settings["spark.sql.execution.arrow.maxBytesPerBatch"])
    query.stop()
    # In the first epoch nothing is known, in the second that rows were wide.
    assert limits == [str(64 << 20), str(64 << 20), str((1 << 31) - 1)]


class _Closes(NoopSink):
    """Counts how often it is opened and closed, and fails at one of them."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.opened, self.closed = fails, 0, 0

    def open(self, context: Any) -> None:
        if self.fails == "open":
            raise ConnectionError("nobody answers")
        self.opened += 1

    def close(self) -> None:
        self.closed += 1
        if self.fails == "close":
            raise ConnectionError("nobody answers")


def test_a_sink_that_can_not_be_closed_keeps_nothing_from_ending(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    first, second = _Closes("close"), _Closes("close")
    query = pipeline(source, first, second).start("q", tmp_path / "ck")
    source.add([("a", 1)])
    query.process_all_available()
    query.stop()
    assert (first.closed, second.closed) == (1, 1)


def test_a_start_that_fails_closes_what_it_has_opened(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    first, second = _Closes(), _Closes("open")
    with pytest.raises(ConnectionError):
        pipeline(source, first, second).start("q", tmp_path / "ck")
    assert (first.opened, first.closed, second.closed) == (1, 1, 0)


def test_what_would_wait_for_itself_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    refused: list[str] = []

    def ask(*_: Any) -> None:
        for call in (query.stop, query.checkpoint, query.process_all_available, query.step):
            with pytest.raises(hf.InputError, match="would wait") as raised:
                call()
            refused.append(raised.value.message.partition("()")[0])

    sink = hf.sinks.foreach_batch(ask)
    query = start(source, tmp_path, sink, on_checkpoint=ask)
    source.add([("a", 1)])
    query.process_all_available()
    query.stop()
    # By the sink and then by the callback.
    assert refused == ["stop", "checkpoint", "process_all_available", "step"] * 2


def test_after_a_clean_stop_nothing_is_delivered_again(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    calls: list[tuple[int, bool]] = []
    sink = hf.sinks.foreach_batch(lambda df, epoch, repeated: calls.append((epoch, repeated)))
    for _ in range(3):
        source.add([("a", 1)])
        query = start(source, tmp_path, sink)
        query.process_all_available()
        query.stop()
    assert calls == [(0, False), (1, False), (2, False)]


def test_process_all_available_says_that_a_sink_keeps_failing(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    down = True

    def write(df: DataFrame, epoch: int, maybe_repeated: bool) -> None:
        if down:
            raise OSError("the warehouse is down")
        taken.append(epoch)

    taken: list[int] = []
    query = start(source, tmp_path, hf.sinks.foreach_batch(write))
    source.add([("a", 1)])
    for _ in range(2):
        with pytest.raises(hf.HoldfastError, match="the warehouse is down"):
            query.process_all_available()
    down = False
    query.process_all_available()
    assert taken == [0]
    source.add([("a", 1)])
    query.process_all_available()
    down = True
    source.add([("a", 1)])
    query._running.started.process_all()
    with pytest.raises(hf.HoldfastError, match="the warehouse is down"):
        query.stop()
    assert taken == [0, 1]


def test_state_that_is_lost_before_the_first_checkpoint_stays_on_the_timeline_that_was_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    query = start(source, tmp_path, hf.sinks.noop())
    entries = []
    for amount in (1, 10, 100):
        source.add([("a", amount)])
        query.process_all_available()
        entries.append(query._running.coordinator.last.number)
    query.stop()
    query = start(source, tmp_path, hf.sinks.noop(), from_entry=entries[0], trigger="manual")

    def lose() -> None:
        running = query._running
        before = running.started
        running.lose_and_end(StateLostError("a host is gone"), running.parts)
        running.wait_past(before)
        assert running.coordinator.last is not None

    lose()
    assert query._running.coordinator.last.number == entries[0]
    query.step()
    assert query.checkpoint() == 3
    lose()
    # From now on its own checkpoint is where it goes on.
    assert query._running.coordinator.last.epoch == 3
    query.step()
    query.stop()
    assert state(tmp_path) == expected(source)


@pytest.mark.parametrize("ended", [False, True])
def test_a_step_that_meets_a_loss_runs_an_epoch_behind_it(
    spark: SparkSession, tmp_path: Path, ended: bool
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    query = start(source, tmp_path, hf.sinks.noop(), trigger="manual")
    source.add([("a", 1)])
    if ended:
        source.end()

    def lose() -> None:
        raise StateLostError("a host is gone")

    failpoints.arm("epoch.start", lose)
    assert query.step()
    failpoints.disarm("epoch.start")
    assert len(query.recoveries) == 1
    assert query.step() == ended
    assert not query.step()
    assert query.is_active != ended
    query.stop()
    assert state(tmp_path) == expected(source)


def test_who_goes_back_does_not_claim_above_another_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been fenced without having noticed."""
    monkeypatch.setattr("holdfast.driver.running._FENCE_CHECK_S", 3600.0)
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", 1)])
    query = start(source, tmp_path, hf.sinks.noop())
    query.process_all_available()
    storage = open_storage(tmp_path / "ck")
    other = Log.claim(storage, "q", "other", now_ms=lambda: 1, nonce=lambda: "x")
    running = query._running
    running.lose_and_end(StateLostError("a host is gone"), running.parts)
    with pytest.raises(FencedError, match=r"can't recover: .* of another driver"):
        query.await_termination(60)
    assert read_log(storage).last_number == other.claim_number


def test_epochs_of_a_damaged_entry_are_not_published_under_the_same_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    out = tmp_path / "out"
    query = start(source, tmp_path, hf.sinks.parquet(str(out)))
    for amount in (1, 10):
        source.add([("a", amount)])
        query.process_all_available()
    damaged = query._running.coordinator.last.number
    query.stop()
    storage = open_storage(tmp_path / "ck")
    # What was written behind it knows better; so it is gone as well.
    storage.delete([entry_name(n) for n in read_log(storage).numbers if n > damaged])
    storage.put(entry_name(damaged), b"damaged")
    with pytest.raises(hf.CorruptionError, match=r"start from entry 1 "):
        start(source, tmp_path, hf.sinks.parquet(str(out)))
    query = start(
        source, tmp_path, hf.sinks.parquet(str(out)), from_entry=1, trigger="available-now"
    )
    query.await_termination()
    assert query.progress[0].epoch > 1
    assert state(tmp_path) == expected(source)


def test_the_users_session_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    before = {name: spark.conf.get(name, None) for name in QUERY_SETTINGS}
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", 1)])
    start(source, tmp_path, hf.sinks.noop(), trigger="available-now").await_termination()
    assert {name: spark.conf.get(name, None) for name in QUERY_SETTINGS} == before


def test_scratch_is_on_this_disk_wherever_spark_keeps_its_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    # As on a Hadoop cluster; nobody is there.
    session.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    session.conf.set("ipc.client.connect.max.retries", "0")
    ticks = session.readStream.format("rate").option("rowsPerSecond", 10).load()
    counts = hf.stream(ticks.selectExpr("value % 2 AS odd")).key_by("odd").aggregate(n=hf.count())
    sink = hf.sinks.memory("own-disk")
    for _ in range(2):
        query = counts.write_to(sink).start("q", tmp_path / "ck", local_dir=tmp_path / "local")
        seen, deadline = len(sink.rows()), time.monotonic() + 60
        while len(sink.rows()) == seen:
            assert time.monotonic() < deadline
            query.checkpoint()
            time.sleep(0.1)
        query.stop()


@pytest.mark.slow
def test_an_epoch_larger_than_memory_spills(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    chance = random.Random(3)
    for _ in range(2):
        source.add([(f"word-{chance.randrange(60_000)}", i) for i in range(120_000)])
    query = start(
        source,
        tmp_path,
        hf.sinks.noop(),
        trigger="available-now",
        memory_bytes=1 << 20,
        partitions=2,
    )
    query.await_termination()
    assert query.progress[0].spilled_bytes > 0
    assert state(tmp_path) == expected(source)


@pytest.mark.slow
@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_epochs_any_partitions_and_any_restarts_equal_batch(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    work = tmp_path_factory.mktemp("any")
    source = EpochSource(spark, SCHEMA, work / "in")
    rows = st.tuples(st.sampled_from(["a", "b", "c", "", "é", None]), st.integers(-99, 99))
    for _ in range(data.draw(st.integers(1, 3), label="starts")):
        for epoch in data.draw(st.lists(st.lists(rows, max_size=8), max_size=3), label="epochs"):
            source.add(epoch)
        query = start(
            source,
            work,
            hf.sinks.parquet(str(work / "out")),
            trigger="available-now",
            partitions=data.draw(st.integers(1, 5), label="partitions"),
        )
        query.await_termination()
    if len(source):
        assert state_or_empty(work) == expected(source)


def state_or_empty(work: Path) -> dict[str, tuple[int, int]]:
    last = read_log(open_storage(work / "ck")).last_checkpoint
    return state(work) if last is not None and last.state_rows else {}
