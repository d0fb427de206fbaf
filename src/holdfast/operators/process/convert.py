"""Columns as Python values and back: what user code per key sees and returns.

Converting whole columns costs tens of nanoseconds per value, converting values one by one about a
microsecond: so a chunk of keys is converted at once, whatever its code then looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.state.columns import one_array
from holdfast.state.text import python_values, text_array
from holdfast.types import type_words

__all__ = [
    "MISFITS",
    "exact_type",
    "first_misfit",
    "fitting",
    "normalizer",
    "to_arrow",
    "to_python",
]

MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


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
    if pa.types.is_struct(kind) and kind.num_fields:
        return _structs(array)
    if pa.types.is_nested(kind):
        return python_values(array, maps_as_pydicts="strict")
    return python_values(array)


def _structs(array: pa.Array) -> list[Any]:
    # Field by field: Arrow's own conversion takes several times as long.
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    fields = [to_python(array.field(i)) for i in range(array.type.num_fields)]
    rows: list[Any] = [
        dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)
    ]
    if array.null_count:
        there = array.is_valid().to_numpy(zero_copy_only=False).tolist()
        rows = [row if valid else None for row, valid in zip(rows, there, strict=True)]
    return rows


def _datetimes(array: pa.Array) -> list[Any]:
    # By way of NumPy: Arrow's own conversion takes several microseconds per value.
    naive = array.cast(pa.timestamp("us"), safe=False) if array.type.tz else array
    values: list[Any] = naive.to_numpy(zero_copy_only=False).astype("datetime64[us]").tolist()
    if array.type.tz is None:
        return values
    utc = timezone.utc
    return [None if value is None else value.replace(tzinfo=utc) for value in values]


def to_arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of these values; raises what Arrow raises, or TypeError, if one doesn't fit.

    Tuples, Rows and named tuples make structs, NumPy scalars and pandas timestamps are what they hold.

    >>> to_arrow([np.int64(3), 4], pa.int64()).to_pylist()
    [3, 4]
    """
    try:
        if pa.types.is_integer(kind):
            # Told the type, Arrow would make 1 of 1.5.
            found = pa.array(values)
            if pa.types.is_integer(found.type) or pa.types.is_null(found.type):
                return found if found.type == kind else found.cast(kind)
        else:
            array = pa.array(values, kind)
            if not pa.types.is_nested(kind) or _is_whole(values, kind):
                return array
    except MISFITS:
        pass
    # Only what Arrow doesn't take as it is is converted value by value.
    convert = _converter(kind)
    return text_array([None if v is None else convert(v) for v in values], kind)


def _is_whole(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether Arrow has surely taken all of nested values: no fractions cut, no fields left out."""
    try:
        return _holds(kind, pa.infer_type(values))
    except MISFITS:
        return False


def _holds(kind: pa.DataType, given: pa.DataType) -> bool:
    if pa.types.is_null(given):
        return True
    if pa.types.is_integer(kind):
        return bool(pa.types.is_integer(given))
    if pa.types.is_struct(kind):
        if not pa.types.is_struct(given):
            return False
        fields = [given.field(i) for i in range(given.num_fields)]
        places = [kind.get_field_index(field.name) for field in fields]
        pairs = zip(places, fields, strict=True)
        return all(at >= 0 and _holds(kind.field(at).type, f.type) for at, f in pairs)
    if pa.types.is_list(kind):
        return bool(pa.types.is_list(given)) and _holds(kind.value_type, given.value_type)
    # What a dict is given for can't be told from its keys and values.
    return not pa.types.is_map(kind)


@lru_cache(maxsize=256)
def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes of a value, which isn't None, what it will be read back as."""
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
    return _leaf_converter(kind)


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


def exact_type(kind: pa.DataType) -> type | None:
    """The Python type whose values are read back as they were set; None: they must be looked at.

    >>> exact_type(pa.float64()), exact_type(pa.float32())
    (<class 'float'>, None)
    """
    if pa.types.is_integer(kind):
        return int
    return _EXACT.get(kind)


_EXACT: dict[pa.DataType, type] = {
    pa.string(): str,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.binary(): bytes,
}


def _leaf_converter(kind: pa.DataType) -> Callable[[Any], Any]:
    exact = exact_type(kind)
    whole = pa.types.is_integer(kind)
    as_it_is = _CHECKS.get(kind, lambda value: type(value) is exact)

    def convert(value: Any) -> Any:
        if as_it_is(value):
            return value
        plain = _plain(value)
        if whole and (isinstance(plain, bool) or not isinstance(plain, int)):
            raise TypeError(f"{plain!r} is no whole number")
        try:
            return to_python(text_array([plain], kind))[0]
        except pa.ArrowInvalid:
            if _has_too_many_digits(plain, kind):
                raise TypeError("it has too many digits") from None
            raise

    return convert


def _has_too_many_digits(value: Any, kind: pa.DataType) -> bool:
    """Whether a number is too large for a decimal type: Arrow speaks of its own types then."""
    if not pa.types.is_decimal(kind) or isinstance(value, bool):
        return False
    if not (isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite())):
        return False
    beyond = Decimal(1).scaleb(kind.precision - kind.scale)
    return not -beyond < value < beyond


_CHECKS: dict[pa.DataType, Callable[[Any], bool]] = {
    pa.timestamp("us", "UTC"): lambda v: type(v) is datetime and v.tzinfo is timezone.utc,
    pa.timestamp("us"): lambda v: type(v) is datetime and v.tzinfo is None,
    pa.date32(): lambda v: type(v) is date,
}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    to_pydatetime = getattr(value, "to_pydatetime", None)
    return to_pydatetime() if to_pydatetime is not None else value


def normalizer(kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes a value look as it will when it is read back, or raises if it doesn't fit.

    So a program comes to the same however its rows are cut into epochs.

    >>> normalizer(pa.struct([("a", pa.int32())]))((3,))
    {'a': 3}
    >>> normalizer(pa.float32())(0.1)
    0.10000000149011612
    """
    convert = _converter(kind)
    if not pa.types.is_map(kind):
        return lambda value: None if value is None else convert(value)
    return lambda value: None if value is None else dict(convert(value))


def fitting(name: str, kind: pa.DataType, *, also_range: bool = False) -> Callable[[Any], Any]:
    """The normalizer of a state, which says what is wrong with a value that doesn't fit.

    Whether a whole number is too large is found out when it is stored, unless ``also_range``.
    """
    convert = normalizer(kind)

    def fit(value: Any) -> Any:
        try:
            fitted = convert(value)
            if also_range:
                to_arrow([fitted], kind)
        except MISFITS as error:
            raise TypeError(
                f"state {name!r} was given {value!r} ({type(value).__name__}), which is no "
                f"{type_words(kind)}: {error}"
            ) from None
        return fitted

    return fit


def first_misfit(values: Sequence[Any], kind: pa.DataType) -> tuple[int, Exception] | None:
    """The first value that doesn't fit, and what is wrong with it.

    >>> index, error = first_misfit([1, "x"], pa.int64())
    >>> index
    1
    """
    for index, value in enumerate(values):
        try:
            to_arrow([value], kind)
        except MISFITS as error:
            return index, error
    return None
