"""The rows of each source, straight from Spark's scan of it.

What Spark hands over as a batch is an RDD of rows that have been written out. Whoever reads it has each
row written once more before a step of his own begins. So the plan under the batch is taken instead: an
operator's rows are computed in the same generated code that decodes the source, and if they are grouped
first, no row is ever written.

Where the plan is of a kind that isn't known (:mod:`holdfast.spark.jvm.scans`), the batch is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.flow.reading import SourceReading
from holdfast.spark.flow.slices import split
from holdfast.spark.jvm.scans import Part, ScanColumns, parts_of_batch

__all__ = ["Scans", "SourceRows"]


class SourceRows:
    """The rows of a source in one epoch."""

    def __init__(self, make: Callable[[], DataFrame], scan: Any | None = None) -> None:
        self._make = make
        self.scan = scan
        """The physical plan that gives them, if it is known; its columns are the same in all epochs."""

    @cached_property
    def frame(self) -> DataFrame:
        """The rows, with all columns of the source."""
        return self._make()


class Scans:
    """Finds the plans under the batches of one query."""

    def __init__(self, session: SparkSession, reading: Sequence[SourceReading]) -> None:
        self._session = session
        self._reading = reading

    def rows(self, batch: DataFrame, *, ticks: bool) -> list[SourceRows]:
        """The rows of each source in a batch, which may have ticks beside them."""
        parts = parts_of_batch(self._session, self._columns)
        if parts is not None:
            return [self._scanned(batch, number, part) for number, part in enumerate(parts)]
        frames = split(batch, len(self._reading), ticks=ticks)
        pairs = zip(self._reading, frames, strict=True)
        return [SourceRows(partial(reading.whole, frame)) for reading, frame in pairs]

    @cached_property
    def _columns(self) -> list[ScanColumns]:
        return [ScanColumns(self._session, reading.streamed) for reading in self._reading]

    def _scanned(self, batch: DataFrame, number: int, part: Part) -> SourceRows:
        columns, reading = self._columns[number], self._reading[number]
        scan = columns.scan(part)

        def rows() -> DataFrame:
            return reading.whole(columns.frame(batch.sparkSession, scan))

        return SourceRows(rows, scan)
