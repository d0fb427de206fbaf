"""NEXMark's persons, auctions and bids as Spark expressions over a column of numbers.

An event is a function of its number: everything random about it is a hash of that number and of the
field. So a stream can be read again, from anywhere and with any parallelism, and a batch job sees the
events that a stream saw. Proportions, ids, hot sets, prices and texts are those of the Nexmark
project's generator; there a bidder's id is raised by the first id twice (and so never that of a
person), here once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.nexmark import words

__all__ = ["Config", "auction", "batch", "bid", "events", "person", "streams"]

# Events come in blocks: a person, then 3 auctions, then 46 bids.
_BLOCK = 50
_AUCTIONS = 3
_FIRST_ID = 1000
_FIRST_CATEGORY = 10
_CATEGORIES = 5
# 1 - 1/ratio of the bids are for a hot auction, by a hot bidder; and of the auctions, by a hot seller.
_HOT_AUCTIONS = 2
_HOT_BIDDERS = 4
_HOT_SELLERS = 4
# One of so many auctions and persons is hot at a time.
_HOT_ONE_OF = 100
_IN_FLIGHT = 100
_ACTIVE_PERSONS = 1000
# Some bids come before their auction, some auctions before their seller.
_LEAD = 10
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000
# A prime: multiplying by it changes the order within a group of events that is no multiple of it.
_STRIDE = 953
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100


@dataclass(frozen=True, slots=True)
class Config:
    """How events lie in time.

    ``out_of_order``: the size of the groups of events within which they come in another order than
    they happened (0: they come in order). The events are the same as without, by whole groups.

    >>> Config(events_per_second=1000).delay_ms(50)
    50
    """

    events_per_second: int = 10_000
    first_event_ms: int = 1_436_918_400_000
    """The event time of the first event: by default 2015-07-15, 00:00 UTC, as in the original."""
    out_of_order: int = 0

    def __post_init__(self) -> None:
        if self.events_per_second < 1:
            raise InputError(
                f"{self.events_per_second} events per second", hint="give a number of at least 1"
            )
        if self.out_of_order < 0 or math.gcd(self.out_of_order or 1, _STRIDE) != 1:
            raise InputError(
                f"events can't come out of order in groups of {self.out_of_order}",
                hint=f"give the size of a group, 0 or more, that is no multiple of {_STRIDE}",
            )

    def delay_ms(self, events: int) -> int:
        """How long so many events take."""
        return events * 1000 // self.events_per_second


def batch(
    spark: SparkSession, events: int, config: Config | None = None
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Persons, auctions and bids among the first ``events`` events."""
    every = _events(spark.range(events), config or Config())
    return person(every), auction(every), bid(every)


def streams(
    spark: SparkSession,
    *,
    events: int,
    events_per_epoch: int,
    config: Config | None = None,
    partitions: int | None = None,
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """The same as streams of one source: an epoch brings the next ``events_per_epoch`` events.

    The source can be read again from any of Spark's offsets. It doesn't end: after the last event
    its epochs are empty.
    """
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", events_per_epoch)
    if partitions is not None:
        source = source.option("numPartitions", partitions)
    numbers = source.load().where(F.col("value") < events)
    every = _events(numbers.select(F.col("value").alias("id")), config or Config())
    return person(every), auction(every), bid(every)


def events(ids: DataFrame, config: Config) -> DataFrame:
    """What happens when: for each ``id`` (bigint, from 0) the number of its event, the event's kind
    (0 person, 1 auction, 2 bid), its time, and for auctions when they end.

    The details are left to :func:`person`, :func:`auction` and :func:`bid`: each computes its own.
    """
    number = F.col("id")
    if config.out_of_order > 1:
        group = F.lit(config.out_of_order)
        number = number - number % group + number * F.lit(_STRIDE) % group
    numbered = ids.select("id", number.alias("number"))
    offset = F.col("number") % _BLOCK
    kind = F.when(offset < 1, 0).when(offset <= _AUCTIONS, 1).otherwise(2)
    ms = F.expr(f"{config.first_event_ms} + number * 1000 div {config.events_per_second}")
    # On average, auctions are open until so many more have begun.
    horizon_ms = config.delay_ms(_IN_FLIGHT * _BLOCK // _AUCTIONS)
    ends_ms = F.col("ms") + 1 + _draw(1, max(2 * horizon_ms, 1))
    return numbered.select("number", kind.alias("event_type"), ms.alias("ms")).select(
        "number",
        "event_type",
        F.timestamp_millis("ms").alias("dateTime"),
        F.when(F.col("event_type") == 1, F.timestamp_millis(ends_ms)).alias("expires"),
    )


_events = events  # in functions that have a number of that name


def person(events: DataFrame) -> DataFrame:
    """The persons among events."""
    rows = events.where("event_type = 0").select(
        (_last_person() + _FIRST_ID).alias("id"),
        F.concat_ws(" ", _one_of(2, words.FIRST_NAMES), _one_of(3, words.LAST_NAMES)).alias("name"),
        F.concat(words.text(_draw, 4, 7), F.lit("@"), words.text(_draw, 6, 5), F.lit(".com")).alias(
            "emailAddress"
        ),
        F.concat_ws(" ", *(_four_digits(field) for field in range(8, 12))).alias("creditCard"),
        _one_of(12, words.CITIES).alias("city"),
        _one_of(13, words.STATES).alias("state"),
        "dateTime",
        "number",
    )
    texts = ("name", "emailAddress", "creditCard", "city", "state")
    return _with_extra(rows, 14, _PERSON_BYTES, 8, texts)


def auction(events: DataFrame) -> DataFrame:
    """The auctions among events."""
    hot = _down_to_hundreds(_last_person())
    seller = F.when(_draw(20, _HOT_SELLERS) > 0, hot).otherwise(_some_person(21))
    rows = events.where("event_type = 1").select(
        (_last_auction() + _FIRST_ID).alias("id"),
        words.text(_draw, 22, 20, spaces=True).alias("itemName"),
        words.text(_draw, 24, 100, spaces=True).alias("description"),
        _price(26).alias("initialBid"),
        (_price(26) + _price(27)).alias("reserve"),
        "dateTime",
        "expires",
        (seller + _FIRST_ID).alias("seller"),
        (_draw(28, _CATEGORIES) + _FIRST_CATEGORY).alias("category"),
        "number",
    )
    return _with_extra(rows, 29, _AUCTION_BYTES, 48, ("itemName", "description"))


def bid(events: DataFrame) -> DataFrame:
    """The bids among events."""
    hot_auction = _down_to_hundreds(_last_auction())
    on = F.when(_draw(40, _HOT_AUCTIONS) > 0, hot_auction).otherwise(_some_auction(41))
    # Hot bidders are the second of their hundred, hot sellers the first.
    hot_bidder = _down_to_hundreds(_last_person()) + 1
    by = F.when(_draw(42, _HOT_BIDDERS) > 0, hot_bidder).otherwise(_some_person(43))
    hot = _draw(45, 2) > 0
    hot_channel, channel = _draw(46, len(_HOT_CHANNELS)), _draw(47, _CHANNELS)
    rows = events.where("event_type = 2").select(
        (on + _FIRST_ID).alias("auction"),
        (by + _FIRST_ID).alias("bidder"),
        _price(44).alias("price"),
        F.when(hot, words.element(_HOT_CHANNELS, hot_channel))
        .otherwise(F.concat(F.lit("channel-"), channel.cast("string")))
        .alias("channel"),
        # Every channel has one address; the hot ones are behind the others.
        words.url(F.when(hot, hot_channel + _CHANNELS).otherwise(channel), _CHANNELS).alias("url"),
        "dateTime",
        "number",
    )
    return _with_extra(rows, 48, _BID_BYTES, 32, ())


def _draw(field: int, below: Column | int) -> Column:
    """A whole number from 0 up to another, by chance: a hash of the event's number and the field's."""
    limit = F.lit(below).cast("bigint") if isinstance(below, int) else below
    return F.pmod(F.xxhash64(F.col("number"), F.lit(field)), limit)


def _price(field: int) -> Column:
    """From 1 to a million, in cents, low prices as frequent as high ones on a scale of powers."""
    chance = _draw(field, 2**53) / F.lit(float(2**53))
    return F.round(F.pow(F.lit(10.0), chance * 6.0) * 100.0).cast("bigint")


def _last_person() -> Column:
    """The last person so far, counted from 0."""
    return F.expr(f"number div {_BLOCK}")


def _last_auction() -> Column:
    """The last auction so far, counted from 0; for an auction itself."""
    begun = F.least(F.col("number") % _BLOCK, F.lit(_AUCTIONS).cast("bigint"))
    return _last_person() * _AUCTIONS + begun - 1


def _some_person(field: int) -> Column:
    """A person that is active, or soon will be."""
    active = F.least(_last_person() + 1, F.lit(_ACTIVE_PERSONS).cast("bigint"))
    return _last_person() + 1 - active + _draw(field, active + _LEAD)


def _some_auction(field: int) -> Column:
    """An auction that probably is open, or soon will be."""
    first = F.greatest(_last_auction() - _IN_FLIGHT, F.lit(0).cast("bigint"))
    return first + _draw(field, _last_auction() - first + 1 + _LEAD)


def _down_to_hundreds(number: Column) -> Column:
    return number - number % _HOT_ONE_OF


def _one_of(field: int, values: tuple[str, ...]) -> Column:
    return words.element(values, _draw(field, len(values)))


def _four_digits(field: int) -> Column:
    return F.lpad(_draw(field, 10_000).cast("string"), 4, "0")


def _with_extra(
    rows: DataFrame, field: int, average: int, numbers: int, texts: tuple[str, ...]
) -> DataFrame:
    """Add text that brings events to an average size; numbers and texts are what they have so far."""
    size = F.lit(numbers)
    for name in texts:
        size = size + F.length(name)
    wanted = F.lit(average) - size
    spread = F.greatest(F.round(wanted * 0.2).cast("int"), F.lit(1))
    length = wanted - spread + _draw(field, (spread * 2).cast("bigint")).cast("int")
    return rows.withColumn("extra", words.letters(_draw(field + 1, words.PLACES), length)).drop(
        "number"
    )
