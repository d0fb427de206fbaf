"""What each aggregate equals in batch: the expression of Spark that its documentation promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.aggregates import Aggregate

__all__ = ["batch_aggregate", "batch_expression"]


def batch_expression(aggregate: Aggregate) -> Column:
    """The aggregate expression that gives the same result over all rows at once."""
    columns = [_column(c) for c in aggregate.columns]
    return _EXPRESSIONS[aggregate.kind](columns, aggregate.options)


def batch_aggregate(
    df: DataFrame, keys: list[str], aggregates: Mapping[str, Aggregate]
) -> DataFrame:
    """Keys and results over all rows of ``df``."""
    return df.groupBy(*keys).agg(*(batch_expression(a).alias(n) for n, a in aggregates.items()))


def _column(column: object) -> Column:
    if isinstance(column, str):
        return F.col(column)
    assert isinstance(column, Column)
    return column


def _by(x: list[Column]) -> Column:
    return F.when(x[1].isNotNull(), F.struct(x[1].alias("o"), x[0].alias("v")))


def _list(x: list[Column], limit: int) -> Column:
    row = F.when(x[0].isNotNull(), F.struct(x[1].alias("o"), x[0].alias("v")))
    return F.slice(F.array_sort(F.collect_list(row)), 1, limit).getField("v")


_EXPRESSIONS: dict[str, Callable[[list[Column], Mapping[str, int]], Column]] = {
    "count": lambda x, _: F.count(x[0] if x else F.lit(1)),
    "sum": lambda x, _: F.sum(x[0]),
    "avg": lambda x, _: F.avg(x[0]),
    "min": lambda x, _: F.min(x[0]),
    "max": lambda x, _: F.max(x[0]),
    "var_samp": lambda x, _: F.var_samp(x[0]),
    "var_pop": lambda x, _: F.var_pop(x[0]),
    "stddev_samp": lambda x, _: F.stddev_samp(x[0]),
    "stddev_pop": lambda x, _: F.stddev_pop(x[0]),
    # Any value will do for any_value; ours is the least.
    "any_value": lambda x, _: F.min(x[0]),
    "bool_and": lambda x, _: F.bool_and(x[0]),
    "bool_or": lambda x, _: F.bool_or(x[0]),
    "first": lambda x, _: F.min(_by(x)).getField("v"),
    "last": lambda x, _: F.max(_by(x)).getField("v"),
    # The exact number: the sketch of ours is within its bound of it.
    "approx_count_distinct": lambda x, _: F.count_distinct(x[0]),
    "collect_set": lambda x, o: F.slice(F.array_sort(F.collect_set(x[0])), 1, o["limit"]),
    "collect_list": lambda x, o: _list(x, o["limit"]),
}
