"""Queries on auctions and what is bid for them: joins of streams, and what auctions close at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

import holdfast as hf
from holdfast.nexmark.queries.times import EARLIEST_BID, EVER, LONGEST_AUCTION, timed_by
from holdfast.stream import Rows, Stream
from holdfast.tops import TopStream

__all__ = ["q3", "q4", "q6", "q9", "q20"]

_STATES = ("OR", "ID", "CA")
_LAST_AUCTIONS = 10
_BID_TIES = ("bidder", "channel", "url", "extra")
_ITEM = ("itemName", "description", "initialBid", "reserve")


def q3(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Local item suggestion: who sells in category 10 in Oregon, Idaho or California.

    Nothing says how long after they came persons may sell: both sides are kept.
    """
    del bid
    sellers = timed_by(person.filter(F.col("state").isin(*_STATES)), "since").select(
        F.col("id").alias("seller"), "name", "city", "state", "since"
    )
    offers = auction.filter("category = 10").select("id", "seller", "dateTime")
    found = offers.join(sellers, on="seller", between=(f"-{EVER}", EVER)).named("q3-sellers")
    return found.select("name", "city", "state", "id")


def _of(auction: Stream, *columns: str) -> Stream:
    """Some columns of auctions under names that bids don't have; ``auction`` is their id."""
    return timed_by(auction, "opens").select(
        F.col("id").alias("auction"), "opens", "expires", *columns
    )


def _winning(name: str, auction: Stream, bid: Stream, *, ties: Sequence[str] = ()) -> TopStream:
    """Of each auction, when it has closed, the highest bid made while it was open.

    Bids wait for their auction only until the watermark has passed them, since an auction can't
    begin after a bid that counts. Of an auction one bid is kept until it closes.
    """
    bids = bid.join(auction, on="auction", between=(f"-{LONGEST_AUCTION}", "0 s"))
    open_bids = bids.named(f"{name}-bids").filter("dateTime <= expires")
    return (
        open_bids.key_by("auction", "expires")
        .top(1, by=[("price", "desc"), "dateTime", *ties], until="expires", output_mode="append")
        .named(f"{name}-winning")
    )


def q4(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Average price for a category: of the highest bids of its auctions that have closed."""
    del person
    prices = bid.select("auction", "price", "dateTime")
    winning = _winning("q4", _of(auction, "category"), prices)
    finals = winning.select(F.col("category").alias("id"), "price")
    return finals.key_by("id").aggregate(final=hf.avg("price")).named("q4-average")


class _LastAuctions(hf.KeyedProcess):
    """A seller's average price over the last auctions, in the order in which they close.

    The watermark closes auctions in that order, but for those that close in one epoch.
    """

    output = "seller bigint, avg_price double"
    prices = hf.ValueState("array<bigint>")

    def process(self, key: Any, rows: Sequence[Any], ctx: hf.Context) -> Iterator[Any]:
        """Put out an average for every auction that has closed."""
        del ctx
        prices = list(self.prices.value or ())
        for row in sorted(rows, key=lambda row: (row.expires, row.auction)):
            prices = [*prices, row.price][-_LAST_AUCTIONS:]
            yield {"seller": key.seller, "avg_price": sum(prices) / len(prices)}
        self.prices.value = prices


def q6(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Average selling price by seller: whenever an auction closes, of the seller's last 10."""
    del person
    prices = bid.select("auction", "price", "dateTime")
    winning = _winning("q6", _of(auction, "seller"), prices)
    sold = winning.select("seller", "auction", "expires", "price")
    return sold.key_by("seller").process(_LastAuctions()).named("q6-average")


def q9(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Winning bids: of each auction, when it has closed, the highest bid made while it was open."""
    del person
    renamed = auction.with_column("auction_extra", F.col("extra"))
    opened = _of(renamed, *_ITEM, "seller", "category", "auction_extra")
    winning = _winning("q9", opened, bid, ties=_BID_TIES)
    return winning.select(
        F.col("auction").alias("id"),
        *_ITEM,
        F.col("opens").alias("dateTime"),
        "expires",
        "seller",
        "category",
        F.col("auction_extra").alias("extra"),
        "auction",
        "bidder",
        "price",
        F.col("dateTime").alias("bid_dateTime"),
        F.col("extra").alias("bid_extra"),
    )


def q20(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Expand bid with auction: bids for auctions of category 10, with all that is known of these."""
    del person
    wanted = auction.filter("category = 10").with_column("auction_extra", F.col("extra"))
    opened = _of(wanted, *_ITEM, "seller", "category", "auction_extra")
    bounds = (f"-{LONGEST_AUCTION}", EARLIEST_BID)
    expanded = bid.join(opened, on="auction", between=bounds).named("q20-bids")
    return expanded.select(
        "auction",
        "bidder",
        "price",
        "channel",
        "url",
        F.col("dateTime").alias("bid_dateTime"),
        F.col("extra").alias("bid_extra"),
        *_ITEM,
        F.col("opens").alias("auction_dateTime"),
        "expires",
        "seller",
        "category",
        "auction_extra",
    )
