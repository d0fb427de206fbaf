"""NEXMark's queries as streams: what they come to is what batch SQL gives for the same events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import holdfast as hf
from holdfast import nexmark
from holdfast.cli.nexmark import nexmark as command
from holdfast.errors import InputError
from holdfast.nexmark import Config, oracle
from holdfast.nexmark.queries import QUERIES
from holdfast.nexmark.run import ending_streams, run_query, watermark_delay_s
from holdfast.spark.query import Query
from holdfast.testing import EpochSource

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = 20_000
IN_ORDER = Config(events_per_second=100)
OUT_OF_ORDER = Config(events_per_second=100, out_of_order=500)
# Queries that run in one pipeline: those whose results wait for the watermark get events of a later
# day in the end, the others get none.
STATELESS = (0, 1, 2, 13, 14)
GROUPS = [(3, 18, 19, 20), (15, 16, 17), (4, 6, 9), (5, 7, 8, 11, 12)]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture(scope="module")
def batch(spark: SparkSession) -> Iterator[Callable[[str], DataFrame]]:
    """Runs the text of a query on all events: they are the same in order and out of order."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    names = ("person", "auction", "bid")
    for name, frame in zip(names, nexmark.batch(session, EVENTS, IN_ORDER), strict=True):
        frame.coalesce(2).cache().createTempView(name)
    yield session.sql
    for name in names:
        session.catalog.uncacheTable(name)
        session.catalog.dropTempView(name)


class Run:
    """A pipeline of several queries whose clock shows when the events of an epoch began."""

    def __init__(
        self,
        spark: SparkSession,
        work: Path,
        numbers: Sequence[int],
        config: Config,
        events_per_epoch: int,
    ) -> None:
        self.spark, self.work, self.numbers, self.config = spark, work, numbers, config
        self.events_per_epoch, self.epoch, self.now_ms = events_per_epoch, 0, 0
        self.query: Query | None = None
        (self.waits,) = {QUERIES[number].waits for number in numbers}
        # One epoch brings the events of the later day, the next has their watermark.
        self.epochs = EVENTS // events_per_epoch + (2 if self.waits else 0)

    def start(self) -> None:
        make = ending_streams if self.waits else nexmark.streams
        frames = make(
            self.spark, events=EVENTS, events_per_epoch=self.events_per_epoch, config=self.config
        )
        delay = watermark_delay_s(self.config)
        streams = [hf.stream(frame).with_watermark("dateTime", delay) for frame in frames]
        outputs = [
            QUERIES[number].function(*streams).write_to(hf.sinks.memory(self.name(number)))
            for number in self.numbers
        ]
        self.query = hf.pipeline(*outputs).start(
            "nexmark",
            self.work / "ck",
            trigger="manual",
            checkpoint_interval=None,
            local_dir=self.work / "local",
            max_ahead="1000000 s",
            clock=lambda: self.now_ms,
        )

    def steps(self, epochs: int) -> None:
        assert self.query is not None
        span_ms = self.events_per_epoch * 1000 // self.config.events_per_second
        for _ in range(epochs):
            # It stands still when the events are over, so that what comes later stays open.
            passed = min(self.epoch, EVENTS // self.events_per_epoch)
            self.now_ms = self.config.first_event_ms + passed * span_ms
            self.query.step(timeout=300)
            assert self.query.progress[-1].late_rows == 0
            self.epoch += 1

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()

    def name(self, number: int) -> str:
        return f"{self.work.name}-{number}"

    def table(self, number: int) -> pa.Table:
        return hf.sinks.memory_table(self.name(number))


def definition(number: int, events_per_epoch: int) -> str:
    """The text of a query; for 12, processing time is when the events of the bid's epoch began."""
    if number != 12:
        return nexmark.QUERIES[number]
    span_ms = events_per_epoch * 1000 // IN_ORDER.events_per_second
    first_ms = IN_ORDER.first_event_ms
    began = f"{first_ms} + (unix_millis(dateTime) - {first_ms}) div {span_ms} * {span_ms}"
    return oracle.in_processing_time(f"timestamp_millis({began})")


def test_there_is_a_program_for_every_query() -> None:
    assert sorted(QUERIES) == sorted(nexmark.QUERIES)
    assert sorted(n for group in (STATELESS, *GROUPS) for n in group) == sorted(QUERIES)
    for number, query in QUERIES.items():
        assert nexmark.QUERIES[number].startswith(f"\n-- {number}, {query.title}:")


def test_streams_say_what_their_rows_do(spark: SparkSession) -> None:
    frames = nexmark.streams(spark, events=10, events_per_epoch=10, config=IN_ORDER)
    streams = [hf.stream(frame).with_watermark("dateTime", 1) for frame in frames]
    for number, query in QUERIES.items():
        said = query.function(*streams).changes
        assert said.kind == query.changes.kind, f"query {number}"
        # A day says as much as the window that begins it, which Spark's plan doesn't know.
        assert said.key == query.changes.key or "window_start" in said.why, f"query {number}"


def name_of(numbers: Sequence[int]) -> str:
    return "-".join(map(str, numbers))


@pytest.mark.parametrize("numbers", [STATELESS, *GROUPS], ids=name_of)
def test_streams_come_to_what_batch_gives(
    spark: SparkSession, batch: Callable[[str], DataFrame], tmp_path: Path, numbers: Sequence[int]
) -> None:
    run = Run(spark, tmp_path, numbers, IN_ORDER, events_per_epoch=10_000)
    run.start()
    run.steps(run.epochs)
    run.stop()
    compare(run, batch)


@pytest.mark.parametrize("numbers", GROUPS, ids=name_of)
def test_events_may_come_out_of_order_and_pipelines_be_restarted(
    spark: SparkSession, batch: Callable[[str], DataFrame], tmp_path: Path, numbers: Sequence[int]
) -> None:
    run = Run(spark, tmp_path, numbers, OUT_OF_ORDER, events_per_epoch=5_000)
    run.start()
    run.steps(2)
    if run.waits:
        run.stop()
        run.start()
    run.steps(run.epochs - 2)
    run.stop()
    compare(run, batch)


def compare(run: Run, batch: Callable[[str], DataFrame]) -> None:
    for number in run.numbers:
        found = run.table(number)
        expected = batch(definition(number, run.events_per_epoch)).toArrow()
        names = [name for name in found.column_names if name != "change"]
        assert names == expected.column_names, f"query {number}"
        assert found.select(names).schema.types == expected.schema.types, f"query {number}"
        folded = hf.fold(found, QUERIES[number].changes, in_order=True)
        assert Counter(rows_of(folded)) == Counter(rows_of(expected)), f"query {number}"
        assert expected.num_rows, f"query {number}"


PERSON = "id long, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp, extra string"
AUCTION = "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp, expires timestamp, seller long, category long, extra string"
BID = "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string"


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


def test_rows_written_by_hand_will_do(spark: SparkSession, tmp_path: Path) -> None:
    sources = [EpochSource(spark, schema) for schema in (PERSON, AUCTION, BID)]
    persons, auctions, bids = sources

    def sell(number: int, opens: float, closes: float) -> dict[str, Any]:
        ids = {"id": number, "seller": 7, "category": 10}
        return {**ids, "dateTime": at(opens), "expires": at(closes)}

    def offer(auction: int, price: int, seconds: float) -> dict[str, Any]:
        return {"auction": auction, "bidder": 8, "price": price, "dateTime": at(seconds)}

    persons.add([{"id": 7, "name": "Kim", "state": "OR", "dateTime": at(1)}])
    bids.add([offer(1, 50, 3), offer(1, 70, 1.5)])
    auctions.add([sell(1, 2, 30), sell(2, 20, 40)])
    bids.add([offer(1, 60, 30), offer(1, 60, 9), offer(1, 90, 30.001), offer(2, 5, 41)])
    persons.add([{"id": 9, "name": "Lee", "state": "OR", "dateTime": at(1000)}])
    auctions.add([sell(3, 1000, 1030)])
    bids.add([offer(3, 1, 1000)])
    bids.add([offer(3, 1, 1001)])  # in its epoch the watermark has passed the first two auctions
    streams = [hf.stream(source.df).with_watermark("dateTime", "1 minute") for source in sources]
    outputs = {number: hf.sinks.memory(f"by-hand-{number}") for number in (3, 8, 9)}
    parts = [QUERIES[n].function(*streams).write_to(sink) for n, sink in outputs.items()]
    query = hf.pipeline(*parts).start("by-hand", tmp_path / "ck", trigger="available-now")
    assert query.await_termination(120)
    found = {n: [tuple(row.values()) for row in sink.rows()] for n, sink in outputs.items()}
    assert sorted(found[3]) == [("Kim", None, "OR", number) for number in (1, 2, 3)]
    assert found[8] == [(7, "Kim", at(0))]
    winning = [(row["id"], row["price"], row["bid_dateTime"]) for row in outputs[9].rows()]
    assert winning == [(1, 60, at(9))], "the first of equal bids, none before or after the auction"


def test_the_command_runs_a_query_and_compares_it(spark: SparkSession, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    arguments = ["--query", "4", "--events", "4000", "--events-per-epoch", "2000", "--check"]
    done = CliRunner().invoke(app, [*arguments, "--dir", str(tmp_path / "work")])
    assert done.exit_code == 0, done.output
    assert "average price for a category" in done.output
    assert "4,000" in done.output
    assert "yes" in done.output


def test_what_can_not_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no query 10"):
        run_query(spark, 10, 100, directory=tmp_path)
    with pytest.raises(InputError, match="0 events"):
        run_query(spark, 1, 0, directory=tmp_path)
    (tmp_path / "something").touch()
    with pytest.raises(InputError, match="not empty"):
        run_query(spark, 1, 100, directory=tmp_path)
