"""State variables and timers of transformWithState, adopted by a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import holdfast as hf
from holdfast.checkpoint.log import read_log
from holdfast.spark.adopt import OldQuery, adopt, tables
from holdfast.spark.adopt.contents import contents
from holdfast.storage import open_storage
from tests.spark.adopt_support import PROVIDER, ROCKSDB, run_spark, stream
from tests.spark.support import write_epoch

pytest.importorskip("google.protobuf", reason="PySpark's transformWithState needs protobuf")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Workers can't import this module: its classes travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

HOUR_MS = 3_600_000
OUTPUT = "word string, size int, what string"


def add_words(work: Path, *files: list[tuple[str | None, int | None]]) -> None:
    """Rows of word and size, a file per batch, with the number of their file."""
    there = len(list((work / "in").glob("*.parquet")))
    for number, rows in enumerate(files, there):
        seconds = 100 + 10 * number
        table = pa.table(
            {
                "word": pa.array([word for word, _ in rows], pa.string()),
                "size": pa.array([size for _, size in rows], pa.int32()),
                "file": pa.array([number] * len(rows), pa.int32()),
                "at": pa.array([seconds * 1_000_000] * len(rows), pa.timestamp("us", "UTC")),
            }
        )
        write_epoch(work / "in", number, table)


class Old(StatefulProcessor):
    """Every kind of state, with and without a time to live, and timers."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long, label string")
        self.recent = handle.getValueState("recent", "n long", HOUR_MS)
        self.items = handle.getListState("items", "item string")
        self.fresh = handle.getListState("fresh", "file int", HOUR_MS)
        self.counts = handle.getMapState("counts", "name string", "n int")
        self.pairs = handle.getMapState("pairs", "a int, b string", "x double", HOUR_MS)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:
        files = [row.file for row in rows]
        seen = self.total.get()[0] if self.total.exists() else 0
        self.total.update((seen + len(files), "old"))
        self.recent.update((len(files),))
        for file in files:
            self.items.appendValue((f"i{file}",))
            self.fresh.appendValue((file,))
            name = (f"f{file}",)
            before = self.counts.getValue(name)[0] if self.counts.containsKey(name) else 0
            self.counts.updateValue(name, (before + 1,))
            self.pairs.updateValue((file, "b"), (file / 2,))
        self.handle.registerTimer(timers.getCurrentProcessingTimeInMs() + HOUR_MS // 2)
        items = [item[0] for item in self.items.get()]
        known = [
            seen + len(files),
            items,
            self.counts.getValue(("f0",)),
            len(list(self.fresh.get())),
        ]
        yield Row(word=key[0], size=key[1], what=json.dumps(known))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N803
        yield Row(word=key[0], size=key[1], what="timer")

    def close(self) -> None:
        pass


class Moved(hf.KeyedProcess):
    """The same, by Holdfast; it puts out all it knows of a key."""

    output = OUTPUT
    total = hf.ValueState("n long, label string")
    recent = hf.ValueState("long", ttl="1 hour")
    items = hf.ListState("string")
    fresh = hf.ListState("file int", ttl="1 hour")
    counts = hf.MapState("string", "int")
    pairs = hf.MapState("a int, b string", "double", ttl="1 hour")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        known = {
            "total": self.total.value["n"] if self.total.exists() else None,
            "recent": self.recent.value,
            "items": list(self.items),
            "fresh": [item["file"] for item in self.fresh],
            "counts": dict(self.counts.items()),
            "pairs": sorted((*pair, x) for pair, x in self.pairs.items()),
            "timers": len(ctx.timers.list("processing")),
            "one": self.counts.get("f0"),
        }
        self.items.append("new")
        yield {"word": key.word, "size": key.size, "what": json.dumps(known)}

    def on_timer(self, key: Any, when: Any, ctx: Any) -> Iterator[Any]:
        yield {"word": key.word, "size": key.size, "what": "timer"}


def run_old(spark: SparkSession, work: Path, batches: int) -> Path:
    """The old query after so many batches; the next one fails."""

    def sink(batch: DataFrame, number: int) -> None:
        if number == batches:
            raise ValueError("enough")
        batch.write.format("noop").mode("overwrite").save()

    frame = stream(spark, work).groupBy("word", "size")
    processed = frame.transformWithState(Old(), OUTPUT, "append", "ProcessingTime")
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        writer = processed.writeStream.outputMode("append").foreachBatch(sink)
        query = writer.option("checkpointLocation", str(work / "old")).start()
        with pytest.raises(StreamingQueryException, match="enough"):
            query.awaitTermination()
    finally:
        spark.conf.unset(PROVIDER)
    return work / "old"


def batch_time(old: Path, batch: int) -> int:
    return int(
        json.loads((old / f"offsets/{batch}").read_text().split("\n")[1])["batchTimestampMs"]
    )


def moved(spark: SparkSession, work: Path, process: Any = None) -> hf.Pipeline:
    keyed = hf.stream(stream(spark, work)).key_by("word", "size")
    return keyed.process(process or Moved()).write_to(hf.sinks.parquet(str(work / "out")))


def go_on(pipeline: hf.Pipeline, work: Path, now_ms: int) -> list[Row]:
    """What the moved job puts out of the input that is there, at this time."""
    before = hf_rows(pipeline, work)
    query = pipeline.start(
        "moved",
        work / "ck",
        trigger="available-now",
        local_dir=work / "local",
        clock=lambda: now_ms,
    )
    query.await_termination()
    assert query.exception is None
    after = hf_rows(pipeline, work)
    return [row for row in after if row not in before]


def hf_rows(pipeline: hf.Pipeline, work: Path) -> list[Row]:
    if not list((work / "out").rglob("*.parquet")):
        return []
    spark = pipeline.outputs[0].stream.df.sparkSession
    return spark.read.parquet(str(work / "out")).collect()


def test_every_kind_of_state_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    keys = [("a", 1), ("a", None), (None, 2), ("b", 1)]
    add_words(tmp_path, keys, [("a", 1), ("a", 1), ("c", 3)], [("b", 1)])
    old = run_old(spark, tmp_path, batches=3)
    pipeline = moved(spark, tmp_path)
    adopted = adopt(pipeline, "moved", tmp_path / "ck", old)
    assert adopted.epoch == 2
    assert adopted.rows == {
        "process.values": 5,
        "process.list.items": 8,
        "process.list.fresh": 8,
        "process.map.counts": 7,
        "process.map.pairs": 7,
        "process.due.processing": 7,
    }
    add_words(tmp_path, [("a", 1), (None, 2), ("new", 1)])
    soon = batch_time(old, 2) + 1000
    told = {(r.word, r.size): json.loads(r.what) for r in go_on(pipeline, tmp_path, soon)}
    assert told["a", 1] == {
        "total": 3,
        "recent": 2,
        "items": ["i0", "i1", "i1"],
        "fresh": [0, 1, 1],
        "counts": {"f0": 1, "f1": 2},
        "pairs": [[0, "b", 0.0], [1, "b", 0.5]],
        "timers": 2,
        "one": 1,
    }
    assert told[None, 2]["items"] == ["i0"]
    assert told["new", 1] == {
        "total": None,
        "recent": None,
        "items": [],
        "fresh": [],
        "counts": {},
        "pairs": [],
        "timers": 0,
        "one": None,
    }
    # An hour later what lived for a time is gone, and every timer has fired, once.
    add_words(tmp_path, [("a", 1)])
    later = go_on(pipeline, tmp_path, soon + HOUR_MS)
    [known] = [json.loads(r.what) for r in later if r.what != "timer"]
    assert known["items"] == ["i0", "i1", "i1", "new"]
    assert (known["recent"], known["fresh"], known["pairs"]) == (None, [], [])
    fired = sorted((str(r.word), str(r.size)) for r in later if r.what == "timer")
    expected = [*keys, ("a", 1), ("c", 3), ("b", 1)]
    assert fired == sorted((str(word), str(size)) for word, size in expected)


def test_show_tells_of_every_variable(spark: SparkSession, tmp_path: Path) -> None:
    add_words(tmp_path, [("a", 1), ("b", 1)])
    old = OldQuery.open(spark, run_old(spark, tmp_path, batches=1))
    found = {state.what: state for state in contents(old, old.operators[0])}
    assert list(found) == [
        "transformWithState(), MapState counts",
        "transformWithState(), ListState fresh, with a ttl",
        "transformWithState(), ListState items",
        "transformWithState(), MapState pairs, with a ttl",
        "transformWithState(), ValueState recent, with a ttl",
        "transformWithState(), ValueState total",
        "transformWithState(), timers of processing time",
    ]
    total = found["transformWithState(), ValueState total"]
    assert (total.columns[1], total.rows) == ("value: n: bigint, label: string", 2)


class Purging(StatefulProcessor):
    """Declares a list that it no longer wants, and deletes it, and another that it never had."""

    def init(self, handle: Any) -> None:
        self.n = handle.getValueState("n", "n long")
        self.gone = handle.getListState("gone", "item string")
        handle.deleteIfExists("gone")
        handle.deleteIfExists("never")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:
        (n,) = self.n.get() or (0,)
        self.n.update((n + len(list(rows)),))
        yield Row(word=str(key[0]), size=n, what="")

    def close(self) -> None:
        pass


def test_a_variable_that_init_deletes_and_a_struct_as_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_words(tmp_path, [("a", 1), ("a", None), (None, None), ("a", 1)])

    def processed(rows: Any) -> Any:
        places = rows.select(F.struct("word", "size").alias("place"))
        return places.groupBy("place").transformWithState(Purging(), OUTPUT, "append", "None")

    old = run_spark(processed(stream(spark, tmp_path)), tmp_path, mode="append")
    pipeline = processed(hf.stream(stream(spark, tmp_path))).write_to(
        hf.sinks.parquet(str(tmp_path / "out"))
    )
    adopted = adopt(pipeline, "moved", tmp_path / "ck", old)
    assert adopted.rows == {"process.values": 3}
    add_words(tmp_path, [("a", 1), (None, None), ("b", 1)])
    told = {(r.word, r.size) for r in go_on(pipeline, tmp_path, 0)}
    assert told == {
        ("{'word': 'a', 'size': 1}", 2),
        ("{'word': None, 'size': None}", 1),
        ("{'word': 'b', 'size': 1}", 0),
    }


def test_the_unchanged_processor_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    add_words(tmp_path, [("a", 1), ("b", 1)], [("a", 1)])
    old = run_old(spark, tmp_path, batches=2)
    grouped = hf.stream(stream(spark, tmp_path)).groupBy("word", "size")
    processed = grouped.transformWithState(Old(), OUTPUT, "append", "ProcessingTime")
    pipeline = processed.write_to(hf.sinks.parquet(str(tmp_path / "out")))
    adopt(pipeline, "moved", tmp_path / "ck", old)
    add_words(tmp_path, [("a", 1), ("c", 1)])
    soon = batch_time(old, 1) + 1000
    told = {r.word: json.loads(r.what) for r in go_on(pipeline, tmp_path, soon)}
    assert told == {"a": [3, ["i0", "i1", "i2"], [1], 3], "c": [1, ["i2"], None, 1]}
    add_words(tmp_path, [("b", 1)])
    later = [(r.word, r.what) for r in go_on(pipeline, tmp_path, soon + HOUR_MS)]
    # Two timers of a and one of b are the old query's, one of a and one of c the moved job's.
    assert sorted(word for word, what in later if what == "timer") == ["a", "a", "a", "b", "c"]
    [told_b] = [json.loads(what) for word, what in later if what != "timer"]
    assert told_b == [2, ["i0", "i3"], [1], 1]


class WithTimers(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:
        at = max(row.at for row in rows)
        self.handle.registerTimer(int(at.timestamp() * 1000) + 15_000)
        self.total.update((len(list(rows)),))
        yield Row(word=key[0], size=key[1], what="")

    def close(self) -> None:
        pass


class MovedTimers(hf.KeyedProcess):
    output = OUTPUT
    total = hf.ValueState("n long")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        return iter(())

    def on_timer(self, key: Any, when: Any, ctx: Any) -> Iterator[Any]:
        yield {"word": key.word, "size": key.size, "what": f"{when.timestamp():.0f}"}


class Counting(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:
        before = self.seen.get()[0] if self.seen.exists() else 0
        self.seen.update((before + len(list(rows)),))
        return iter(())

    def close(self) -> None:
        pass


class Columns(hf.BatchProcess):
    output = "word string, n long"
    seen = hf.ValueState("long", default=0)

    def process(self, batch: Any) -> Any:
        seen = batch.state["seen"].to_numpy() + batch.counts
        return hf.BatchResult({"seen": seen}, {"word": batch.keys["word"], "n": seen})


def test_a_process_on_columns_goes_on_whatever_the_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[tuple[str | None, int | None]] = [(f"w{i % 50}", 1) for i in range(120)]
    add_words(tmp_path, words, words[:60])
    frame = stream(spark, tmp_path).groupBy("word")
    counted = frame.transformWithState(Counting(), "word string", "append", "None")
    old = run_spark(counted, tmp_path, mode="append")
    program = hf.stream(stream(spark, tmp_path)).key_by("word").process(Columns())
    pipeline = program.write_to(hf.sinks.parquet(str(tmp_path / "out")))
    monkeypatch.setattr(tables, "_SMALL_BYTES", 0)
    monkeypatch.setattr(tables, "_TASK_BYTES", 1000)
    assert adopt(pipeline, "moved", tmp_path / "ck", old).rows == {"process.values": 50}
    entry = read_log(open_storage(tmp_path / "ck")).last_checkpoint
    assert entry is not None
    assert len(entry.runs) > 5
    add_words(tmp_path, words)
    told = {row.word: row.n for row in go_on(pipeline, tmp_path, batch_time(old, 1) + 1000)}
    every = [word for word, _ in [*words, *words[:60], *words]]
    assert told == {word: every.count(word) for word in set(every)}


def test_event_time_timers_go_on_with_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    # At 100, 110 and 120 seconds: the watermark comes to 115, and timers at 125 and 135 are left.
    add_words(tmp_path, [("a", 1)], [("b", 1)], [("c", 1)])
    frame = stream(spark, tmp_path).withWatermark("at", "5 seconds").groupBy("word", "size")
    processed = frame.transformWithState(WithTimers(), OUTPUT, "append", "EventTime")
    old = run_spark(processed, tmp_path, mode="append")
    source = hf.stream(stream(spark, tmp_path)).with_watermark("at", "5 seconds")
    keyed = source.key_by("word", "size").process(MovedTimers())
    pipeline = keyed.write_to(hf.sinks.parquet(str(tmp_path / "out")))
    adopted = adopt(pipeline, "moved", tmp_path / "ck", old)
    assert adopted.rows == {"process.values": 3, "process.due.event": 2}
    # At 130 and 140: the watermark comes to 125, and perhaps, once more time goes by, to 135.
    now = batch_time(old, adopted.epoch) + 1000
    fired = []
    for _ in range(2):
        add_words(tmp_path, [("x", 1)])
        fired += [(r.word, r.what) for r in go_on(pipeline, tmp_path, now)]
    assert fired in ([("b", "125")], [("b", "125"), ("c", "135")])


def test_variables_that_do_not_fit_are_named(spark: SparkSession, tmp_path: Path) -> None:
    add_words(tmp_path, [("a", 1)])
    old = run_old(spark, tmp_path, batches=1)

    def refused(message: str, **states: Any) -> None:
        kinds = {
            "total": hf.ValueState("n long, label string"),
            "recent": hf.ValueState("long", ttl="1 hour"),
            "items": hf.ListState("string"),
            "fresh": hf.ListState("int", ttl="1 hour"),
            "counts": hf.MapState("string", "int"),
            "pairs": hf.MapState("a int, b string", "double", ttl="1 hour"),
            **states,
        }
        body = {name: state for name, state in kinds.items() if state is not None}
        body |= {"output": OUTPUT, "process": MovedTimers.process}
        program = type("Program", (hf.KeyedProcess,), body)
        with pytest.raises(hf.InputError, match=message):
            adopt(moved(spark, tmp_path, program()), "moved", tmp_path / "ck", old)
        assert not (tmp_path / "ck").exists()

    refused("a MapState 'counts', which the program doesn't declare", counts=None)
    refused("'items' is a ListState in the old query and a ValueState", items=hf.ValueState("int"))
    refused("state 'total' is of .*bigint.* and of .*int", total=hf.ValueState("n int"))
    refused("state 'pairs' is of .* in the old query", pairs=hf.MapState("int", "double", ttl=5))
    refused("'recent' lives for a time in the old query", recent=hf.ValueState("long"))
    refused("'items' lives for ever in the old query", items=hf.ListState("string", ttl=5))
    refused("timers of processing time, for which the program has no code")
