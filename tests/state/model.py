"""What the tests of this room share: keys of every type, weak hashes, and rows as plain Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash
from hypothesis import strategies as st

from holdfast.state.keys import keys_equal, sort_rows
from holdfast.state.schema import HASH, TOMBSTONE, Column, TableSchema
from holdfast.state.view import TableView

EPOCH = datetime(1970, 1, 1)
Hash = Callable[[tuple[Any, ...]], int]

PLACE = pa.struct([("x", pa.int32()), ("at", pa.struct([("f", pa.float64())]))])
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
    PLACE: [
        {"x": 1, "at": {"f": math.nan}},
        {"x": 1, "at": {"f": None}},
        {"x": 1, "at": None},
        {"x": None, "at": {"f": None}},
        {"x": None, "at": None},
        {"x": 2, "at": {"f": -1.5}},
        None,
    ],
}


def plain(value: Any) -> Any:
    """A value that Python compares as Spark groups: floats by their bits, every NaN the same."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple(map(plain, value.values()))
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


SCHEMA = TableSchema(
    "counts.groups",
    (Column(1, "word", pa.string()), Column(2, "day", pa.int32())),
    (Column(3, "n", pa.int64()), Column(4, "total", pa.float64()), Column(5, "note", pa.string())),
)
WITH_TOMBSTONES = SCHEMA.arrow_with_tombstones

Key = tuple[Any, ...]
Row = tuple[int, float | None, str | None]


def state_table(rows: Mapping[Key, Row | None], hash_of: Hash = strong_hash) -> pa.Table:
    """Rows of ``SCHEMA``, sorted; None is a tombstone (then there is a column for them)."""
    keys = list(rows)
    values = [row or (None, None, None) for row in rows.values()]
    arrays = [hash_column(keys, hash_of), *key_columns([pa.string(), pa.int32()], keys)]
    kinds = [column.type for column in SCHEMA.values]
    arrays += [pa.array([value[i] for value in values], kind) for i, kind in enumerate(kinds)]
    schema = SCHEMA.arrow
    if None in rows.values():
        schema = WITH_TOMBSTONES
        arrays.append(pa.array([row is None for row in rows.values()]))
    return sort_rows(pa.Table.from_arrays(arrays, schema=schema), len(SCHEMA.keys)).table


def many_rows(count: int, *, seed: int = 0, hash_of: Hash = strong_hash) -> pa.Table:
    """Many sorted rows of ``SCHEMA`` with distinct keys."""
    rows: dict[Key, Row | None] = {
        (f"word-{i}", seed): (i, i / 8, None if i % 3 else f"note {i}") for i in range(count)
    }
    return state_table(rows, hash_of)


def state_rows(tables: Iterable[pa.Table | pa.RecordBatch]) -> dict[Key, Row]:
    """Live rows as a dict; a key that comes twice fails the test."""
    found: dict[Key, Row] = {}
    for table in tables:
        for row in table.to_pylist():
            key = (row["word"], row["day"])
            assert key not in found
            if not row.get(TOMBSTONE):
                found[key] = (row["n"], row["total"], row["note"])
    return found


def found_rows(view: TableView, keys: Sequence[Key], hash_of: Hash = strong_hash) -> dict[Key, Row]:
    """Look keys up as an operator does, check the answer's form, and give it as a dict."""
    columns = [hash_column(keys, hash_of), *key_columns([pa.string(), pa.int32()], keys)]
    names = [HASH, *SCHEMA.key_names]
    query = sort_rows(pa.Table.from_arrays(columns, names=names), len(SCHEMA.keys))
    assert len(query.starts) == len(keys), "a look-up is of distinct keys"
    hashes, key_table = query.table.column(0).to_numpy(), query.table.select(SCHEMA.key_names)
    found = view.lookup(hashes, key_table)
    assert found.rows.schema.equals(SCHEMA.arrow, check_metadata=True)
    assert (found.query[1:] > found.query[:-1]).all()
    assert found.rows.column(0).to_pylist() == hashes[found.query].tolist()
    asked = key_table.take(pa.array(found.query))
    assert keys_equal(asked, found.rows.select(SCHEMA.key_names)).all()
    return state_rows([found.rows])
