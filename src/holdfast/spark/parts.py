"""What a running pipeline is put together from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.options import Options
from holdfast.driver.scratch import ScratchReader
from holdfast.spark.ending import InputEnd
from holdfast.spark.epoch import EpochLoop

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.spark.background import BackgroundJobs
    from holdfast.spark.cluster.site import ClusterSite
    from holdfast.spark.ticks import Ticks

__all__ = ["QueryParts"]


@dataclass
class QueryParts:
    """What a query is put together from; :mod:`holdfast.spark.start` does that."""

    options: Options
    ledger: Ledger
    coordinator: Coordinator
    loop: EpochLoop
    scratch: ScratchReader
    jobs: BackgroundJobs
    close: Callable[[], None]
    now_ms: Callable[[], int]
    ticks: Ticks | None
    """If the last source only keeps time: an epoch in which no other moved has no input."""
    begin: Callable[[Callable[[DataFrame, int], None]], StreamingQuery]
    """Starts Spark's query with a function for its batches."""
    cluster: ClusterSite | None
    """The hosts, if there are several."""
    input_end: InputEnd
    """Whether its input has ended."""
