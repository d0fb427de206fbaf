"""The programs on Holdfast: its NEXMark queries as they are, the join, the chain and its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bench.kit.nexmark.data import WINDOW_MS
from bench.kit.nexmark.spark_queries import DELAY, JOIN_BOUND, Frames
from bench.kit.nexmark.task import CHAIN, PARTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.choices import SortOrder
    from holdfast.pipeline import Pipeline
    from holdfast.stream import Rows, Stream

__all__ = ["pipeline_of"]


def pipeline_of(job: str, frames: Frames) -> Pipeline:
    """The whole pipeline of a job; its rows are thrown away."""
    import holdfast as hf

    return _rows_of(job, frames).write_to(hf.sinks.noop())


def _rows_of(job: str, frames: Frames) -> Rows:
    programs: Mapping[str, Callable[[Frames], Rows]] = {
        "join": _join,
        CHAIN: lambda frames: _top(_most(_count(_bids(frames)))),
        PARTS[0]: lambda frames: _count(_bids(frames)),
        PARTS[1]: lambda frames: _most(_timed(frames[PARTS[1]], "time", "0 s")),
        PARTS[2]: lambda frames: _top_alone(frames[PARTS[2]]),
    }
    if job in programs:
        return programs[job](frames)
    from holdfast.nexmark.queries import QUERIES

    # A query takes three streams; those it doesn't look at are given another's rows.
    streams = {name: _timed(frame, "dateTime", DELAY) for name, frame in frames.items()}
    unread = next(iter(streams.values()))
    person, auction, bid = (streams.get(name, unread) for name in ("person", "auction", "bid"))
    return QUERIES[int(job.removeprefix("q"))].function(person, auction, bid)


def _timed(frame: DataFrame, column: str, delay: str) -> Stream:
    import holdfast as hf

    return hf.stream(frame).with_watermark(column, delay)


def _bids(frames: Frames) -> Stream:
    return _timed(frames["bid"].select("auction", "bidder", "dateTime"), "dateTime", DELAY)


def _join(frames: Frames) -> Rows:
    left = _timed(frames["left"], "left_time", DELAY)
    right = _timed(frames["right"], "right_time", DELAY)
    return left.join(right, on="key", between=("0 s", JOIN_BOUND))


def _count(bids: Rows) -> Rows:
    """How many bids each bidder made for an auction, per window."""
    import holdfast as hf

    windows = bids.key_by("auction", "bidder").window(hf.tumbling(WINDOW_MS / 1000))
    return windows.aggregate(n=hf.count()).named("count")


def _most(counts: Rows) -> Rows:
    """The most bids that one bidder made for an auction, per window."""
    import holdfast as hf

    windows = counts.key_by("auction").window(hf.tumbling(WINDOW_MS / 1000))
    return windows.aggregate(most=hf.max("n")).named("most")


def _top(most: Rows) -> Rows:
    """The ten auctions of a window with most bids by one bidder."""
    keyed = most.key_by("window_end")
    order: list[str | tuple[str, SortOrder]] = [("most", "desc"), "auction"]
    return keyed.top(10, by=order, until="window_end", output_mode="append").named("top")


def _top_alone(frame: DataFrame) -> Rows:
    return _top(_timed(frame.withColumnRenamed("time", "window_end"), "window_end", "0 s"))
