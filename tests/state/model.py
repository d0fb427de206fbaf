"""What the tests of this room share: keys of every type, weak hashes, and rows as plain Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash
from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1)
Hash = Callable[[tuple[Any, ...]], int]

DECIMAL = pa.decimal128(20, 3)
KEY_VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, None],
    pa.int8(): [-128, 0, 127, None],
    pa.int16(): [-(2**15), 0, 5, None],
    pa.int32(): [-(2**31), 0, 2**31 - 1, None],
    pa.int64(): [-(2**63), -1, 0, 2**63 - 1, None],
    pa.float32(): [0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, None],
    pa.float64(): [0.0, 1e300, -1.5, math.inf, -math.inf, math.nan, None],
    DECIMAL: [Decimal("0.000"), Decimal("-12345678901234567.891"), Decimal("1.100"), None],
    pa.string(): ["", "a", "b", "a\0", "ab", "żółw", "x" * 13, "x" * 40, "x" * 39 + "y", None],
    pa.binary(): [b"", b"\0", b"\0\0", b"\xff", b"abcdefghijklmnop", None],
    pa.date32(): [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), None],
    pa.timestamp("us"): [EPOCH, EPOCH - timedelta(microseconds=1), datetime(2024, 2, 29), None],
    pa.timestamp("us", "UTC"): [
        EPOCH.replace(tzinfo=timezone.utc),
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=timezone.utc),
        None,
    ],
}


def plain(value: Any) -> Any:
    """A value that Python compares as Spark groups: floats by their bits, every NaN the same."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    return value


def plain_key(key: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(plain(value) for value in key)


def strong_hash(key: tuple[Any, ...]) -> int:
    return xxhash.xxh3_64_intdigest(repr(plain_key(key)).encode())


def _modulo(shift: int) -> Hash:
    return lambda key: (strong_hash(key) % 4) << shift


HASHES: dict[str, Hash] = {
    "strong": strong_hash,
    "low two bits": _modulo(0),
    "high two bits": _modulo(62),
    "always zero": lambda key: 0,
    "always the last": lambda key: 2**64 - 1,
}

hashes = st.sampled_from(sorted(HASHES)).map(HASHES.__getitem__)
key_types = st.lists(st.sampled_from(list(KEY_VALUES)), min_size=1, max_size=3)


def keys_of(types: Sequence[pa.DataType]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.sampled_from(KEY_VALUES[kind]) for kind in types))


def key_columns(types: Sequence[pa.DataType], keys: Sequence[Sequence[Any]]) -> list[pa.Array]:
    return [pa.array([key[i] for key in keys], kind) for i, kind in enumerate(types)]


def hash_column(keys: Sequence[tuple[Any, ...]], hash_of: Hash) -> pa.Array:
    return pa.array([hash_of(key) for key in keys], pa.uint64())
