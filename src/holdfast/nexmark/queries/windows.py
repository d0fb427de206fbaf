"""Queries on windows of ten seconds, of event time and of processing time, and on sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

import holdfast as hf
from holdfast.nexmark.queries.times import untimed
from holdfast.stream import Rows, Stream

__all__ = ["q5", "q7", "q8", "q11", "q12"]

_SIZE = "10 s"
_SIZE_MS = 10_000


def q5(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Hot items: the auctions with most bids in windows of 10 s, every 2 s (all that have as many)."""
    del person, auction
    windows = bid.key_by("auction").window(hf.sliding(_SIZE, "2 s"))
    counts = windows.aggregate(num=hf.count()).named("q5-counts")
    # Windows end 2 s apart: one of that size holds the counts of one of them, and closes with it.
    ends = F.col("window_end") - F.expr("INTERVAL 1 MILLISECOND")
    timed = counts.select("auction", "num", ends.alias("time")).with_watermark("time", "0 s")
    by_window = timed.key_by("time").window(hf.tumbling("2 s"))
    return by_window.apply(_highest, "auction bigint, num bigint").named("q5-hot")


def _highest(counts: pa.Table) -> pa.Table:
    """Of each window the rows with the highest count; rows of a window lie side by side."""
    times, numbers = (counts.column(name).to_numpy() for name in ("time", "num"))
    starts = np.flatnonzero(np.r_[True, times[1:] != times[:-1]])
    most = np.maximum.reduceat(numbers, starts)
    sizes = np.diff(np.r_[starts, len(numbers)])
    return counts.filter(numbers == np.repeat(most, sizes)).select(["auction", "num"])


def q7(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Highest bid: in every window of 10 s, all bids that are as high as the highest."""
    del person, auction
    bids = bid.select("auction", "bidder", "price", "dateTime", "extra")
    highest = bids.window(hf.tumbling(_SIZE)).aggregate(price=hf.max("price")).named("q7-highest")
    # A window ends up to its size after its bids.
    as_high = bids.join(highest, on="price", between=("0 s", _SIZE)).named("q7-bids")
    in_window = as_high.filter("dateTime >= window_start AND dateTime < window_end")
    return in_window.select("auction", "bidder", "price", "dateTime", "extra")


def q8(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Monitor new users: persons who opened an auction in the window of 10 s in which they came."""
    del bid
    window = hf.tumbling(_SIZE)
    came = person.key_by("id", "name").window(window).aggregate(n=hf.count()).named("q8-persons")
    sold = auction.key_by(F.col("seller").alias("id")).window(window).aggregate(n=hf.count())
    sellers = sold.named("q8-sellers").select("id", "window_end")
    new = came.join(sellers, on=["id", "window_end"], between=("0 s", "0 s"), how="semi")
    return new.named("q8-new").select("id", "name", F.col("window_start").alias("stime"))


def q11(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """User sessions: how many bids each bidder made between pauses of 10 s."""
    del person, auction
    sessions = bid.key_by("bidder").window(hf.session(_SIZE)).aggregate(bid_count=hf.count())
    return sessions.named("q11-sessions").select(
        "bidder",
        "bid_count",
        F.col("window_start").alias("starttime"),
        F.col("window_end").alias("endtime"),
    )


class _InProcessingTime(hf.KeyedProcess):
    """How many rows came in each window of processing time; put out when the window is over."""

    output = "bidder bigint, bid_count bigint, starttime timestamp, endtime timestamp"
    ends = hf.ValueState("timestamp")
    bids = hf.ValueState("bigint", default=0)

    def process(self, key: Any, rows: Sequence[Any], ctx: hf.Context) -> Iterator[Any]:
        """Count bids; an epoch has one processing time, so they are all in one window."""
        size = timedelta(milliseconds=_SIZE_MS)
        zero = datetime(1970, 1, 1, tzinfo=ctx.processing_time.tzinfo)
        ends = zero + ((ctx.processing_time - zero) // size + 1) * size
        if self.ends.value is not None and self.ends.value != ends:
            # Rows come before timers, and the window before may be over only now.
            yield self._result(key)
        if self.ends.value is None:
            self.ends.value = ends
            ctx.timers.set(ends, "processing")
        self.bids.value += len(rows)

    def on_timer(self, key: Any, when: datetime, ctx: hf.Context) -> Iterator[Any]:
        """Put a window out that is over."""
        del ctx
        if self.ends.value == when:
            yield self._result(key)

    def _result(self, key: Any) -> dict[str, Any]:
        ends, bids = self.ends.value, self.bids.value
        self.ends.clear()
        self.bids.clear()
        starts = ends - timedelta(milliseconds=_SIZE_MS)
        return {"bidder": key.bidder, "bid_count": bids, "starttime": starts, "endtime": ends}


def q12(person: Stream, auction: Stream, bid: Stream) -> Rows:
    """Processing time windows: how many bids each bidder made in windows of 10 s."""
    del person, auction
    bidders = untimed(bid).select("bidder")
    return bidders.key_by("bidder").process(_InProcessingTime()).named("q12-windows")
