"""Whether rows are the same, column by column, lists among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.columns import Bits
from holdfast.state.columns import equal, take

__all__ = ["same_values"]


def same_values(a: Sequence[pa.Array], b: Sequence[pa.Array]) -> Bits:
    """Row by row whether all columns are the same: two nulls are, and two NaNs.

    >>> same_values([pa.array([[1], [1, 2], None])], [pa.array([[1], [2, 1], None])]).tolist()
    [True, False, True]
    """
    result: Bits = np.ones(len(a[0]), np.bool_)
    for x, y in zip(a, b, strict=True):
        result &= _same_lists(x, y) if pa.types.is_list(x.type) else equal(x, y)
    return result


def _same_lists(a: pa.Array, b: pa.Array) -> Bits:
    lengths = pc.list_value_length(a).fill_null(-1)
    same: Bits = lengths.to_numpy() == pc.list_value_length(b).fill_null(-1).to_numpy()
    rows = np.flatnonzero(same)
    # Where lengths are the same, items lie side by side.
    items = [take(column, rows, ascending=True).flatten() for column in (a, b)]
    sizes = np.maximum(lengths.to_numpy()[rows], 0)
    different = ~same_values(items[:1], items[1:])
    same[np.repeat(rows, sizes)[different]] = False
    return same
