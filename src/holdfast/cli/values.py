"""Values of keys and state, as a person types and reads them."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.state.text import on_one_line, python_values, text_array

__all__ = ["parse_value", "shown"]

_LONGEST = 60


def parse_value(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    """The value that ``text`` means for a key column of this type.

    Binary is written in hex, a struct as JSON; a time without a zone is in UTC.

    >>> parse_value("n", "42", pa.int32())
    <pyarrow.Int32Scalar: 42>
    >>> parse_value("day", "2026-01-31", pa.date32()).as_py().day
    31
    >>> parse_value("at", '{"x": 3}', pa.struct([("x", pa.int8()), ("y", pa.string())])).as_py()
    {'x': 3, 'y': None}
    """
    try:
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return pa.scalar(bytes.fromhex(text.removeprefix("0x")), kind)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return _parse_instant(text, kind)
        if pa.types.is_struct(kind):
            return _parse_struct(name, text, kind)
        return text_array([text], pa.string())[0].cast(kind)
    except (ValueError, pa.ArrowException) as error:
        raise InputError(
            f"{text!r} is not a value of key column {name!r}, which is of type {kind}",
            hint="write numbers plainly, dates as 2026-01-31, times as 2026-01-31T12:00:00, "
            "binary in hex, a struct as the JSON object of its fields",
        ) from error


def _parse_struct(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    given = json.loads(text)
    if not isinstance(given, dict) or set(given) - {field.name for field in kind}:
        raise ValueError(f"fields of {name!r} are unknown")
    values = {}
    for field in kind:
        value = given.get(field.name)
        words = value if isinstance(value, str) else json.dumps(value)
        of = f"{name}.{field.name}"
        found = pa.repeat(parse_value(of, words, field.type), 1) if value is not None else None
        values[field.name] = None if found is None else python_values(found)[0]
    return text_array([values], kind)[0]


def _parse_instant(text: str, kind: pa.TimestampType) -> pa.Scalar:
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        local = pa.scalar(text).cast(pa.timestamp(kind.unit))
        return pc.assume_timezone(local, "UTC").cast(kind)


def shown(value: Any) -> str:
    """A value on one line, cut if it is long.

    >>> shown(b"\\x01\\xff"), shown(1.5), shown("x" * 100)[-3:], shown("\\a")
    ('01ff', '1.5', 'xx…', '\\\\x07')
    """
    if isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    elif isinstance(value, Decimal):
        text = f"{value:f}"
    else:
        text = on_one_line(str(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
