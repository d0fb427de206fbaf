"""What an entry is called under its key, and its hash: part of the format, never to be changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from holdfast.operators.process.convert import MISFITS, to_arrow, to_python
from holdfast.state.text import python_values
from holdfast.types import type_words

__all__ = ["as_stored", "entry_low", "entry_name", "name_type"]

_LOW = 0xFFFFFFFF
_NAN = float("nan")


def name_type(kind: pa.DataType) -> type | None:
    """The Python type whose values are names as they are; all others go through :func:`entry_name`."""
    if pa.types.is_string(kind):
        return str
    if pa.types.is_integer(kind):
        return int
    return bytes if pa.types.is_binary(kind) else None


def entry_name(given: Any, kind: pa.DataType) -> Any:
    """What user code calls an entry, as it will be read back: one value for each entry, hashable.

    >>> entry_name(0.1, pa.float32()), entry_name(-0.0, pa.float64())
    (0.10000000149011612, 0.0)
    >>> entry_name({"a": 1}, pa.struct([("a", pa.int64())]))
    (1,)
    """
    try:
        return as_stored(to_python(to_arrow([given], kind))[0])
    except MISFITS as error:
        raise TypeError(
            f"an entry was called {given!r} ({type(given).__name__}), which is no "
            f"{type_words(kind)}: {error}"
        ) from None


def as_stored(name: Any) -> Any:
    """The name of an entry that was read, hashable."""
    if isinstance(name, dict):
        return tuple(map(as_stored, name.values()))
    if isinstance(name, float):
        # As Spark groups: one NaN, and no negative zero.
        return _NAN if name != name else name + 0.0  # noqa: PLR0124 - only NaN differs from itself
    return name


def _with_bytes(plain: Any) -> Any:
    """The same with bytes for text that is not UTF-8."""
    if isinstance(plain, dict):
        return {name: _with_bytes(value) for name, value in plain.items()}
    if isinstance(plain, str) and not plain.isascii():
        data = plain.encode(errors="surrogateescape")
        return plain if data == plain.encode(errors="replace") else data
    return plain


def entry_low(name: Any, kind: pa.DataType) -> int:
    """The lower half of the hash of the map entry ``name``, whose keys are of type ``kind``.

    >>> entry_low("a", pa.string()) == entry_low("b", pa.string())
    False
    >>> entry_low(1, pa.float64()) == entry_low(1.0, pa.float64())
    True
    """
    if type(name) is str and pa.types.is_string(kind):
        return xxhash.xxh3_64_intdigest(name.encode(errors="surrogateescape")) & _LOW
    if type(name) is int and pa.types.is_integer(kind):
        return xxhash.xxh3_64_intdigest(name.to_bytes(8, "little", signed=True)) & _LOW
    # By way of Arrow: what is one key to the type has one hash, be it a Row, a dict or NumPy's.
    plain = python_values(to_arrow([name], kind))[0]
    if type(plain) is str or type(plain) is int:
        return entry_low(plain, kind)
    try:
        data = msgspec.msgpack.encode(plain, order="sorted")
    except UnicodeEncodeError:
        data = msgspec.msgpack.encode(_with_bytes(plain), order="sorted")
    return xxhash.xxh3_64_intdigest(data) & _LOW
