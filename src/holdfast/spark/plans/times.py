"""Event times as Spark's expressions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import TimestampNTZType

from holdfast.operators.base import Clock
from holdfast.spark.jvm.prepared import scala_object
from holdfast.spark.said import SaidStream
from holdfast.types import quoted

__all__ = ["Changing", "event_micros", "zone_offsets"]


def event_micros(source: SaidStream) -> Column | None:
    """When a row happened, in µs since 1970; None if the stream has no watermark."""
    mark = source.watermark
    if mark is None:
        return None
    column = quoted(mark.column)
    if isinstance(source.df.schema[mark.column].dataType, TimestampNTZType):
        micros = F.unix_micros(_as_of_utc(F.col(column)))
    else:
        micros = F.unix_micros(F.col(column))
    return micros - F.lit(1) if mark.is_end else micros


def _as_of_utc(local: Column) -> Column:
    """Times without a zone as times in UTC. An ordinary cast takes the session's zone, the user's."""
    jvm = _jvm()
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    kind = scala_object(jvm, "org.apache.spark.sql.types.TimestampType")
    zone = jvm.scala.Option.apply("UTC")
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast(
        utils.expression(local._jc), kind, zone
    )
    return Column(utils.column(cast))


def zone_offsets(session: SparkSession) -> set[int]:
    """How many seconds the session's time zone is ahead of UTC, or has been at any time since 1970."""
    jvm = _jvm()
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    rules = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone).getRules()
    changes = [each for each in rules.getTransitions() if each.toEpochSecond() > 0]
    first = rules.getOffset(jvm.java.time.Instant.EPOCH)
    later = [each.getOffsetAfter() for each in [*changes, *rules.getTransitionRules()]]
    return {offset.getTotalSeconds() for offset in (first, *later)}


class Changing:
    """A number in Spark's expressions that each epoch sets anew, of its times.

    Spark writes numbers into the code that it generates, and would compile it for every one. An array
    it hands to the code, as long as it doesn't see which element is asked for. The array stays the
    same object, in whatever plans are made of the expression: so plans can be used again as well.
    """

    def __init__(self, of: Callable[[Clock], int]) -> None:
        self._of = of

    def at(self, clock: Clock) -> None:
        """Let it be the number of an epoch, for jobs that start from now on."""
        self._array.setLong(0, self._of(clock))

    def column(self, any_number: Column) -> Column:
        """The number, for rows that have some other number."""
        jvm = _jvm()
        kind = jvm.org.apache.spark.sql.types.ArrayType(_long_type(jvm), False)
        literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal(self._array, kind)
        array = Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal))
        return F.get(array, any_number.bitwiseAND(F.lit(0)).cast("int"))

    @cached_property
    def _array(self) -> Any:
        context = SparkContext._active_spark_context
        assert context is not None
        gateway: Any = context._gateway
        jvm = _jvm()
        arrays = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeArrayData
        return arrays.fromPrimitiveArray(gateway.new_array(jvm.long, 1))


def _jvm() -> Any:
    context = SparkContext._active_spark_context
    assert context is not None
    return context._jvm


def _long_type(jvm: Any) -> Any:
    return scala_object(jvm, "org.apache.spark.sql.types.LongType")
