"""The schema of a state table: key columns, value columns, and an id for each.

Columns are found by id, not by name or position, so that a later version of a program can rename,
reorder, add and drop them and still read old runs. The id travels as Parquet's ``field_id``.

Three kinds of table: a *plain* one has a row per key. A *prefixed* one has many rows per state key
(the first ``prefix`` key columns), which lie together. A *timed* one is an index: its rows are
ordered by time, and only then by key. What is special about a table or column travels in Arrow's
metadata.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import CorruptionError, InputError
from holdfast.state.hashing import FULL_RANGE, Hashes, HashRange

__all__ = [
    "HASH",
    "KEY_HASH",
    "TOMBSTONE",
    "ClockName",
    "Column",
    "SchemaRecord",
    "TableSchema",
    "check_key_type",
    "check_plain_type",
    "field_id",
    "order_to_time",
    "orders_after",
    "time_to_order",
]

HASH = "_holdfast_hash"
KEY_HASH = "_holdfast_key_hash"
TOMBSTONE = "_holdfast_tombstone"
_RESERVED = (HASH, KEY_HASH, TOMBSTONE)
_FIELD_ID = b"PARQUET:field_id"
_EXPIRES = b"holdfast:expires"
_PREFIX = b"holdfast:prefix"
_TIMED = b"holdfast:timed"
_TIME_ZERO = 2**63

ClockName = Literal["processing", "event"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a state table. Ids are unique within a table and never used again."""

    id: int
    name: str
    type: pa.DataType
    expires: int | None = None
    """The id of the value column (int64, nullable) that says when this one's value expires, in ms."""
    clock: ClockName | None = None
    """The clock that the expiry goes by."""

    @property
    def field(self) -> pa.Field:
        """The column as Arrow's schema has it."""
        metadata = {_FIELD_ID: str(self.id)}
        if self.expires is not None:
            metadata[_EXPIRES] = f"{self.expires} {self.clock}"
        return pa.field(self.name, self.type, metadata=metadata)

    @classmethod
    def from_field(cls, field: pa.Field) -> Column:
        """The column that :attr:`field` described."""
        expires, _, clock = (field.metadata or {}).get(_EXPIRES, b"").decode().partition(" ")
        if not expires:
            return cls(field_id(field), field.name, field.type)
        return cls(field_id(field), field.name, field.type, int(expires), cast(ClockName, clock))


class SchemaRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table's schema as a log entry keeps it: words for people, Arrow's own bytes for us."""

    table: str
    key_columns: int
    columns: tuple[str, ...]
    arrow: str
    """The Arrow schema (hash, keys, values, with field ids), IPC-encoded, in base64."""
    last_id: int = 0
    """The highest column id ever given, if the column that had it is gone."""
    behind_ms: int = 0
    """How far the table's event time is behind the pipeline's watermark."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Keys and values of one state table.

    >>> schema = TableSchema("counts.groups", (Column(1, "word", pa.string()),),
    ...                      (Column(2, "n.count", pa.int64()),))
    >>> schema.arrow.names
    ['_holdfast_hash', 'word', 'n.count']
    >>> TableSchema.from_record(schema.record()) == schema
    True
    """

    table: str
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    prefix: int = 0
    """In a prefixed table: how many of the key columns are the state key; the others tell its
    entries apart. 0: a key has one row."""
    timed: ClockName | None = None
    """In a timed table: the clock that its times go by."""
    last_id: int = 0
    """The highest column id ever given, if the column that had it is gone."""

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        ids = [c.id for c in self.columns]
        for name in names:
            if names.count(name) > 1 or name in _RESERVED:
                raise InputError(
                    f"state table {self.table!r} would have two columns named {name!r}",
                    hint="give the key column or the aggregate another name",
                )
        if len(set(ids)) != len(ids):
            raise ValueError(f"column ids of {self.table!r} are not unique: {ids}")
        if self.prefix and not 0 < self.prefix < len(self.keys):
            raise ValueError(f"{self.table!r} can't have {self.prefix} of its keys as prefix")
        if self.timed and (self.values or self.prefix):
            raise ValueError(f"timed table {self.table!r} can't have values or a prefix")
        for key in self.keys:
            check_key_type(key.name, key.type)
        self._check_expiry()

    def _check_expiry(self) -> None:
        times = {c.id for c in self.values if c.type == pa.int64()}
        for column in self.columns:
            complete = (column.expires is None) == (column.clock is None)
            if not complete or (column.expires is not None and column.expires not in times):
                raise ValueError(f"{column} of {self.table!r} has no int64 column for its expiry")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Keys, then values."""
        return self.keys + self.values

    @property
    def key_names(self) -> list[str]:
        """The names of the key columns."""
        return [c.name for c in self.keys]

    @property
    def value_names(self) -> list[str]:
        """The names of the value columns."""
        return [c.name for c in self.values]

    @property
    def sort_columns(self) -> int:
        """How many columns behind the first tell rows apart: the keys, in a timed table also their
        hash. With the first column they are what rows are sorted by."""
        return len(self.keys) + (self.timed is not None)

    @property
    def expires(self) -> bool:
        """Whether rows or values can expire."""
        return self.timed is not None or any(c.expires is not None for c in self.values)

    @property
    def arrow(self) -> pa.Schema:
        """Hash, keys, values. (A run with tombstones has a boolean column ``TOMBSTONE`` behind.)

        In a timed table the first column is the time as :func:`time_to_order` gives it, and the
        keys' hash is the second.
        """
        return _arrow_of(self)

    @property
    def arrow_with_tombstones(self) -> pa.Schema:
        """The same with the column that marks deleted keys."""
        return self.arrow.append(pa.field(TOMBSTONE, pa.bool_(), nullable=False))

    def record(self) -> SchemaRecord:
        """What a log entry says of this schema."""
        words = tuple(f"{c.id} {c.name} {c.type}" for c in self.columns)
        encoded = base64.b64encode(self.arrow.serialize()).decode()
        return SchemaRecord(self.table, len(self.keys), words, encoded, self.last_id)

    @classmethod
    def from_record(cls, record: SchemaRecord) -> TableSchema:
        """The schema that :meth:`record` described."""
        try:
            arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record.arrow)))
            columns = tuple(Column.from_field(f) for f in arrow if f.name not in _RESERVED)
            metadata = arrow.metadata or {}
            timed = cast(ClockName, metadata[_TIMED].decode()) if _TIMED in metadata else None
            prefix = int(metadata.get(_PREFIX, b"0"))
            keys, values = columns[: record.key_columns], columns[record.key_columns :]
            return cls(record.table, keys, values, prefix, timed, record.last_id)
        except (
            pa.ArrowException,
            InputError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
        ) as error:
            raise CorruptionError(
                f"the schema of table {record.table!r} in a log entry can't be read: {error}",
                hint="start from an older entry with from_entry=…",
            ) from error


@lru_cache(1 << 10)
def _arrow_of(schema: TableSchema) -> pa.Schema:
    """Every task asks many times, and it takes longer to make than to look up."""
    fields = [pa.field(HASH, pa.uint64(), nullable=False)]
    if schema.timed:
        fields.append(pa.field(KEY_HASH, pa.uint64(), nullable=False))
    fields += [c.field for c in schema.columns]
    metadata = {}
    if schema.prefix:
        metadata[_PREFIX] = str(schema.prefix)
    if schema.timed:
        metadata[_TIMED] = schema.timed
    return pa.schema(fields, metadata=metadata or None)


def check_key_type(name: str, kind: pa.DataType) -> None:
    """Raise ``InputError`` unless rows can be keyed by a column of this type: a plain one, or a struct.

    >>> check_key_type("place", pa.struct([("x", pa.int64()), ("y", pa.int64())]))
    """
    if not pa.types.is_struct(kind) or not kind.num_fields:
        check_plain_type(name, kind)
        return
    for field in kind:
        check_key_type(f"{name}.{field.name}", field.type)


def check_plain_type(name: str, kind: pa.DataType) -> None:
    """Raise ``InputError`` unless a column of this type can be compared and sorted as it is."""
    t = pa.types
    tests = (
        t.is_boolean,
        t.is_signed_integer,
        t.is_float32,
        t.is_float64,
        t.is_decimal128,
        t.is_string,
        t.is_binary,
        t.is_date32,
    )
    microseconds = t.is_timestamp(kind) and kind.unit == "us"
    if not microseconds and not any(test(kind) for test in tests):
        raise InputError(
            f"column {name!r} of type {kind} can't be part of a key",
            hint="key by boolean, integer, float, double, decimal, string, binary, date or "
            "timestamp columns, or structs of those; take an array or map apart first",
        )


def time_to_order(times_ms: npt.NDArray[np.int64]) -> Hashes:
    """Times as a timed table's first column holds them: unsigned, in the same order.

    >>> time_to_order(np.array([-1, 0])).tolist() == [2**63 - 1, 2**63]
    True
    """
    order: Hashes = times_ms.astype(np.int64).view(np.uint64) ^ np.uint64(_TIME_ZERO)
    return order


def order_to_time(order: Hashes) -> npt.NDArray[np.int64]:
    """The times (ms) that :func:`time_to_order` was given."""
    times: npt.NDArray[np.int64] = (order ^ np.uint64(_TIME_ZERO)).view(np.int64)
    return times


def orders_after(after_ms: int | None, until_ms: int | None = None) -> HashRange | None:
    """The places of times after one and up to another (None: no bound); None if there are none."""
    first = 0 if after_ms is None else after_ms + _TIME_ZERO + 1
    last = FULL_RANGE.last if until_ms is None else until_ms + _TIME_ZERO
    return HashRange(first, last).intersect(FULL_RANGE) if first <= last else None


def field_id(field: pa.Field) -> int:
    """The column id that a field of a run's schema carries."""
    return int((field.metadata or {})[_FIELD_ID])
