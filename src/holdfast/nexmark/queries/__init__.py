"""NEXMark's queries as Holdfast programs: functions of three streams.

Each takes the streams of persons, auctions and bids, with their watermarks on ``dateTime``, wherever
they come from, and returns rows to write to a sink::

    from holdfast.nexmark.queries import QUERIES

    hot = QUERIES[5].function(person, auction, bid)
    query = hot.write_to(hf.sinks.parquet("hot")).start("hot", checkpoint_dir="ck")

Definitions are those of :mod:`holdfast.nexmark.oracle`. Query 10 writes files and has no result; it is
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.changes import Changes
from holdfast.nexmark.queries.auctions import q3, q4, q6, q9, q20
from holdfast.nexmark.queries.bids import q0, q1, q2, q13, q14
from holdfast.nexmark.queries.rankings import q18, q19
from holdfast.nexmark.queries.statistics import q15, q16, q17
from holdfast.nexmark.queries.times import EARLIEST_BID, EVER, LONGEST_AUCTION
from holdfast.nexmark.queries.windows import q5, q7, q8, q11, q12
from holdfast.stream import Rows, Stream

__all__ = [
    "EARLIEST_BID",
    "EVER",
    "LONGEST_AUCTION",
    "QUERIES",
    "NexmarkQuery",
    "q0",
    "q1",
    "q2",
    "q3",
    "q4",
    "q5",
    "q6",
    "q7",
    "q8",
    "q9",
    "q11",
    "q12",
    "q13",
    "q14",
    "q15",
    "q16",
    "q17",
    "q18",
    "q19",
    "q20",
]


_NEW = Changes("append")


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query, and how its results are to be read."""

    function: Callable[[Stream, Stream, Stream], Rows]
    title: str
    changes: Changes = _NEW
    """What a row of the result says about earlier ones: ``hf.fold`` goes by it. (The streams say the
    same of themselves, but for a key that a query shows in other words, as a day.)"""
    waits: bool = False
    """Whether a result comes only when the watermark (or, in query 12, the clock) has passed it."""


QUERIES: dict[int, NexmarkQuery] = {
    0: NexmarkQuery(q0, "pass through"),
    1: NexmarkQuery(q1, "currency conversion"),
    2: NexmarkQuery(q2, "selection"),
    3: NexmarkQuery(q3, "local item suggestion"),
    4: NexmarkQuery(q4, "average price for a category", Changes("update", ("id",)), waits=True),
    5: NexmarkQuery(q5, "hot items", waits=True),
    6: NexmarkQuery(q6, "average selling price by seller", waits=True),
    7: NexmarkQuery(q7, "highest bid", waits=True),
    8: NexmarkQuery(q8, "monitor new users", waits=True),
    9: NexmarkQuery(q9, "winning bids", waits=True),
    11: NexmarkQuery(q11, "user sessions", waits=True),
    12: NexmarkQuery(q12, "processing time windows", waits=True),
    13: NexmarkQuery(q13, "bounded side input join"),
    14: NexmarkQuery(q14, "calculation"),
    15: NexmarkQuery(q15, "bidding statistics", Changes("update", ("day",))),
    16: NexmarkQuery(q16, "channel statistics", Changes("update", ("channel", "day"))),
    17: NexmarkQuery(q17, "auction statistics", Changes("update", ("auction", "day"))),
    18: NexmarkQuery(q18, "last bid", Changes("retract")),
    19: NexmarkQuery(q19, "top 10", Changes("retract")),
    20: NexmarkQuery(q20, "expand bid with auction"),
}
"""The queries by their number."""
