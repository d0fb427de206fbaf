"""Arrow columns as NumPy arrays and back, without copying values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.columns import one_array

__all__ = ["Bits", "NDArray", "column", "has_numbers", "is_valid", "make_array", "numbers"]

NDArray = npt.NDArray[Any]
Bits = npt.NDArray[np.bool_]

_DTYPES: dict[Any, Any] = {
    pa.bool_(): np.uint8,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
}


def has_numbers(kind: pa.DataType) -> bool:
    """Whether a column of this type is one of plain numbers to NumPy.

    >>> has_numbers(pa.timestamp("us")), has_numbers(pa.string())
    (True, False)
    """
    return kind in _DTYPES or bool(pa.types.is_timestamp(kind))


def numbers(array: pa.Array) -> NDArray:
    """The values of a column that :func:`has_numbers`; some number where it is null.

    >>> numbers(pa.array([3, 4], pa.date32())).tolist()
    [3, 4]
    """
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
        dtype: Any = np.uint8
    else:
        dtype = _DTYPES.get(array.type, np.int64)
    if not len(array):
        return np.empty(0, dtype)
    data: NDArray = np.frombuffer(array.buffers()[1], dtype)
    return data[array.offset : array.offset + len(array)]


def is_valid(array: pa.Array) -> Bits | None:
    """Where the column is not null; None if it is null nowhere.

    >>> is_valid(pa.array([1, None])).tolist()
    [True, False]
    """
    if array.null_count == 0:
        return None
    bits = np.unpackbits(
        np.frombuffer(array.buffers()[0], np.uint8),
        count=array.offset + len(array),
        bitorder="little",
    )
    return bits[array.offset :].view(np.bool_)


def make_array(kind: pa.DataType, values: NDArray, valid: Bits | None = None) -> pa.Array:
    """An Arrow column of these values, null where not ``valid``.

    >>> make_array(pa.int64(), np.array([1, 2]), np.array([True, False])).to_pylist()
    [1, None]
    """
    length = len(values)
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(kind):
        values = np.packbits(values.astype(np.bool_), bitorder="little")
    return pa.Array.from_buffers(kind, length, [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    """A table's column as one array of exactly this type.

    Spark stamps times with the session's time zone (the instants are the same in UTC) and may or
    may not promise that lists hold no nulls: such columns are relabelled, their values stay.

    >>> column(pa.table({"t": pa.array([5], pa.timestamp("us", "+01:00"))}), "t",
    ...        pa.timestamp("us", "UTC")).type
    TimestampType(timestamp[us, tz=UTC])
    """
    array = one_array(table.column(name))
    if array.type == kind:
        return array
    if not pa.types.is_list(kind):
        return array.cast(kind)
    validity, offsets = array.buffers()[:2]
    items = array.values.cast(kind.value_type)
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], offset=array.offset, children=[items]
    )
