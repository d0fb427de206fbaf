"""Columns of two streams in one table: columns of one type share slots.

Rows of both sides of a join travel together. A row fills its own side's columns only, so side by
side half of all values would be null. Instead the i-th column of a type is, on either side, in the
i-th slot of that type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from holdfast.operators.columns import column
from holdfast.operators.input_rows import Fields

__all__ = ["SLOT", "Packing", "SideName", "pack"]

SLOT = "_holdfast_v"
"""What the names of slots begin with."""

SideName = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Packing:
    """Which slot holds which column of either side.

    >>> packing = pack([("id", pa.int64()), ("x", pa.int64())], [("name", pa.string()), ("y", pa.int64())])
    >>> packing.left, packing.right
    ({'id': '_holdfast_v0', 'x': '_holdfast_v1'}, {'name': '_holdfast_v2', 'y': '_holdfast_v0'})
    """

    slots: tuple[tuple[str, pa.DataType], ...]
    """The slots and their types."""
    left: Mapping[str, str]
    """The slot of each packed column of the left side."""
    right: Mapping[str, str]
    """The slot of each packed column of the right side."""
    left_fields: tuple[tuple[str, pa.DataType], ...]
    """All columns of the left side, in order."""
    right_fields: tuple[tuple[str, pa.DataType], ...]
    """All columns of the right side, in order."""

    def fields(self, side: SideName) -> tuple[tuple[str, pa.DataType], ...]:
        """All columns of a side, in order."""
        return self.left_fields if side == "left" else self.right_fields

    def slot(self, name: str, side: SideName) -> str:
        """Where a column of a side is found: in its slot, or, if it isn't packed, by its own name."""
        return (self.left if side == "left" else self.right).get(name, name)

    def unpack(self, rows: pa.Table, side: SideName) -> pa.Table:
        """The columns of one side, in order; ``rows`` should be that side's."""
        fields = self.fields(side)
        arrays = [column(rows, self.slot(name, side), kind) for name, kind in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def pack(left: Fields, right: Fields, shared: Sequence[str] = ()) -> Packing:
    """Give the columns of two sides slots; ``shared`` ones keep their name, and stand for both."""
    slots: dict[tuple[pa.DataType, int], str] = {}
    sides: list[dict[str, str]] = []
    for fields in (left, right):
        seen: dict[pa.DataType, int] = {}
        placed: dict[str, str] = {}
        for name, kind in fields:
            if name in shared:
                continue
            number = seen.get(kind, 0)
            seen[kind] = number + 1
            placed[name] = slots.setdefault((kind, number), f"{SLOT}{len(slots)}")
        sides.append(placed)
    named = tuple((name, kind) for (kind, _), name in slots.items())
    return Packing(named, sides[0], sides[1], tuple(left), tuple(right))
