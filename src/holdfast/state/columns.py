"""Moving and comparing whole columns: what sorting, look-up and merging are made of.

Arrow's own kernels are used wherever they are fast. Two things are done here because they are
several times faster: taking variable-length values in random order (by way of their 16-byte
views), and taking nullable values (bitmap and values each on their own).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.state.hashing import Hashes

__all__ = [
    "Indices",
    "concat",
    "equal",
    "hash_values",
    "leaves",
    "one_array",
    "sort_key",
    "sort_keys",
    "take",
    "take_all",
]

Indices = npt.NDArray[np.int64]

_VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
_VIEW_BYTES = 16
# Fewer values than this are taken faster directly than by way of views.
_FEW = 4096
# Rows that stand in stretches as long as this, on average, are copied stretch by stretch.
_LONG = 256
_UNCHECKED = pc.TakeOptions(boundscheck=False)


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one contiguous array, without copying if it is one already."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return concat(column.chunks, column.type)


def concat(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """One array of all these; none make an empty one."""
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return pa.array([], kind)
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"more than 2 GiB of {kind} values would have to be held at once",
            hint="use smaller epochs or more partitions",
        ) from error


def hash_values(rows: pa.Table | pa.RecordBatch) -> Hashes:
    """The hashes (first column) as a NumPy array, without copying if they are in one chunk."""
    values: Hashes = one_array(rows.column(0)).to_numpy(zero_copy_only=True)
    return values


def take(array: pa.Array, indices: Indices, *, ascending: bool = False) -> pa.Array:
    """The values at these indices, which must be in bounds.

    ``ascending`` says that the indices are, or nearly: then Arrow's own kernel reads text faster.

    >>> take(pa.array(["a", None, "c"]), np.array([2, 1])).to_pylist()
    ['c', None]
    """
    return take_all([array], indices, ascending=ascending)[0]


def take_all(
    arrays: Sequence[pa.Array], indices: Indices, *, ascending: bool = False
) -> list[pa.Array]:
    """The values of several columns at the same indices; the columns themselves if those are all."""
    places = pa.array(indices)
    if not arrays or len(indices) < _FEW:
        return [_take_plain(array, places) for array in arrays]
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    if not len(breaks) and len(indices) == len(arrays[0]):
        return list(arrays)
    if 0 < len(breaks) <= len(indices) // _LONG:
        begins = np.concatenate(([0], breaks))
        counts = np.diff(begins, append=len(indices)).tolist()
        stretches = list(zip(indices[begins].tolist(), counts, strict=True))
        return [_take_stretches(array, stretches) for array in arrays]
    return [_take_many(array, places, ascending=ascending) for array in arrays]


def _take_stretches(array: pa.Array, stretches: Sequence[tuple[int, int]]) -> pa.Array:
    return concat([array.slice(begin, count) for begin, count in stretches], array.type)


def _take_many(array: pa.Array, places: pa.Array, *, ascending: bool) -> pa.Array:
    kind = array.type
    if kind in _VIEWS and not ascending:
        return _take_views(array, places)
    if array.null_count and pa.types.is_primitive(kind) and kind.bit_width >= 8:
        return _take_nullable(array, places)
    return _take_plain(array, places)


def _take_views(array: pa.Array, places: pa.Array) -> pa.Array:
    """Take strings or binaries as fixed-size views, then copy the bytes in their new order."""
    views = array.cast(_VIEWS[array.type])
    validity, fixed, *data = views.buffers()
    slots = pa.Array.from_buffers(
        pa.binary(_VIEW_BYTES), len(views), [validity, fixed], offset=views.offset
    )
    taken = _take_nullable(slots, places) if array.null_count else _take_plain(slots, places)
    validity, fixed = taken.buffers()
    moved = pa.Array.from_buffers(views.type, len(places), [validity, fixed, *data])
    return moved.cast(array.type)


def _take_nullable(array: pa.Array, places: pa.Array) -> pa.Array:
    validity, values = array.buffers()
    bits = pa.Array.from_buffers(pa.bool_(), len(array), [None, validity], offset=array.offset)
    plain = pa.Array.from_buffers(array.type, len(array), [None, values], offset=array.offset)
    bits, plain = _take_plain(bits, places), _take_plain(plain, places)
    buffers = [bits.buffers()[1], plain.buffers()[1]]
    return pa.Array.from_buffers(array.type, len(places), buffers)


def _take_plain(array: pa.Array, places: pa.Array) -> pa.Array:
    return pc.call_function("array_take", [array, places], _UNCHECKED)


def equal(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Row by row whether values are the same to Spark's grouping: so are two nulls and two NaNs.

    >>> equal(pa.array([1.0, None, float("nan")]), pa.array([2.0, None, float("nan")])).tolist()
    [False, True, True]
    """
    if pa.types.is_struct(a.type):
        pairs = zip(sort_keys(a), sort_keys(b), strict=True)
        whole: npt.NDArray[np.bool_] = np.logical_and.reduce([equal(x, y) for x, y in pairs])
        return whole
    same = pc.equal(sort_key(a), sort_key(b))
    if not a.null_count and not b.null_count:
        plain: npt.NDArray[np.bool_] = same.to_numpy(zero_copy_only=False)
        return plain
    both = pc.and_(a.is_null(), b.is_null())
    result: npt.NDArray[np.bool_] = pc.fill_null(same, both).to_numpy(zero_copy_only=False)
    return result


def sort_keys(array: pa.Array) -> list[pa.Array]:
    """The columns to sort and compare by, see :func:`leaves`."""
    return [sort_key(leaf) for leaf in leaves(array)]


def leaves(array: pa.Array) -> list[pa.Array]:
    """A column in parts that Arrow can sort: of a struct whether it is null, then its fields.

    >>> [leaf.to_pylist() for leaf in leaves(pa.array([{"a": 1}, {"a": None}, None]))]
    [[False, False, True], [1, None, None]]
    """
    if not pa.types.is_struct(array.type):
        return [array]
    return [array.is_null(), *(leaf for field in array.flatten() for leaf in leaves(field))]


def sort_key(array: pa.Array) -> pa.Array:
    """The same values in a type whose equality and order are those of keys.

    Floats become the integers of their bits, every NaN the same one: so a NaN equals a NaN.
    """
    if not pa.types.is_floating(array.type):
        return array
    wide = pa.types.is_float64(array.type)
    bits = array.view(pa.int64() if wide else pa.int32())
    nan = pc.is_nan(array)
    if not pc.any(nan).as_py():
        return bits
    canonical = np.array(np.nan, np.float64 if wide else np.float32)
    return pc.if_else(nan, pa.scalar(canonical.view(np.int64 if wide else np.int32).item()), bits)
