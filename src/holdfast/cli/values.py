"""Values of keys and state, as a person types and reads them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError

__all__ = ["parse_value", "shown"]

_LONGEST = 60


def parse_value(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    """The value that ``text`` means for a key column of this type.

    Binary is written in hex; a time without a zone is in UTC.

    >>> parse_value("n", "42", pa.int32())
    <pyarrow.Int32Scalar: 42>
    >>> parse_value("day", "2026-01-31", pa.date32()).as_py().day
    31
    """
    try:
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return pa.scalar(bytes.fromhex(text.removeprefix("0x")), kind)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return _parse_instant(text, kind)
        return pa.scalar(text).cast(kind)
    except (ValueError, pa.ArrowException) as error:
        raise InputError(
            f"{text!r} is not a value of key column {name!r}, which is of type {kind}",
            hint="write numbers plainly, dates as 2026-01-31, times as 2026-01-31T12:00:00, "
            "binary in hex",
        ) from error


def _parse_instant(text: str, kind: pa.TimestampType) -> pa.Scalar:
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        local = pa.scalar(text).cast(pa.timestamp(kind.unit))
        return pc.assume_timezone(local, "UTC").cast(kind)


def shown(value: Any) -> str:
    """A value on one line, cut if it is long.

    >>> shown(b"\\x01\\xff"), shown(1.5), shown("x" * 100)[-3:]
    ('01ff', '1.5', 'xx…')
    """
    if isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    elif isinstance(value, Decimal):
        text = f"{value:f}"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
