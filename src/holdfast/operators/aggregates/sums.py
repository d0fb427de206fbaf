"""Counts, sums and averages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.decimals import average_decimals, halves_of, sum_decimals
from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.columns import is_valid, make_array, numbers
from holdfast.operators.groups import RowGroups

__all__ = ["Average", "Count", "Sum", "sum_type"]


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum, as in Spark.

    >>> sum_type(pa.int8()), sum_type(pa.decimal128(30, 2))
    (DataType(int64), Decimal128Type(decimal128(38, 2)))
    """
    if pa.types.is_decimal128(kind):
        return pa.decimal128(min(38, kind.precision + 10), kind.scale)
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _sum(array: pa.Array, groups: RowGroups) -> pa.Array:
    """The sum of each group's values that are not null; null if there are none."""
    valid = is_valid(array)
    if pa.types.is_decimal128(array.type):
        halves = halves_of(array)
        if valid is not None:
            halves = np.where(valid[:, None], halves, 0)
        return make_array(array.type, sum_decimals(halves, groups, array.type), groups.any(valid))
    values = numbers(array)
    if valid is not None:
        values = np.where(valid, values, values.dtype.type(0))
    if pa.types.is_floating(array.type):
        return make_array(array.type, groups.sum_floats(values), groups.any(valid))
    return make_array(array.type, groups.sum_ints(values), groups.any(valid))


class Count(Merger):
    """How many rows, or how many values that are not null."""

    parts = (("count", pa.int64()),)
    result = pa.int64()

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """Add the counts."""
        return [_sum(parts[0], groups)]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The count itself."""
        return parts[0]


class Sum(Merger):
    """The sum of the values that are not null; null if there are none."""

    def __init__(self, kind: pa.DataType) -> None:
        self.result = sum_type(kind)
        self.parts = (("sum", self.result),)

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """Add the sums."""
        return [_sum(parts[0], groups)]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The sum itself."""
        return parts[0]


class Average(Merger):
    """The average of the values that are not null; null if there are none.

    As in Spark, numbers other than decimals are averaged as doubles.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.decimal = pa.types.is_decimal128(kind)
        if self.decimal:
            self.scale = kind.scale
            self.result = pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
        else:
            self.result = pa.float64()
        self.parts = (
            ("sum", sum_type(kind) if self.decimal else pa.float64()),
            ("count", pa.int64()),
        )

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """Add sums and counts."""
        return [_sum(part, groups) for part in parts]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Sum by count."""
        counts = numbers(parts[1])
        valid = counts > 0
        divisors = np.where(valid, counts, 1)
        if self.decimal:
            sums = np.where(valid[:, None], halves_of(parts[0]), 0)
            averages = average_decimals(sums, divisors, self.scale, self.result)
            return make_array(self.result, averages, valid)
        with np.errstate(all="ignore"):
            return make_array(self.result, numbers(parts[0]) / divisors, valid)
