"""Event times as Spark's expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import TimestampNTZType

from holdfast.types import quoted

if TYPE_CHECKING:
    from holdfast.stream import Stream

__all__ = ["changing", "event_micros"]

_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def event_micros(source: Stream) -> Column | None:
    """When a row happened, in µs since 1970; None if the stream has no watermark."""
    mark = source.watermark
    if mark is None:
        return None
    column = quoted(mark.column)
    if isinstance(source.df.schema[mark.column].dataType, TimestampNTZType):
        micros = F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, {column})")
    else:
        micros = F.unix_micros(F.col(column))
    return micros - F.lit(1) if mark.is_end else micros


def changing(number: int, any_number: Column) -> Column:
    """A number that may be another in the next epoch.

    Spark writes numbers into the code that it generates, and would compile it anew for every one. An
    array it hands to the code, as long as it doesn't see which element is asked for.
    """
    zero = any_number.bitwiseAND(F.lit(0)).cast("int")
    return F.get(F.array(F.lit(number).cast("long")), zero)
