"""The hash of an entry under its key: part of the format, never to be changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from holdfast.operators.process.convert import to_arrow

__all__ = ["entry_low"]

_LOW = 0xFFFFFFFF


def entry_low(name: Any, kind: pa.DataType) -> int:
    """The lower half of the hash of the map entry ``name``, whose keys are of type ``kind``.

    >>> entry_low("a", pa.string()) == entry_low("b", pa.string())
    False
    >>> entry_low(1, pa.float64()) == entry_low(1.0, pa.float64())
    True
    """
    if type(name) is str and pa.types.is_string(kind):
        return xxhash.xxh3_64_intdigest(name.encode()) & _LOW
    if type(name) is int and pa.types.is_integer(kind):
        return xxhash.xxh3_64_intdigest(name.to_bytes(8, "little", signed=True)) & _LOW
    # By way of Arrow: what is one key to the type has one hash, be it a Row, a dict or NumPy's.
    plain = to_arrow([name], kind).to_pylist()[0]
    if type(plain) is str or type(plain) is int:
        return entry_low(plain, kind)
    data = msgspec.msgpack.encode(plain, order="sorted")
    return xxhash.xxh3_64_intdigest(data) & _LOW
