"""How a processor's values become what cells hold: by type, with checks.

PySpark stores null where a value is of another type than its field, and wraps numbers that are too
large. Here such a value is converted if nothing is lost by it, and refused otherwise.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Encode", "MisfitError", "encoder"]

Encode = Callable[[Any], Any]

_UTC = timezone.utc
_MOST_DIGITS = 38
_SINGLE = struct.Struct("f")
_PLAIN_FLOATS = (1e-3, 1e7)
"""Between these Java and Python write a number alike."""


class MisfitError(Exception):
    """A value doesn't fit its type; says why."""


def encoder(kind: pa.DataType) -> Encode:  # noqa: PLR0911 - a table in all but name
    """How the processor's value, which isn't None, becomes what is held; raises if it can't."""
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_floating(kind):
        return _single if kind.bit_width == 32 else _float
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        inner = encoder(kind.value_type)
        return lambda value: [None if v is None else inner(v) for v in _plain(value)]
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _ntz if kind.tz is None else _timestamp
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_date(kind):
        return _date
    return _binary if pa.types.is_binary(kind) else _string


def _plain(value: Any) -> Any:
    """What NumPy's and pandas' scalars hold."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    convert = getattr(value, "to_pydatetime", None)
    return value if convert is None else convert()


def _integer(bits: int) -> Encode:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def encode(value: Any) -> Any:
        if type(value) is not int:
            value = _plain(value)
            if isinstance(value, float):
                if math.isnan(value):
                    return None
                if not value.is_integer():
                    raise MisfitError("it is no whole number")
                value = int(value)
            elif isinstance(value, bool) or not isinstance(value, int):
                raise MisfitError("it is no number")
        if not least <= value <= most:
            raise MisfitError("it is too large")
        return value

    return encode


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise MisfitError("it is no number")
    return float(value)


def _single(value: Any) -> Any:
    # Rounded at once: a value reads the same in the epoch that wrote it as in later ones.
    return _SINGLE.unpack(_SINGLE.pack(_float(value)))[0]


def _boolean(value: Any) -> Any:
    value = _plain(value)
    if not isinstance(value, bool):
        raise MisfitError("it is neither True nor False")
    return value


def _string(value: Any) -> Any:
    if type(value) is str:
        return value
    value = _plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | Decimal):
        return str(value)
    if isinstance(value, float) and (
        not value or _PLAIN_FLOATS[0] <= abs(value) < _PLAIN_FLOATS[1]
    ):
        return repr(value)
    raise MisfitError("it is no string")


def _binary(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise MisfitError("it is no bytes")
    return bytes(value)


def _decimal(precision: int, scale: int) -> Encode:
    step = Decimal(1).scaleb(-scale)
    beyond = Decimal(1).scaleb(precision - scale)

    def encode(value: Any) -> Any:
        value = _plain(value)
        if isinstance(value, int) and not isinstance(value, bool):
            value = Decimal(value)
        if not isinstance(value, Decimal):
            raise MisfitError("it is no Decimal")
        with localcontext() as context:
            context.prec = 2 * _MOST_DIGITS
            rounded = value.quantize(step, ROUND_HALF_UP)
        if abs(rounded) >= beyond:
            raise MisfitError("it has too many digits")
        return rounded

    return encode


def _date(value: Any) -> Any:
    value = _moment(value)
    return value.date() if isinstance(value, datetime) else value


def _timestamp(value: Any) -> Any:
    value = _moment(value)
    if value is not None and not isinstance(value, datetime):
        raise MisfitError("it is no datetime")
    # Without a zone it is in the worker's own, as PySpark takes it.
    return None if value is None else value.astimezone(_UTC)


def _ntz(value: Any) -> Any:
    value = _moment(value)
    if value is not None and not isinstance(value, datetime):
        raise MisfitError("it is no datetime")
    return None if value is None else value.replace(tzinfo=None)


def _moment(value: Any) -> date | None:
    value = _plain(value)
    if str(value) == "NaT":
        return None
    if not isinstance(value, date):
        raise MisfitError("it is no date")
    return value


def _struct(kind: pa.DataType) -> Encode:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    encoders = [(field.name, encoder(field.type)) for field in fields]

    def encode(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            given = [value.get(name) for name, _ in encoders]
        else:
            given = list(_plain(value))
        if len(given) != len(encoders):
            raise MisfitError(f"it has {len(given)} fields, not {len(encoders)}")
        return {
            name: None if v is None else encode_field(v)
            for v, (name, encode_field) in zip(given, encoders, strict=True)
        }

    return encode


def _map(kind: pa.DataType) -> Encode:
    key, item = encoder(kind.key_type), encoder(kind.item_type)

    def encode(value: Any) -> dict[Any, Any]:
        pairs = value.items() if hasattr(value, "items") else value
        return {key(k): None if v is None else item(v) for k, v in pairs}

    return encode
