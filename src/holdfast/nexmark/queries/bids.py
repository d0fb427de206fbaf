"""Queries that look at one bid at a time, and need no state."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.nexmark.queries.times import in_utc, untimed
from holdfast.stream import Rows, Stream

__all__ = ["q0", "q1", "q2", "q13", "q14"]

_SIDE_ROWS = 10_000


def _euro() -> Column:
    return F.expr("CAST(0.908 * price AS DECIMAL(23, 3))").alias("price")


def q0(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Pass through: every bid as it is."""
    del person, auction
    return bid.select("auction", "bidder", "price", "dateTime", "extra")


def q1(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Currency conversion: prices of bids in euro."""
    del person, auction
    return bid.select("auction", "bidder", _euro(), "dateTime", "extra")


def q2(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Selection: bids for some of the auctions."""
    del person, auction
    return untimed(bid).filter("auction % 123 = 0").select("auction", "price")


def q13(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Bounded side input join: bids with the value that a table of 10,000 rows has for them."""
    del person, auction
    return bid.transform(_with_side_input)


def _with_side_input(bids: DataFrame) -> DataFrame:
    side = bids.sparkSession.range(_SIDE_ROWS).select(
        F.col("id").alias("key"), F.col("id").cast("string").alias("value")
    )
    joined = bids.join(F.broadcast(side), F.col("auction") % _SIDE_ROWS == F.col("key"))
    return joined.select("auction", "bidder", "price", "dateTime", "value")


def q14(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Calculation: bids in a range of prices, their time of day, and how often "c" is in their text."""
    del person, auction
    hour = F.hour(in_utc("dateTime"))
    kind = (
        F.when(hour.between(8, 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
    )
    without = F.replace("extra", F.lit("c"), F.lit(""))
    letters = (F.length("extra") - F.length(without)).cast("bigint")
    wanted = bid.filter("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    return wanted.select(
        "auction",
        "bidder",
        _euro(),
        kind.alias("bidTimeType"),
        "dateTime",
        "extra",
        letters.alias("c_counts"),
    )
