"""Columns as Spark's expressions: what PySpark has no words for, and what it doesn't say of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.spark.jvm.gateway import (
    java_class,
    jvm_of,
    longs,
    running_context,
    scala_object,
)
from holdfast.spark.jvm.probing import Capability, has

__all__ = [
    "COLUMNS",
    "TIMES_IN_PLANS",
    "Changeable",
    "as_of_utc",
    "grouped_frame",
    "grouping_columns",
    "has_name",
    "zone_offsets",
]

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_TYPES = "org.apache.spark.sql.types"
_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"
COLUMNS = Capability(
    "columns as expressions",
    {
        _UTILS: ["column/1", "expression/1"],
        f"{_EXPRESSIONS}.Cast": ["new/3"],
        "org.apache.spark.sql.Column": ["node/0"],
        "org.apache.spark.sql.catalyst.util.DateTimeUtils": ["getZoneId/1"],
        "org.apache.spark.sql.classic.RelationalGroupedDataset": ["groupingExprs/0"],
    },
)
TIMES_IN_PLANS = Capability(
    "times that change in a plan",
    {
        f"{_EXPRESSIONS}.UnsafeArrayData": ["fromPrimitiveArray/1", "setLong/2"],
        f"{_EXPRESSIONS}.Literal": ["new/2"],
        f"{_TYPES}.ArrayType": ["new/2"],
    },
    slower="Spark compiles anew what goes by an epoch's time, and plans it anew",
)


def as_of_utc(local: Column) -> Column:
    """Times without a zone as times in UTC. An ordinary cast takes the session's zone, the user's."""
    jvm = _jvm()
    utils = java_class(jvm, _UTILS)
    kind = scala_object(jvm, f"{_TYPES}.TimestampType")
    zone = java_class(jvm, "scala.Option").apply("UTC")
    cast = java_class(jvm, f"{_EXPRESSIONS}.Cast")(utils.expression(_java(local)), kind, zone)
    return Column(utils.column(cast))


def zone_offsets(session: SparkSession) -> set[int]:
    """How many seconds the session's time zone is ahead of UTC, or has been at any time since 1970."""
    jvm = jvm_of(session)
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    times = java_class(jvm, "org.apache.spark.sql.catalyst.util.DateTimeUtils")
    rules = times.getZoneId(zone).getRules()
    changes = [each for each in rules.getTransitions() if each.toEpochSecond() > 0]
    first = rules.getOffset(java_class(jvm, "java.time.Instant").EPOCH)
    later = [each.getOffsetAfter() for each in [*changes, *rules.getTransitionRules()]]
    return {offset.getTotalSeconds() for offset in (first, *later)}


class Changeable:
    """A number in Spark's expressions that can be set anew for jobs to come.

    Spark writes numbers into the code that it generates, and would compile it for every one. An array
    it hands to the code, as long as it doesn't see which element is asked for. The array stays the
    same object, in whatever plans are made of the expression: so plans can be used again as well.
    """

    _number = 0

    def set(self, number: int) -> None:
        """Let it be this number, for jobs that start from now on."""
        self._number = number
        if has(TIMES_IN_PLANS):
            self._array.setLong(0, number)

    def column(self, any_number: Column) -> Column:
        """The number, for rows that have some other number."""
        if not has(TIMES_IN_PLANS):
            return F.lit(self._number) + any_number.bitwiseAND(F.lit(0))
        jvm = _jvm()
        element = scala_object(jvm, f"{_TYPES}.LongType")
        kind = java_class(jvm, f"{_TYPES}.ArrayType")(element, False)
        literal = java_class(jvm, f"{_EXPRESSIONS}.Literal")(self._array, kind)
        array = Column(java_class(jvm, _UTILS).column(literal))
        return F.get(array, any_number.bitwiseAND(F.lit(0)).cast("int"))

    @cached_property
    def _array(self) -> Any:
        context = running_context()
        assert context is not None
        arrays = java_class(jvm_of(context), f"{_EXPRESSIONS}.UnsafeArrayData")
        return arrays.fromPrimitiveArray(longs(context, 1))


def has_name(column: Column) -> bool:
    """Whether a column was given a name, rather than one that Spark made up."""
    return str(_java(column).node().getClass().getSimpleName()) in ("Alias", "UnresolvedAttribute")


def grouped_frame(grouped: GroupedData) -> DataFrame | None:
    """What was grouped; None if it isn't Spark's."""
    frame = getattr(grouped, "_df", None)
    return frame if isinstance(frame, DataFrame) else None


def grouping_columns(grouped: GroupedData) -> list[tuple[str | None, str]]:
    """What rows are grouped by: the name of each column, None if it is none, and Spark's words for it."""
    expressions: Any = grouped._jgd.groupingExprs()
    return [_named(expressions.apply(index)) for index in range(expressions.size())]


def _named(expression: Any) -> tuple[str | None, str]:
    words = str(expression.toString())
    if not hasattr(expression, "name") or expression.nodeName().endswith("Alias"):
        return None, words
    return str(expression.name()), words


def _java(column: Column) -> Any:
    return column._jc


def _jvm() -> Any:
    context = running_context()
    assert context is not None
    return jvm_of(context)
