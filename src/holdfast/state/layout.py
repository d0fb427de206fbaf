"""Where a table's columns lie in a run: found by id, never by name or position.

A run may have been written by an earlier version of the program: a column that it lacks is null, one
that the table no longer has is ignored, and one that has become wider is cast.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.columns import Indices, take_all
from holdfast.state.evolve import adapt
from holdfast.state.schema import HASH, KEY_HASH, TOMBSTONE, TableSchema, field_id

__all__ = ["ColumnLayout"]


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The positions of a table's columns in the blocks of one run."""

    table: TableSchema
    keys: tuple[int, ...]
    """Of the key columns; in a timed table the keys' hash comes first."""
    key_types: tuple[pa.DataType, ...]
    values: tuple[int | None, ...]
    tombstone: int | None

    @classmethod
    def find(cls, table: TableSchema, run: str, schema: pa.Schema) -> ColumnLayout:
        """Find the columns of ``table`` in a run of this name and schema."""
        try:
            places = {
                field_id(field): position
                for position, field in enumerate(schema)
                if field.name not in (HASH, KEY_HASH, TOMBSTONE)
            }
        except (KeyError, ValueError):
            places = {}  # anybody's columns
        first = [HASH, KEY_HASH] if table.timed else [HASH]
        if schema.names[: len(first)] != first or any(key.id not in places for key in table.keys):
            raise CorruptionError(
                f"run {run} has columns {schema.names}, not the keys of table {table.table!r}",
                hint="check that the run belongs to this table; restore it from another copy",
            )
        tombstone = schema.get_field_index(TOMBSTONE)
        return cls(
            table,
            (*range(1, len(first)), *(places[key.id] for key in table.keys)),
            (*(pa.uint64() for _ in first[1:]), *(key.type for key in table.keys)),
            tuple(places.get(value.id) for value in table.values),
            tombstone if tombstone >= 0 else None,
        )

    def key_arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a block; in a timed table the keys' hash comes first."""
        pairs = zip(self.keys, self.key_types, strict=True)
        return [adapt(batch.column(place), kind) for place, kind in pairs]

    def value_arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The value columns of a block."""
        return [
            pa.nulls(batch.num_rows, column.type)
            if place is None
            else adapt(batch.column(place), column.type)
            for place, column in zip(self.values, self.table.values, strict=True)
        ]

    def values_at(self, batch: pa.RecordBatch, rows: Indices) -> list[pa.Array]:
        """The values of some rows of a block, in ascending order; no others are touched."""
        places = [place for place in self.values if place is not None]
        taken = iter(take_all([batch.column(place) for place in places], rows, ascending=True))
        return [
            pa.nulls(len(rows), column.type) if place is None else adapt(next(taken), column.type)
            for place, column in zip(self.values, self.table.values, strict=True)
        ]

    def values_of(self, batch: pa.RecordBatch, row: int) -> list[pa.Array]:
        """The values of one row, as arrays of one."""
        return [
            pa.nulls(1, column.type)
            if place is None
            else adapt(batch.column(place).slice(row, 1), column.type)
            for place, column in zip(self.values, self.table.values, strict=True)
        ]

    def is_tombstone(self, batch: pa.RecordBatch, row: int) -> bool:
        """Whether a row says that its key is gone."""
        return self.tombstone is not None and bool(batch.column(self.tombstone)[row].as_py())

    def tombstones(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Which rows of a block say that their key is gone; None if none do."""
        if self.tombstone is None:
            return None
        marks = batch.column(self.tombstone)
        return marks if marks.true_count else None
