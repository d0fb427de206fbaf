"""A running pipeline: what its user can see and do."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.retention import list_collectable
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
    assert list((tmp_path / "out").glob("epoch=*")) == []
    assert query.checkpoint() == 0
    assert [p.name for p in (tmp_path / "out").glob("epoch=*")] == ["epoch=0"]
    query.stop()


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
    for amount in range(8):
        source.add([(f"w{amount % 5}", amount)])
        query.step()
        query.checkpoint()
        # As the thread that takes checkpoints does, behind the entry.
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
        limits.append(
            query._running.parts.loop._settings["spark.sql.execution.arrow.maxBytesPerBatch"]
        )
    query.stop()
    # In the first epoch nothing is known, in the second that rows were wide.
    assert limits == [str(64 << 20), str(64 << 20), str((1 << 31) - 1)]


def test_the_users_session_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    before = {name: spark.conf.get(name, None) for name in QUERY_SETTINGS}
    source = EpochSource(spark, SCHEMA, tmp_path / "in")
    source.add([("a", 1)])
    start(source, tmp_path, hf.sinks.noop(), trigger="available-now").await_termination()
    assert {name: spark.conf.get(name, None) for name in QUERY_SETTINGS} == before


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
