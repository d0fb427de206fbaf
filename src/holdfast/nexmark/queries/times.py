"""How far apart rows that belong together may be, and how a stream's time gets another name."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.stream import Stream

__all__ = ["EARLIEST_BID", "EVER", "LONGEST_AUCTION", "in_utc", "timed_by", "untimed"]

LONGEST_AUCTION = "1 hour"
"""How long after its auction began a bid for it may come.

A join has to know when an auction can be forgotten. The generator's auctions are open for the time of
3,332 events at most, and bids are for one of the last 101 auctions: even at one event per second, the
slowest rate there is, both are less than an hour.
"""
EARLIEST_BID = "10 minutes"
"""How long before its auction begins a bid for it may come: the generator looks 10 auctions ahead,
which at one event per second is less than four minutes."""
EVER = "36500 days"
"""For definitions that don't bound how far apart rows are: a hundred years."""


def timed_by(stream: Stream, name: str) -> Stream:
    """The rows with their event time in one more column, which now carries the watermark.

    Both sides of a join call their time ``dateTime``, and one of them has to give way.
    """
    mark = stream.watermark
    if mark is None:
        raise InputError(
            "NEXMark's queries need to know how far rows may be out of order",
            hint='say with_watermark("dateTime", "4 s") on each of the three streams',
        )
    return stream.with_column(name, F.col(mark.column)).with_watermark(
        name,
        mark.delay_ms / 1000,
        allowed_lateness=mark.lateness_ms / 1000,
        idle_timeout=None if mark.idle_ms is None else mark.idle_ms / 1000,
    )


def untimed(stream: Stream) -> Stream:
    """The rows without their watermark: no row is late, and their time may be left out."""
    return Stream(tuple(replace(branch, watermark=None) for branch in stream.branches))


def in_utc(time: str) -> Column:
    """A time as a clock in UTC shows it, whatever the session's time zone."""
    return F.convert_timezone(F.current_timezone(), F.lit("UTC"), F.col(time))
