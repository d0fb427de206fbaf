"""Ticks: a source without rows that moves once a second, so that epochs come though no input does.

It is Spark's rate source on a clock of its own, which is moved from here. The machine's clock may be set
back: a source that went by it would stand still until the clock has caught up, and after a restart its
position would be in the future, which Spark refuses.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.spark.jvm.streams import rate_clock

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Ticks", "with_ticks"]

logger = logging.getLogger("holdfast.spark")

_EVERY_S = 1.0
_LOOK_S = 0.02


def with_ticks(df: DataFrame) -> DataFrame:
    """The same rows, beside a source that ticks.

    It must be the last source, and it must be there in every run: Spark counts sources.
    """
    ticks = df.sparkSession.readStream.format("rate").option("rowsPerSecond", 1)
    ticks = ticks.option("numPartitions", 1).option("useManualClock", "true")
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    return df.unionAll(ticks.load().where("false").select(*nothing))


class Ticks:
    """Moves the clock of the ticks of a running query; unless ``by_itself``, only when told to."""

    def __init__(self, *, by_itself: bool = True) -> None:
        self._by_itself = by_itself
        self._clock: Any = None
        self._lock = threading.Lock()
        self._over = threading.Event()

    def follow(self, query: StreamingQuery) -> None:
        """Tick as long as a query runs, by itself once a second."""
        with self._lock:
            self._clock = None
        InheritableThread(target=self._tick_on, args=(query,), daemon=True).start()

    def end(self) -> None:
        """Tick no more by itself: nothing would ever be the last epoch where each takes over a second."""
        self._over.set()

    def tick(self) -> bool:
        """Tick now; False if the query has not begun."""
        with self._lock:
            if self._clock is None:
                return False
            self._clock.advance(1000)
            return True

    def _tick_on(self, query: StreamingQuery) -> None:
        try:
            while query.isActive and not self._over.is_set():
                if self._clock is not None:
                    if not self._by_itself:
                        return
                    if not self._over.wait(_EVERY_S):
                        self.tick()
                elif not self._find(query):
                    self._over.wait(_LOOK_S)
        except Py4JError:
            # The JVM is gone, or going.
            logger.debug("ticks have ended", exc_info=True)

    def _find(self, query: StreamingQuery) -> bool:
        """Find the clock of the query's last source; it has none before it has planned its sources."""
        clock = rate_clock(query)
        if clock is None:
            return False
        with self._lock:
            self._clock = clock
        return True
