"""Choosing and sorting rows within groups by the order that Spark gives values.

Nulls come first, NaN after every other number, -0.0 equals 0.0, strings compare byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.columns import NDArray, has_numbers, is_valid, make_array, numbers
from holdfast.state.columns import Indices, take

__all__ = ["float_order", "pick", "sort_within_groups", "sortable"]


def float_order(values: NDArray) -> NDArray:
    """Whole numbers in the order of these floats.

    >>> bits = float_order(np.array([-1.0, -0.0, 0.0, np.inf, -np.nan]))
    >>> (np.diff(bits) > 0).tolist()
    [True, False, True, True]
    """
    clean = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    integer = np.int64 if values.dtype == np.float64 else np.int32
    bits = clean.view(integer)
    # Negative floats grow downwards: flip all but their sign.
    ordered: NDArray = np.where(bits < 0, bits ^ np.iinfo(integer).max, bits)
    return ordered


def sortable(array: pa.Array) -> pa.Array:
    """A column that Arrow sorts as Spark would: floats become whole numbers in their order."""
    if not pa.types.is_floating(array.type):
        return array
    kind = pa.int64() if pa.types.is_float64(array.type) else pa.int32()
    return make_array(kind, float_order(numbers(array)), is_valid(array))


def sort_within_groups(ids: Indices, columns: Sequence[pa.Array]) -> Indices:
    """The order of rows by group, then by columns, nulls first."""
    keys = [pa.array(ids)]
    for column in columns:
        if column.null_count:  # Left to itself, Arrow sorts nulls to the end.
            keys.append(column.is_valid())
        keys.append(sortable(column))
    names = [str(i) for i in range(len(keys))]
    order = pc.sort_indices(
        pa.Table.from_arrays(keys, names=names), sort_keys=[(name, "ascending") for name in names]
    )
    return np.asarray(order).astype(np.int64)


def pick(ids: Indices, rows: Indices, columns: Sequence[pa.Array], *, last: bool) -> Indices:
    """Of each group's rows the first or last in the order of ``columns``.

    ``rows`` are the rows to choose from and ``ids`` their groups, ascending; the first column is not
    null in any of them. The result has one row for each group that ``ids`` names.
    """
    if has_numbers(columns[0].type) and len(rows):
        # The common case needs no sorting: few rows share the extreme of their group.
        keys = numbers(sortable(columns[0]))[rows]
        starts = _starts(ids)
        best = (np.maximum if last else np.minimum).reduceat(keys, starts)
        is_best = keys == np.repeat(best, np.diff(starts, append=len(rows)))
        ids, rows = ids[is_best], rows[is_best]
        columns = columns[1:]
    starts = _starts(ids)
    sizes = np.diff(starts, append=len(rows))
    result = rows[starts]
    tied = np.repeat(sizes > 1, sizes)
    if tied.any() and columns:
        ids, rows = ids[tied], rows[tied]
        order = sort_within_groups(ids, [take(c, rows) for c in columns])
        starts = _starts(ids)
        ends = np.append(starts[1:], len(rows)) - 1
        result[sizes > 1] = rows[order[ends if last else starts]]
    return result


def _starts(ids: Indices) -> Indices:
    if not len(ids):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
