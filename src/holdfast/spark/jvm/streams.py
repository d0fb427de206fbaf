"""Inside Spark's query: its sources, its clock of ticks, its last plan, and whether input is over."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark.jvm.probing import Capability

__all__ = [
    "QUERY_ID",
    "STREAMS",
    "TICKS",
    "has_read_all",
    "last_plan",
    "rate_clock",
    "source_numbers",
]

_STREAMING = "org.apache.spark.sql.execution.streaming"
STREAMS = Capability(
    "inside Spark's query",
    {
        f"{_STREAMING}.runtime.StreamingQueryWrapper": ["streamingQuery/0"],
        f"{_STREAMING}.runtime.StreamExecution": ["noNewData/0", "sources/0"],
    },
)
TICKS = Capability(
    "the clock of the rate source",
    {
        f"{_STREAMING}.sources.RateStreamMicroBatchStream": ["clock/0"],
        "org.apache.spark.util.ManualClock": ["advance/1"],
    },
)

QUERY_ID = "sql.streaming.queryId"
"""The property of a query's thread that has its id."""


def has_read_all(query: StreamingQuery) -> bool:
    """Whether Spark's query ended because it found no more input, rather than was stopped."""
    return bool(_execution(query).noNewData())


def source_numbers(query: StreamingQuery) -> list[int]:
    """The number of the source that each line of a query's offsets is of; none before it has planned them.

    Spark numbers its sources in the order in which they are first read.
    """
    sources = _execution(query).sources()
    firsts = [sources.indexOf(sources.apply(place)) for place in range(sources.length())]
    in_order = sorted(set(firsts))
    return [in_order.index(first) for first in firsts]


def rate_clock(query: StreamingQuery) -> Any | None:
    """The clock of a query's last source, a rate source with a clock of its own.

    None before the query has planned its sources.
    """
    sources = _execution(query).sources()
    return None if sources.isEmpty() else sources.last().clock()


def last_plan(session: SparkSession) -> Any | None:
    """The physical plan of the batch that this thread was called with; None outside of a query's."""
    query_id = session.sparkContext.getLocalProperty(QUERY_ID)
    query = None if query_id is None else session.streams.get(query_id)
    return None if query is None else _execution(query).lastExecution().executedPlan()


def _execution(query: StreamingQuery) -> Any:
    return query._jsq.streamingQuery()
