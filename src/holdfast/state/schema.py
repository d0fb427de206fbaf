"""The schema of a state table: key columns, value columns, and an id for each.

Columns are found by id, not by name or position, so that a later version of a program can rename,
reorder, add and drop them and still read old runs. The id travels as Parquet's ``field_id``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from holdfast.errors import InputError

__all__ = [
    "HASH",
    "TOMBSTONE",
    "Column",
    "SchemaRecord",
    "TableSchema",
    "check_key_type",
    "field_id",
]

HASH = "_holdfast_hash"
TOMBSTONE = "_holdfast_tombstone"
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a state table. Ids are unique within a table and never used again."""

    id: int
    name: str
    type: pa.DataType


class SchemaRecord(msgspec.Struct, frozen=True):
    """A table's schema as a log entry keeps it: words for people, Arrow's own bytes for us."""

    table: str
    key_columns: int
    columns: tuple[str, ...]
    arrow: str
    """The Arrow schema (hash, keys, values, with field ids), IPC-encoded, in base64."""


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

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        ids = [c.id for c in self.columns]
        for name in names:
            if names.count(name) > 1 or name in (HASH, TOMBSTONE):
                raise InputError(
                    f"state table {self.table!r} would have two columns named {name!r}",
                    hint="give the key column or the aggregate another name",
                )
        if len(set(ids)) != len(ids):
            raise ValueError(f"column ids of {self.table!r} are not unique: {ids}")
        for key in self.keys:
            check_key_type(key.name, key.type)

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
    def arrow(self) -> pa.Schema:
        """Hash, keys, values. (A run with tombstones has a boolean column ``TOMBSTONE`` behind.)"""
        fields = [pa.field(HASH, pa.uint64(), nullable=False)]
        fields += [pa.field(c.name, c.type, metadata={_FIELD_ID: str(c.id)}) for c in self.columns]
        return pa.schema(fields)

    @property
    def arrow_with_tombstones(self) -> pa.Schema:
        """The same with the column that marks deleted keys."""
        return self.arrow.append(pa.field(TOMBSTONE, pa.bool_(), nullable=False))

    def record(self) -> SchemaRecord:
        """What a log entry says of this schema."""
        words = tuple(f"{c.id} {c.name} {c.type}" for c in self.columns)
        encoded = base64.b64encode(self.arrow.serialize()).decode()
        return SchemaRecord(self.table, len(self.keys), words, encoded)

    @classmethod
    def from_record(cls, record: SchemaRecord) -> TableSchema:
        """The schema that :meth:`record` described."""
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record.arrow)))
        columns = [
            Column(int((f.metadata or {})[_FIELD_ID]), f.name, f.type) for f in list(arrow)[1:]
        ]
        keys, values = columns[: record.key_columns], columns[record.key_columns :]
        return cls(record.table, tuple(keys), tuple(values))


def check_key_type(name: str, kind: pa.DataType) -> None:
    """Raise ``InputError`` unless rows can be keyed by a column of this type."""
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
            "timestamp columns; take a struct, array or map apart first",
        )


def field_id(field: pa.Field) -> int:
    """The column id that a field of a run's schema carries."""
    return int((field.metadata or {})[_FIELD_ID])
