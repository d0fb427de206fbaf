"""Bad processes through Spark: a clear error where it was written, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.checkpoint.log import read_log
from holdfast.errors import ConfigurationError, InputError, ProcessingError
from holdfast.spark.query import Query
from holdfast.storage import open_storage
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Total(hf.KeyedProcess):
    """Sums amounts; trips over amount 13 as it is told."""

    output = "word string, total long"
    total = hf.ValueState("long", default=0)
    broken: str = ""

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            if row.amount == 13:
                self.trip(ctx)
            self.total.value += row.amount
        yield key.word, "much" if self.broken == "row" else self.total.value

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> None:
        pass

    def trip(self, ctx: Any) -> None:
        if self.broken == "raises":
            raise LookupError("no thirteenth floor")
        if self.broken == "timer":
            ctx.timers.set(datetime(1969, 7, 20))
        if self.broken == "state":
            self.total.value = 13.5


def total(broken: str = "") -> Total:
    made = Total()
    made.broken = broken
    return made


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> EpochSource:
    made = EpochSource(spark, "word string, amount long, ts timestamp", tmp_path / "in")
    made.add([("a", 1, NOON), ("b", 2, NOON)])
    return made


@pytest.fixture
def keyed(source: EpochSource) -> Any:
    return hf.stream(source.df).with_watermark("ts", "1 minute").key_by("word")


Start = Callable[..., Query]


@pytest.fixture
def start(source: EpochSource, tmp_path: Path) -> Start:
    def begin(process: Any, **options: Any) -> Query:
        stream = hf.stream(source.df).with_watermark("ts", "1 minute").key_by("word")
        sink = hf.sinks.parquet(str(tmp_path / "out"), epoch_column="epoch")
        chosen = {
            "checkpoint_interval": None,
            "trigger": "available-now",
            "local_dir": tmp_path / "local",
            **options,
        }
        return stream.process(process).write_to(sink).start("totals", tmp_path / "ck", **chosen)

    return begin


def tree(folder: Path) -> dict[str, bytes]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def last_epoch(work: Path) -> int:
    entry = read_log(open_storage(work / "ck")).last_checkpoint
    assert entry is not None
    return entry.epoch


def test_a_state_declared_twice(keyed: Any) -> None:
    class Twice(Total):
        total = hf.ValueState("long")

    with pytest.raises(InputError, match="Twice declares state 'total' twice"):
        keyed.process(Twice())


def test_a_type_that_can_not_be_a_key(source: EpochSource) -> None:
    df = source.df.withColumn("tags", F.create_map("word", "amount"))
    with pytest.raises(InputError, match=r"tags.*map"):
        hf.stream(df).key_by("tags").process(Total())
    with pytest.raises(InputError, match="the entries of a map can't be found by array<int>"):
        hf.MapState("array<int>", "long")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("amount", "watermark column 'amount' is of type bigint, not a timestamp"),
        ("word", "watermark column 'word' is of type string, not a timestamp"),
        ("when", "the watermark names column 'when', which the input doesn't have"),
    ],
)
def test_a_watermark_column_that_is_no_timestamp(
    column: str, message: str, source: EpochSource
) -> None:
    with pytest.raises(InputError, match=message):
        hf.stream(source.df).with_watermark(column, "1 minute")


def test_a_watermark_column_that_is_dropped_later(source: EpochSource) -> None:
    stream = hf.stream(source.df).with_watermark("ts", "1 minute")
    with pytest.raises(InputError, match="'ts', which the input doesn't have"):
        stream.select("word", "amount")


def test_a_delay_that_is_none(source: EpochSource) -> None:
    with pytest.raises(InputError, match="delay can't be 'soon'"):
        hf.stream(source.df).with_watermark("ts", "soon")


def test_a_time_to_live_by_event_time_needs_a_watermark(source: EpochSource) -> None:
    class Aging(Total):
        old = hf.ValueState("long", ttl="1 day", ttl_clock="event")

    with pytest.raises(InputError, match="state 'old' of Aging lives by event time, but"):
        hf.stream(source.df).key_by("word").process(Aging())


def test_what_is_no_process(keyed: Any, source: EpochSource) -> None:
    with pytest.raises(InputError, match="is no process"):
        keyed.process(print)
    with pytest.raises(InputError, match="is no process"):
        keyed.process(Total)
    with pytest.raises(InputError, match="there is no side output 'lat'"):
        keyed.process(Total()).write_to(lat=hf.sinks.memory("late"))


def test_broadcast_state_and_its_stream_go_together(keyed: Any, source: EpochSource) -> None:
    class Limited(Total):
        limits = hf.BroadcastState("string", "long")

        def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
            pass

    control = hf.stream(source.df)
    with pytest.raises(InputError, match="Limited has broadcast state, but no control stream"):
        keyed.process(Limited())
    with pytest.raises(InputError, match="Total has no process_broadcast"):
        keyed.connect(control).broadcast(Total())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "messages"),
    [
        (
            "raises",
            [
                "Total.process raised LookupError for key (word='b') in epoch 1",
                'raise LookupError("no thirteenth floor")',
                "self.trip(ctx)",
            ],
        ),
        (
            "row",
            [
                "Total put out a row for key (word='b') in epoch 1 that doesn't fit its output",
                "field 'total' should be bigint, but is 'much' (str)",
                "What to do: the output is declared as word string, total bigint; then start",
            ],
        ),
        (
            "timer",
            [
                "Total.process, for key (word='b') in epoch 1: a timer can't be set for",
                "1969, 7, 20, 0, 0), which is before 1970",
                "ctx.timers.set(datetime(1969, 7, 20))",
            ],
        ),
        (
            "state",
            [
                "for key (word='b') in epoch 1: state 'total' was given 13.5 (float), which is no "
                "bigint",
                "self.total.value = 13.5",
            ],
        ),
    ],
)
def test_a_process_that_fails_loses_nothing_and_continues_when_it_is_mended(
    broken: str, messages: list[str], source: EpochSource, start: Start, tmp_path: Path
) -> None:
    assert start(total()).await_termination(120)
    before = tree(tmp_path / "ck")
    source.add([("b", 13, NOON + timedelta(minutes=1))])
    query = start(total(broken))
    with pytest.raises(ProcessingError) as raised:
        query.await_termination(120)
    for message in messages:
        assert message in str(raised.value)
    assert query.status.state == "failed"
    after = tree(tmp_path / "ck")
    assert {name: after.get(name) for name in before} == before, "what was there is there"
    assert last_epoch(tmp_path) == 0
    assert start(total()).await_termination(120)
    assert last_epoch(tmp_path) == 1
    published = source.df.sparkSession.read.parquet(str(tmp_path / "out"))
    rows = {(row.word, row.total, row.epoch) for row in published.collect()}
    assert rows == {("a", 1, 0), ("b", 2, 0), ("b", 15, 1)}


@pytest.mark.slow
def test_state_that_changed_its_kind_or_type_is_refused_before_anything_is_touched(
    source: EpochSource, start: Start, tmp_path: Path
) -> None:
    class Mapped(hf.KeyedProcess):
        output = "word string, total long"
        total = hf.MapState("string", "long")

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
            yield key.word, len(self.total)

    class Narrow(hf.KeyedProcess):
        output = "word string, total long"
        total = hf.ValueState("int")

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
            yield key.word, self.total.value

    assert start(Total()).await_termination(120)
    before = tree(tmp_path / "ck")
    with pytest.raises(ConfigurationError, match=r"'total' was a value .* and is now a map"):
        start(Mapped())
    with pytest.raises(ConfigurationError, match=r"'total' was bigint .* and is now int"):
        start(Narrow())
    assert tree(tmp_path / "ck") == before
