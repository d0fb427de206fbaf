"""Run a NEXMark query on generated events, and compare what it gives with the oracle."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

import holdfast as hf
from holdfast.errors import InputError
from holdfast.nexmark.generator import Config, auction, batch, bid, events, person, streams
from holdfast.nexmark.oracle import QUERIES as DEFINITIONS
from holdfast.nexmark.queries import QUERIES, NexmarkQuery
from holdfast.spark.query import Query

__all__ = [
    "RunResult",
    "ending_streams",
    "expected",
    "local_session",
    "run_query",
    "watermark_delay_s",
]

_LATER_EVENTS = 500
"""Enough for a person and an auction that pass the filters of every query."""
_BLOCK = 50
_DAY_S = 86_400
_STEP_TIMEOUT_S = 3600.0

Frames = tuple[DataFrame, DataFrame, DataFrame]
OnEpoch = Callable[[int, float], None]
"""Is told how many events are done, and how many seconds the last epoch took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to."""

    query: NexmarkQuery
    events: int
    epochs: int
    seconds: float
    """From the first epoch's beginning to the end of the last one that had events."""
    published: int
    """How many rows were put out, with those that replace or take back others."""
    result: DataFrame
    """The result: what was put out, folded. It is in the run's directory."""
    equal: bool | None
    """Whether it equals the oracle's; None if that was not asked."""

    @property
    def events_per_second(self) -> float:
        """How fast events were processed."""
        return self.events / self.seconds if self.seconds else 0.0


def local_session() -> SparkSession:
    """A quiet Spark session on all cores of this machine, with times in UTC."""
    builder = SparkSession.builder.master("local[*]").appName("holdfast-nexmark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return hf.configure(builder).getOrCreate()


def run_query(
    spark: SparkSession,
    number: int,
    events: int,
    *,
    directory: str | Path,
    events_per_epoch: int = 100_000,
    config: Config | None = None,
    partitions: int | None = None,
    check: bool = False,
    on_epoch: OnEpoch = lambda _events, _seconds: None,
) -> RunResult:
    """Run query ``number`` on the first ``events`` events; output and checkpoints go to ``directory``.

    The directory must be empty or not there: a run begins with the first event. If results wait for
    the watermark, some events of a later day come behind the last one, so that every window closes;
    what they open themselves stays open.
    """
    query, config = _query(number), config or Config()
    if events < 1 or events_per_epoch < 1:
        raise InputError(
            f"{events} events, {events_per_epoch} in an epoch", hint="give numbers of at least 1"
        )
    work = _empty(Path(directory))
    make = ending_streams if query.waits else streams
    frames = make(spark, events=events, events_per_epoch=events_per_epoch, config=config)
    delay = watermark_delay_s(config)
    timed = [hf.stream(frame).with_watermark("dateTime", delay) for frame in frames]
    rows = query.function(timed[0], timed[1], timed[2])
    clock = _SettableClock()
    running = rows.write_to(hf.sinks.parquet(work / "out")).start(
        f"nexmark-{number}",
        work / "checkpoint",
        trigger="manual",
        partitions=partitions,
        local_dir=work / "local",
        clock=clock,
    )
    epochs = -(-events // events_per_epoch)
    try:
        seconds = _run(running, epochs, events, events_per_epoch, on_epoch)
        if query.waits:
            clock.stop_ahead(60_000)
            # One brings the events of the later day, the next has their watermark.
            for _ in range(2):
                running.step(_STEP_TIMEOUT_S)
    finally:
        running.stop()
    published = spark.read.schema(rows.rows.df.schema).parquet(str(work / "out"))
    result = hf.fold(published, query.changes)
    equal = _same(number, result, expected(spark, number, events, config)) if check else None
    return RunResult(
        query=query,
        events=events,
        epochs=epochs,
        seconds=seconds,
        published=published.count(),
        result=result,
        equal=equal,
    )


def watermark_delay_s(config: Config) -> float:
    """How far the watermark has to be behind so that no event is late."""
    return config.delay_ms(max(config.out_of_order, _LATER_EVENTS) + _BLOCK) / 1000 + 0.001


def ending_streams(
    spark: SparkSession, *, events: int, events_per_epoch: int, config: Config
) -> Frames:
    """The events as streams, and a few events of a later day behind them.

    They all come within the time that the watermark is behind: it passes everything that was before,
    and nothing of them.
    """
    # Where groups of events that come out of order begin.
    whole = math.lcm(_BLOCK, max(config.out_of_order, 1))
    later = -(-(events + 2 * _DAY_S * config.events_per_second) // whole) * whole
    epochs = -(-events // events_per_epoch)
    place = F.col("value") - epochs * events_per_epoch
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", events_per_epoch)
    numbers = source.load().select(
        F.when(F.col("value") < events, F.col("value"))
        .when((place >= 0) & (place < min(_LATER_EVENTS, events_per_epoch)), place + later)
        .alias("id")
    )
    every = _events(numbers.where("id IS NOT NULL"), config)
    return person(every), auction(every), bid(every)


_events = events  # in functions that have a number of that name


def expected(spark: SparkSession, number: int, events: int, config: Config) -> DataFrame:
    """What the oracle gives for a query.

    Windows of processing time are another run's own: of query 12 only how many bids each bidder made
    is told.
    """
    frames = batch(spark, events, config)
    if number == 12:
        return frames[2].groupBy("bidder").agg(F.count("*").alias("bid_count"))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for name, frame in zip(
        ("person", "auction", "bid"), batch(session, events, config), strict=True
    ):
        frame.createTempView(name)
    return session.sql(DEFINITIONS[number])


def _query(number: int) -> NexmarkQuery:
    query = QUERIES.get(number)
    if query is None:
        raise InputError(
            f"there is no query {number}", hint=f"choose one of {', '.join(map(str, QUERIES))}"
        )
    return query


def _empty(work: Path) -> Path:
    if work.exists() and any(work.iterdir()):
        raise InputError(
            f"{work} is not empty: a run begins with the first event", hint="name a new directory"
        )
    (work / "out").mkdir(parents=True, exist_ok=True)
    return work


class _SettableClock:
    """The driver's clock, which may be set ahead; it then stands still."""

    def __init__(self) -> None:
        self._stopped_ms: int | None = None

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 if self._stopped_ms is None else self._stopped_ms

    def stop_ahead(self, ms: int) -> None:
        """Show this much more than now, for ever."""
        self._stopped_ms = self() + ms


def _run(
    running: Query, epochs: int, events: int, events_per_epoch: int, on_epoch: OnEpoch
) -> float:
    began = before = time.monotonic()
    for epoch in range(1, epochs + 1):
        running.step(_STEP_TIMEOUT_S)
        now = time.monotonic()
        on_epoch(min(events, epoch * events_per_epoch), now - before)
        before = now
    return before - began


def _same(number: int, result: DataFrame, wanted: DataFrame) -> bool:
    if number == 12:
        result = result.groupBy("bidder").agg(F.sum("bid_count").alias("bid_count"))
    both = wanted.select(*result.columns)
    return both.exceptAll(result).isEmpty() and result.exceptAll(both).isEmpty()
