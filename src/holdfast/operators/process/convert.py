"""Columns as Python values and back: what user code per key sees and returns.

Converting whole columns costs tens of nanoseconds per value, converting values one by one about a
microsecond: so a chunk of keys is converted at once, whatever its code then looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timezone
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.state.columns import one_array

__all__ = ["first_misfit", "normalizer", "to_arrow", "to_python"]

_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


def to_python(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column: structs as dicts, maps as dicts, timestamps as datetimes.

    >>> to_python(pa.array([1, None, 3]))
    [1, None, 3]
    >>> to_python(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())))
    [{'a': 1}]
    """
    array = one_array(column)
    kind = array.type
    if not array.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values: list[Any] = array.to_numpy().tolist()
        return values
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _datetimes(array)
    if pa.types.is_nested(kind):
        return list(array.to_pylist(maps_as_pydicts="strict"))
    return list(array.to_pylist())


def _datetimes(array: pa.Array) -> list[Any]:
    # By way of NumPy: Arrow's own conversion takes several microseconds per value.
    naive = array.cast(pa.timestamp("us"), safe=False) if array.type.tz else array
    values: list[Any] = naive.to_numpy(zero_copy_only=False).astype("datetime64[us]").tolist()
    if array.type.tz is None:
        return values
    utc = timezone.utc
    return [None if value is None else value.replace(tzinfo=utc) for value in values]


def to_arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of these values; raises what Arrow raises if one doesn't fit.

    Tuples, Rows and named tuples make structs, NumPy scalars and pandas timestamps are what they hold.

    >>> to_arrow([np.int64(3), 4], pa.int64()).to_pylist()
    [3, 4]
    """
    try:
        return pa.array(values, kind)
    except _MISFITS:
        # Only what Arrow doesn't take as it is is converted value by value.
        convert = _converter(kind)
        return pa.array([None if v is None else convert(v) for v in values], kind)


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_struct(kind):
        return _struct_converter(kind)
    if pa.types.is_list(kind):
        inner = _converter(kind.value_type)
        return lambda v: [None if x is None else inner(x) for x in v]
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type), _converter(kind.item_type)
        return lambda v: [
            (key(k), None if x is None else item(x))
            for k, x in (v.items() if hasattr(v, "items") else v)
        ]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _whole
    return _plain


def _struct_converter(kind: pa.DataType) -> Callable[[Any], Any]:
    fields = [(kind.field(i).name, _converter(kind.field(i).type)) for i in range(kind.num_fields)]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            parts = tuple(value) if isinstance(value, tuple | list) else (value,)
            if len(parts) != len(fields):
                raise TypeError(f"{value!r} has {len(parts)} fields, not {len(fields)}")
            value = dict(zip((name for name, _ in fields), parts, strict=True))
        unknown = set(value) - {name for name, _ in fields}
        if unknown:
            raise TypeError(f"{value!r} has fields {sorted(unknown)} that are not declared")
        given = ((name, value.get(name), c) for name, c in fields)
        return {name: None if v is None else c(v) for name, v, c in given}

    return convert


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    to_pydatetime = getattr(value, "to_pydatetime", None)
    return to_pydatetime() if to_pydatetime is not None else value


def _whole(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, float):
        raise TypeError(f"{value!r} is no whole number")
    return value


def normalizer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes a value of a nested type look as it will when it is read back; None for others.

    >>> normalizer(pa.struct([("a", pa.int32())]))((3,))
    {'a': 3}
    """
    if not pa.types.is_nested(kind):
        return None
    convert = _converter(kind)
    if not pa.types.is_map(kind):
        return lambda value: None if value is None else convert(value)
    return lambda value: None if value is None else dict(convert(value))


def first_misfit(values: Sequence[Any], kind: pa.DataType) -> tuple[int, Exception] | None:
    """The first value that doesn't fit, and what is wrong with it.

    >>> index, error = first_misfit([1, "x"], pa.int64())
    >>> index
    1
    """
    for index, value in enumerate(values):
        try:
            to_arrow([value], kind)
        except _MISFITS as error:
            return index, error
    return None
