"""Rows sorted and grouped by key.

Rows are sorted by hash alone wherever that is enough. Only rows whose hash is shared by different
keys are sorted by the keys themselves, so collisions cost what they touch and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.columns import Indices, concat, equal, leaves, one_array, sort_keys, take
from holdfast.state.hashing import Hashes

__all__ = [
    "Grouping",
    "SortedRows",
    "group_stretches",
    "key_order",
    "keys_equal",
    "merge_sorted",
    "sort_rows",
]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows sorted by (hash, key): equal keys are neighbours."""

    table: pa.Table
    """First column the hash (uint64), then the key columns, then the rest; one chunk per column."""
    starts: npt.NDArray[np.int64]
    """The index of the first row of each distinct key, ascending."""
    keys: int
    """How many key columns there are."""


class _HashOrder(NamedTuple):
    order: Indices | None
    """The rows' indices by hash, stable; None if they are in order."""
    hashes: Hashes
    """The hashes in that order."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """An order in which equal keys are neighbours."""

    order: Indices | None
    """The rows' indices by (hash, key), rows of one key in their input order; None if they are so."""
    starts: npt.NDArray[np.int64]
    """Where in that order each distinct key begins."""


def sort_rows(table: pa.Table, keys: int, within: str | None = None) -> SortedRows:
    """Sort rows by hash (column 0) and key (the next ``keys`` columns).

    Rows of one key keep their order, or go by the whole numbers of the column ``within``.

    >>> table = pa.table({"h": pa.array([7, 3, 7], pa.uint64()), "k": ["a", "b", "a"], "n": [1, 2, 3]})
    >>> rows = sort_rows(table, keys=1)
    >>> rows.table["n"].to_pylist(), rows.starts.tolist()
    ([2, 1, 3], [0, 1])
    """
    columns = [one_array(column) for column in table.columns]
    return _sorted(columns, table.schema, keys, _hash_order(columns[0].to_numpy()), within)


def _sorted(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    keys: int,
    by_hash: _HashOrder,
    within: str | None,
) -> SortedRows:
    order, hashes = by_hash
    # Keys are moved before they are compared: neighbours are then compared where they lie.
    key_columns = [_moved(column, order) for column in columns[1 : keys + 1]]
    groups = _group(hashes, key_columns, None)
    if groups.order is not None:
        order = groups.order if order is None else order[groups.order]
        key_columns = [take(column, groups.order) for column in key_columns]
    if within is not None:
        numbers = columns[schema.get_field_index(within)].to_numpy()
        order = _ordered_within(numbers, order, groups.starts)
    rest = [_moved(column, order) for column in columns[keys + 1 :]]
    table = pa.Table.from_arrays([pa.array(hashes), *key_columns, *rest], schema=schema)
    return SortedRows(table, groups.starts, keys)


def _ordered_within(
    numbers: npt.NDArray[np.int64], order: Indices | None, starts: Indices
) -> Indices | None:
    """The order in which the numbers of each group ascend. Only groups where they don't are touched."""
    count = len(numbers)
    if len(starts) == count:
        return order
    ordered = numbers if order is None else numbers[order]
    back = ordered[1:] < ordered[:-1]
    back[starts[1:] - 1] = False
    if not back.any():
        return order
    sizes = np.diff(starts, append=count)
    groups = np.repeat(np.arange(len(starts)), sizes)
    touched = np.zeros(len(starts), np.bool_)
    touched[groups[:-1][back]] = True
    places = np.flatnonzero(np.repeat(touched, sizes))
    result: Indices = np.arange(count) if order is None else order.copy()
    result[places] = result[places[np.lexsort((ordered[places], groups[places]))]]
    return result


def _moved(column: pa.Array, order: Indices | None) -> pa.Array:
    return column if order is None else take(column, order)


def keys_equal(a: pa.Table, b: pa.Table) -> Mask:
    """Row by row whether the keys of two aligned tables are equal, as Spark groups them.

    >>> keys_equal(pa.table({"k": ["a", None]}), pa.table({"k": ["b", None]})).tolist()
    [False, True]
    """
    pairs = zip(a.columns, b.columns, strict=True)
    return _all_equal([(one_array(x), one_array(y)) for x, y in pairs], a.num_rows)


def merge_sorted(parts: Sequence[SortedRows], within: str | None = None) -> SortedRows:
    """One sorted whole of several, oldest first: rows of one key stand in the order of the parts.

    Or in the order of the column ``within``, see :func:`sort_rows`.
    """
    tables = [part.table for part in parts]
    schema = tables[0].schema
    columns = [
        concat([one_array(table.column(i)) for table in tables], field.type)
        for i, field in enumerate(schema)
    ]
    return _sorted(columns, schema, parts[0].keys, _merge_order(columns[0].to_numpy()), within)


def group_stretches(
    hashes: Hashes, keys: Sequence[pa.Array], stretches: Indices | None = None
) -> Grouping:
    """The order by (hash, key) of a few sorted stretches that lie one behind the other.

    ``stretches`` may say which one each row is of, if each is sorted by (hash, key): then rows of a
    hash that only one has (items of a list, say) need not be sorted again.
    """
    order, ordered = _merge_order(hashes)
    return _group(ordered, keys, order, stretches)


def _group(
    ordered: Hashes,
    keys: Sequence[pa.Array],
    order: Indices | None,
    stretches: Indices | None = None,
) -> Grouping:
    """Find the keys in rows ordered by hash; ``keys`` are in that order if ``order`` is None."""
    alike = ordered[1:] == ordered[:-1]
    neighbours = np.flatnonzero(alike)
    if len(neighbours):
        same = _neighbours_equal(keys, order, neighbours)
        clashes = neighbours[~same]
        if len(clashes) and stretches is not None:
            here = stretches if order is None else stretches[order]
            clashes = clashes[here[clashes] != here[clashes + 1]]
        if len(clashes):
            order = _untangle(ordered, clashes, keys, order)
            same = _neighbours_equal(keys, order, neighbours)
        alike[neighbours[~same]] = False
    starts = np.flatnonzero(np.concatenate(([len(ordered) > 0], ~alike)))
    return Grouping(order, starts)


def _hash_order(hashes: Hashes) -> _HashOrder:
    """The stable order of any rows by hash.

    Sorting plain numbers is several times faster than sorting indices, and stable if each number
    carries its index. So the lowest bits of each hash give way to the index; the few rows whose
    order hangs on those bits are put right afterwards.
    """
    if (hashes[1:] >= hashes[:-1]).all():
        return _HashOrder(None, hashes)
    count = len(hashes)
    first, last = int(hashes.min()), int(hashes.max())
    mask = np.uint64((1 << (count - 1).bit_length()) - 1)
    packed = hashes - np.uint64(first)
    packed <<= np.uint64(64 - (last - first).bit_length())
    packed &= ~mask
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    packed &= mask
    order = packed.view(np.int64)
    ordered = hashes[order]
    if (ordered[1:] < ordered[:-1]).any():
        mended = np.argsort(ordered, kind="stable")
        order, ordered = order[mended], ordered[mended]
    return _HashOrder(order, ordered)


def _merge_order(hashes: Hashes) -> _HashOrder:
    """The stable order of a few sorted stretches: this sort finds and merges them, in linear time."""
    if (hashes[1:] >= hashes[:-1]).all():
        return _HashOrder(None, hashes)
    order = np.argsort(hashes, kind="stable")
    return _HashOrder(order, hashes[order])


def _neighbours_equal(keys: Sequence[pa.Array], order: Indices | None, left: Indices) -> Mask:
    """Whether the keys at ``left`` and ``left + 1`` of the order are equal."""
    if keys and order is None and len(left) > len(keys[0]) // 4:
        pairs = [(key.slice(0, len(key) - 1), key.slice(1)) for key in keys]
        return _all_equal(pairs, len(keys[0]) - 1)[left]
    here, there = (left, left + 1) if order is None else (order[left], order[left + 1])
    pairs = [(take(key, here, ascending=True), take(key, there, ascending=True)) for key in keys]
    return _all_equal(pairs, len(left))


def _all_equal(pairs: Sequence[tuple[pa.Array, pa.Array]], rows: int) -> Mask:
    result: Mask = np.ones(rows, np.bool_)
    for a, b in pairs:
        result &= equal(a, b)
    return result


def _untangle(
    ordered: Hashes, clashes: Indices, keys: Sequence[pa.Array], order: Indices | None
) -> Indices:
    """Sort the rows of those hashes that different keys share by (hash, key)."""
    shared = np.unique(ordered[clashes])
    firsts = np.searchsorted(ordered, shared)
    counts = np.searchsorted(ordered, shared, side="right") - firsts
    # The places first, first + 1, … of each shared hash, one behind the other.
    places = np.arange(counts.sum()) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    order = np.arange(len(ordered)) if order is None else order.copy()
    rows = order[places]
    columns = [part for key in keys for part in sort_keys(take(key, rows))]
    order[places] = rows[_order_by([pa.array(ordered[places]), *columns])]
    return order


def key_order(keys: pa.Table) -> Indices:
    """The order of the keys themselves, whatever their hashes; nulls come last.

    >>> key_order(pa.table({"k": [{"a": 2}, None, {"a": 1}]})).tolist()
    [2, 0, 1]
    """
    return _order_by([leaf for key in keys.columns for leaf in leaves(one_array(key))])


def _order_by(columns: Sequence[pa.Array]) -> Indices:
    names = [f"k{i}" for i in range(len(columns))]
    table = pa.Table.from_arrays(columns, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return order.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
