"""The state tables of a top operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.operators.input_rows import Fields
from holdfast.state.schema import Column, TableSchema

__all__ = ["CAME", "EXPIRES", "PLACE", "TopTables"]

PLACE = "_holdfast_place"
"""Which of its key's rows a row is; not its rank: that changes without a write."""
CAME = "_holdfast_came"
"""When a row came in: of rows that are equal in their order, those that came first go first."""
EXPIRES = "_holdfast_expires"
"""When the row's key is over, in ms of event time."""


@dataclass(frozen=True, slots=True)
class TopTables:
    """The rows under their keys, and for results at the end of keys the hints when to look at them."""

    rows: TableSchema
    ends: TableSchema | None

    @classmethod
    def of(
        cls, operator: str, keys: Fields, values: Fields, *, hints: bool, expires: bool
    ) -> TopTables:
        """Tables for rows with these columns. With hints, rows are deleted; without, they expire.

        >>> tables = TopTables.of("top", [("k", pa.string())], [("x", pa.int64())],
        ...                       hints=False, expires=True)
        >>> tables.rows.key_names, tables.rows.value_names
        (['k', '_holdfast_place'], ['x', '_holdfast_came', '_holdfast_expires'])
        """
        numbered = _numbered(keys)
        place = Column(len(keys) + 1, PLACE, pa.int32())
        kept = _numbered([*values, (CAME, pa.int64())], place.id)
        if expires and not hints:
            last = Column(kept[-1].id + 1, EXPIRES, pa.int64())
            # A row is gone when all of its values have expired.
            each = (Column(c.id, c.name, c.type, last.id, "event") for c in kept)
            kept = (*each, last)
        rows = TableSchema(f"{operator}.rows", (*numbered, place), kept, prefix=len(keys))
        ends = TableSchema(f"{operator}.ends", numbered, (), timed="event") if hints else None
        return cls(rows, ends)

    @property
    def all(self) -> tuple[TableSchema, ...]:
        """Every table, rows first."""
        return (self.rows,) if self.ends is None else (self.rows, self.ends)


def _numbered(fields: Sequence[tuple[str, pa.DataType]], after: int = 0) -> tuple[Column, ...]:
    return tuple(Column(i, name, kind) for i, (name, kind) in enumerate(fields, after + 1))
