"""The aggregates that a stream can keep per key.

Each function says *what* to compute; ``KeyedStream.aggregate`` gives it a name:

    hf.stream(orders).key_by("user").aggregate(n=hf.count(), spent=hf.sum("amount"))

A column is a name or a PySpark column expression. The result after any number of epochs equals
``df.groupBy(keys).agg(...)`` over all rows so far, with Spark's types, nulls and overflow rules
(ANSI): exactly, but for the last digits of floating-point sums and the error of sketches.
"""

from __future__ import annotations

from holdfast.errors import InputError
from holdfast.operators.aggregates.asked import Aggregate, ColumnLike

__all__ = [
    "Aggregate",
    "ColumnLike",
    "any_value",
    "approx_count_distinct",
    "avg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "count",
    "first",
    "last",
    "max",
    "min",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
]


def count(column: ColumnLike | None = None) -> Aggregate:
    """How many rows, or how many of them have a value in ``column``.

    >>> count()
    Aggregate(kind='count', columns=(), options={})
    """
    return Aggregate("count", () if column is None else (column,))


def sum(column: ColumnLike) -> Aggregate:  # noqa: A001 - named as in Spark
    """The sum: bigint for whole numbers, double for floats, ten more digits for decimals.

    A sum that doesn't fit its type is an error. Null if there is no value.

    >>> sum("amount")
    Aggregate(kind='sum', columns=('amount',), options={})
    """
    return Aggregate("sum", (column,))


def avg(column: ColumnLike) -> Aggregate:
    """The average: a double, or for decimals a decimal with four more places.

    >>> avg("amount").kind
    'avg'
    """
    return Aggregate("avg", (column,))


def min(column: ColumnLike) -> Aggregate:  # noqa: A001 - named as in Spark
    """The least value. NaN is greater than any other number; nulls don't count.

    >>> min("ts").kind
    'min'
    """
    return Aggregate("min", (column,))


def max(column: ColumnLike) -> Aggregate:  # noqa: A001 - named as in Spark
    """The greatest value. NaN is greater than any other number; nulls don't count.

    >>> max("ts").kind
    'max'
    """
    return Aggregate("max", (column,))


def var_samp(column: ColumnLike) -> Aggregate:
    """The variance of a sample; null for fewer than two values.

    >>> var_samp("delay").kind
    'var_samp'
    """
    return Aggregate("var_samp", (column,))


def var_pop(column: ColumnLike) -> Aggregate:
    """The variance of a whole population.

    >>> var_pop("delay").kind
    'var_pop'
    """
    return Aggregate("var_pop", (column,))


def stddev_samp(column: ColumnLike) -> Aggregate:
    """The standard deviation of a sample; null for fewer than two values.

    >>> stddev_samp("delay").kind
    'stddev_samp'
    """
    return Aggregate("stddev_samp", (column,))


def stddev_pop(column: ColumnLike) -> Aggregate:
    """The standard deviation of a whole population.

    >>> stddev_pop("delay").kind
    'stddev_pop'
    """
    return Aggregate("stddev_pop", (column,))


variance = var_samp
"""Another name of :func:`var_samp`, as in Spark."""

stddev = stddev_samp
"""Another name of :func:`stddev_samp`, as in Spark."""


def first(column: ColumnLike, *, by: ColumnLike) -> Aggregate:
    """The value of the row that is least in ``by``; of several such rows the least value.

    A null may be that value (it counts as the least). Rows in which ``by`` is null don't count.

    >>> first("price", by="ts")
    Aggregate(kind='first', columns=('price', 'ts'), options={})
    """
    return Aggregate("first", (column, by))


def last(column: ColumnLike, *, by: ColumnLike) -> Aggregate:
    """The value of the row that is greatest in ``by``; of several such rows the greatest value.

    A null may be that value (it counts as the least). Rows in which ``by`` is null don't count.

    >>> last("price", by="ts").kind
    'last'
    """
    return Aggregate("last", (column, by))


def any_value(column: ColumnLike) -> Aggregate:
    """Some value that is not null: always the least, so that it doesn't depend on epochs.

    >>> any_value("country").kind
    'any_value'
    """
    return Aggregate("any_value", (column,))


def bool_and(column: ColumnLike) -> Aggregate:
    """Whether every value that is not null is true.

    >>> bool_and("paid").kind
    'bool_and'
    """
    return Aggregate("bool_and", (column,))


def bool_or(column: ColumnLike) -> Aggregate:
    """Whether any value is true.

    >>> bool_or("paid").kind
    'bool_or'
    """
    return Aggregate("bool_or", (column,))


def approx_count_distinct(column: ColumnLike, lg_k: int = 12) -> Aggregate:
    """About how many different values, by a HyperLogLog sketch of 2**lg_k bytes at most.

    The standard error is about 1.04 / sqrt(2**lg_k): 1.6 % for 12. Needs ``holdfast[sketches]``.

    >>> approx_count_distinct("visitor").options
    {'lg_k': 12}
    """
    if not 4 <= lg_k <= 21:
        raise InputError(f"approx_count_distinct: lg_k={lg_k} is not from 4 to 21")
    return Aggregate("approx_count_distinct", (column,), {"lg_k": lg_k})


def collect_set(column: ColumnLike, limit: int) -> Aggregate:
    """The least ``limit`` different values, ascending; nulls don't count.

    >>> collect_set("country", limit=10).options
    {'limit': 10}
    """
    return Aggregate("collect_set", (column,), {"limit": _checked(limit, "collect_set")})


def collect_list(column: ColumnLike, *, by: ColumnLike, limit: int) -> Aggregate:
    """The values of the first ``limit`` rows in the order of ``by``, then of the value itself.

    Rows without a value don't count; a null in ``by`` comes first.

    >>> collect_list("page", by="ts", limit=100).columns
    ('page', 'ts')
    """
    return Aggregate("collect_list", (column, by), {"limit": _checked(limit, "collect_list")})


def _checked(limit: int, kind: str) -> int:
    # Every epoch rewrites the lists it touches: an unbounded list would make that ever slower.
    if not 1 <= limit <= 1_000_000:
        raise InputError(f"{kind}: limit={limit} is not from 1 to 1,000,000")
    return limit
