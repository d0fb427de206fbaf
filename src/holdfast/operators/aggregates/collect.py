"""Values kept as lists within a limit: collect_set and collect_list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.aggregates.order import sort_within_groups, sortable
from holdfast.operators.columns import Bits
from holdfast.operators.groups import RowGroups

__all__ = ["CollectList", "CollectSet", "list_type"]


def list_type(kind: pa.DataType) -> pa.DataType:
    """A list as Spark and Parquet name its items."""
    return pa.list_(pa.field("element", kind))


class CollectSet(Merger):
    """The least ``limit`` distinct values that are not null, ascending."""

    def __init__(self, kind: pa.DataType, limit: int) -> None:
        self.limit = limit
        self.result = list_type(kind)
        self.parts = (("values", self.result),)

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """The least distinct values of all the lists."""
        return _merged(parts, groups, self.limit, distinct=True)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The list itself."""
        return parts[0]


class CollectList(Merger):
    """The first ``limit`` values that are not null, in an order; equal places go by the value."""

    def __init__(self, kind: pa.DataType, order: pa.DataType, limit: int) -> None:
        self.limit = limit
        self.result = list_type(kind)
        self.parts = (("order", list_type(order)), ("values", self.result))

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """The first values of all the lists."""
        return _merged(parts, groups, self.limit, distinct=False)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The list of values."""
        return parts[1]


def _merged(
    lists: Sequence[pa.Array], groups: RowGroups, limit: int, *, distinct: bool
) -> list[pa.Array]:
    """Merge parallel list columns: sort each group's items by all columns and keep the first."""
    lengths = pc.list_value_length(lists[0]).fill_null(0).to_numpy(zero_copy_only=False)
    items = [column.flatten() for column in lists]
    ids = np.repeat(groups.ids, lengths)
    order = sort_within_groups(ids, items)
    ids = ids[order]
    items = [column.take(pa.array(order)) for column in items]
    if distinct and len(ids):
        fresh = ~_repeats(ids, items[0])
        ids = ids[fresh]
        items = [column.filter(pa.array(fresh)) for column in items]
    kept = _position(ids) < limit
    counts = np.bincount(ids[kept], minlength=groups.count)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    return [
        pa.ListArray.from_arrays(offsets, column.filter(pa.array(kept)), type=source.type)
        for column, source in zip(items, lists, strict=True)
    ]


def _repeats(ids: npt.NDArray[np.int64], values: pa.Array) -> Bits:
    """Which items equal the one before them."""
    comparable = sortable(values)
    same = pc.equal(comparable[1:], comparable[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate(([False], same.astype(np.bool_) & (ids[1:] == ids[:-1])))


def _position(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of each item within its group; ``ids`` ascend."""
    rows = np.arange(len(ids))
    if not len(ids):
        return rows
    new = np.concatenate(([True], ids[1:] != ids[:-1]))
    return rows - np.maximum.accumulate(np.where(new, rows, 0))
