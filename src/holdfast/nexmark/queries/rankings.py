"""Queries that keep the first of each key's bids in some order. Their results say what changes."""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.choices import SortOrder
from holdfast.stream import Rows, Stream

__all__ = ["q18", "q19"]

_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
# What decides between bids that are equal otherwise.
_TIES = ("price", "channel", "url", "extra")


def q18(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Last bid: of each bidder in each auction."""
    del person, auction
    last = bid.key_by("bidder", "auction").top(1, by=[("dateTime", "desc"), *_TIES])
    return last.named("q18-last").select(*_BID, "change")


def q19(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Top 10: of each auction the highest bids (of equal ones the earlier), with their rank."""
    del person, auction
    order: list[str | tuple[str, SortOrder]] = [("price", "desc"), "dateTime", "bidder", *_TIES[1:]]
    top = bid.key_by("auction").top(10, by=order, rank="rank_number").named("q19-top")
    rank = F.col("rank_number").cast("bigint").alias("rank_number")
    return top.select(*_BID, rank, "change")
