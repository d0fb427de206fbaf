"""The least and the greatest: min, max, any_value, bool_and, bool_or, first and last by an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.decimals import halves_of
from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.aggregates.order import pick
from holdfast.operators.columns import NDArray, has_numbers, is_valid, make_array, numbers
from holdfast.operators.groups import RowGroups
from holdfast.state.columns import take

__all__ = ["Extreme", "ExtremeBy"]


class Extreme(Merger):
    """The least or greatest value that is not null; null if there are none."""

    def __init__(self, kind: pa.DataType, part: str, *, greatest: bool) -> None:
        self.greatest = greatest
        self.result = kind
        self.parts = ((part, kind),)

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """The extreme of extremes."""
        values = parts[0]
        if has_numbers(values.type):
            return [self._numbers(values, groups)]
        if pa.types.is_decimal128(values.type):
            return [self._decimals(values, groups)]
        return _picked(parts, groups, last=self.greatest)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The value itself."""
        return parts[0]

    def _numbers(self, array: pa.Array, groups: RowGroups) -> pa.Array:
        values, valid = numbers(array), is_valid(array)
        floating = np.issubdtype(values.dtype, np.floating)
        if valid is not None:
            values = np.where(valid, values, values.dtype.type(self._neutral(values.dtype)))
        # NaN is greater than every number: np.maximum prefers it and np.fmin avoids it.
        least = np.fmin if floating else np.minimum
        extremes = groups.reduce(np.maximum if self.greatest else least, values)
        return make_array(array.type, extremes, groups.any(valid))

    def _neutral(self, dtype: Any) -> float | int:
        if np.issubdtype(dtype, np.floating):
            return -np.inf if self.greatest else np.nan
        limits = np.iinfo(dtype)
        return int(limits.min if self.greatest else limits.max)

    def _decimals(self, array: pa.Array, groups: RowGroups) -> pa.Array:
        halves, valid = halves_of(array), is_valid(array)
        high: NDArray = halves[:, 1]
        low: NDArray = halves[:, 0].view(np.uint64) if len(halves) else np.empty(0, np.uint64)
        function = np.maximum if self.greatest else np.minimum
        if valid is not None:
            high = np.where(valid, high, self._neutral(high.dtype))
        best_high = groups.reduce(function, high)
        neutral = np.uint64(self._neutral(low.dtype))
        low = np.where(high == best_high[groups.ids], low, neutral)
        best_low = groups.reduce(function, low)
        best = np.column_stack((best_low.view(np.int64), best_high))
        return make_array(array.type, best, groups.any(valid))


class ExtremeBy(Merger):
    """The value of the row that comes first or last in an order; equal places go by the value.

    Rows whose place is null don't count; a null value does.
    """

    def __init__(self, kind: pa.DataType, order: pa.DataType, *, last: bool) -> None:
        self.last = last
        self.result = kind
        self.parts = (("order", order), ("value", kind))

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """The first of firsts."""
        return _picked(parts, groups, last=self.last)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return parts[1]


def _picked(columns: Sequence[pa.Array], groups: RowGroups, *, last: bool) -> list[pa.Array]:
    """Of each group the row that is first or last; null if the first column has nothing but nulls."""
    valid = is_valid(columns[0])
    rows = np.arange(groups.total) if groups.order is None else groups.order
    if valid is not None:
        rows = rows[valid[rows]]
    chosen = pick(groups.ids[rows], rows, columns, last=last)
    if valid is None:
        return [take(column, chosen) for column in columns]
    found = groups.any(valid)
    assert found is not None
    indices = np.zeros(groups.count, np.int64)
    indices[found] = chosen
    return [column.take(make_array(pa.int64(), indices, found)) for column in columns]
