"""Event times as Spark's expressions."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import TimestampNTZType

from holdfast.operators.base import Clock
from holdfast.spark.jvm.columns import Changeable, as_of_utc
from holdfast.spark.said import SaidStream
from holdfast.types import quoted

__all__ = ["TimeBound", "event_micros"]


def event_micros(source: SaidStream) -> Column | None:
    """When a row happened, in µs since 1970; None if the stream has no watermark."""
    mark = source.watermark
    if mark is None:
        return None
    column = quoted(mark.column)
    if isinstance(source.df.schema[mark.column].dataType, TimestampNTZType):
        micros = F.unix_micros(as_of_utc(F.col(column)))
    else:
        micros = F.unix_micros(F.col(column))
    return micros - F.lit(1) if mark.is_end else micros


class TimeBound:
    """A number in Spark's expressions that each epoch sets anew, of its times."""

    def __init__(self, of: Callable[[Clock], int]) -> None:
        self._of = of
        self._number = Changeable()

    def at(self, clock: Clock) -> None:
        """Let it be the number of an epoch, for jobs that start from now on."""
        self._number.set(self._of(clock))

    def column(self, any_number: Column) -> Column:
        """The number, for rows that have some other number."""
        return self._number.column(any_number)
