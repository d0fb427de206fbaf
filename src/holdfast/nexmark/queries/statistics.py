"""Queries that count per day. Their results are updated in every epoch; a day's state goes with it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

import holdfast as hf
from holdfast.nexmark.queries.times import in_utc
from holdfast.stream import Rows, Stream

__all__ = ["q15", "q16", "q17"]

_DAY = hf.tumbling("1 day")
_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def q15(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Bidding statistics: bids, bidders and auctions per day, by how high the bids are."""
    del person, auction
    return _statistics("q15", bid, ()).select("day", *_names())


def q16(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Channel statistics: the same per channel and day, with the minute of the last bid."""
    del person, auction
    minute = F.date_format(in_utc("last"), "HH:mm").alias("minute")
    return _statistics("q16", bid, ("channel",)).select("channel", "day", minute, *_names())


def q17(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Auction statistics: bids per auction and day, with their prices."""
    del person, auction
    aggregates = _bids()
    aggregates |= {"min_price": hf.min("price"), "max_price": hf.max("price")}
    aggregates |= {"avg_price": hf.avg("price"), "sum_price": hf.sum("price")}
    days = bid.key_by("auction").window(_DAY, output_mode="update").aggregate(**aggregates)
    return days.named("q17-days").select("auction", _day(), *aggregates)


def _day() -> Column:
    return F.date_format(in_utc("window_start"), "yyyy-MM-dd").alias("day")


def _bids() -> dict[str, hf.Aggregate]:
    """How many bids there are, by how high they are."""
    return {f"{rank}_bids": hf.count(F.when(F.expr(prices), 1)) for rank, prices in _RANKS.items()}


def _names() -> list[str]:
    """The columns of the statistics, in their order."""
    return [f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in _RANKS]


def _statistics(name: str, bid: Stream, by: tuple[str, ...]) -> Rows:
    """Counts of bids, and of different bidders and auctions, per day.

    Different ones are counted exactly, in two steps: first how many bids each bidder made, where a new
    count takes the one before back; then how many of these counts there are. So a day's state is a row
    per bidder and per auction, however many bids there are, and goes when the watermark passes the day.
    """
    bidders = _changes(name, bid, by, "bidder", count_bids=True)
    auctions = _changes(name, bid, by, "auction", count_bids=False)
    days = bidders.union(auctions).key_by(*by, "day").window(_DAY, output_mode="update")
    sums = {column: hf.sum(column) for column in _names()}
    return days.aggregate(last=hf.max("last"), **sums).named(f"{name}-days")


def _changes(name: str, bid: Stream, by: tuple[str, ...], who: str, *, count_bids: bool) -> Stream:
    """By how much each count of a day changes."""
    counted = bid.key_by(*by, who).window(_DAY, output_mode="retract")
    each = counted.aggregate(last=hf.max("dateTime"), **_bids()).named(f"{name}-{who}s")
    change, nothing = F.col("change").cast("bigint"), F.lit(0).cast("bigint")
    columns = []
    for rank in _RANKS:
        bids = F.col(f"{rank}_bids")
        # Bids are counted once, in one of the two streams.
        columns.append((change * bids if count_bids else nothing).alias(f"{rank}_bids"))
        for whose in ("bidder", "auction"):
            counts = F.when(bids > 0, change).otherwise(nothing) if whose == who else nothing
            columns.append(counts.alias(f"{rank}_{whose}s"))
    # A time taken back doesn't hurt: the one that replaces it isn't less.
    return each.select(*by, _day(), "window_end", "last", *columns)
