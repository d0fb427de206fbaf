"""Broadcast state: a map that a control stream updates and every partition reads.

Every partition gets all rows of the control stream, in the same order, and so comes to the same
state; the one that owns hash 0 writes it down. It is small by nature and read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.base import StateReader
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.convert import fitting, to_arrow, to_python
from holdfast.operators.process.declare import MapState
from holdfast.operators.process.entry import as_stored, entry_low, entry_name, name_type
from holdfast.operators.process.tables import MAP_KEY, VALUE
from holdfast.state.hashing import entry_hashes
from holdfast.state.keys import sort_rows
from holdfast.state.schema import Column, TableSchema

__all__ = [
    "BroadcastCell",
    "BroadcastState",
    "bind_broadcast",
    "bound_broadcast",
    "broadcast_table",
]

_REMOVED = object()


class BroadcastState(MapState):
    """A map that is the same for all keys; only ``process_broadcast`` may change it.

    >>> BroadcastState("string", "double").kind
    'broadcast'
    """

    kind = "broadcast"

    def __init__(self, key: object, value: object) -> None:
        super().__init__(key, value)


def broadcast_table(operator: str, state: BroadcastState) -> TableSchema:
    """The table of a broadcast state: a row per entry, all of them in the first partition."""
    return TableSchema(
        f"{operator}.broadcast.{state.name}",
        (Column(1, MAP_KEY, state.key_type),),
        (Column(2, VALUE, state.type),),
    )


class BroadcastCell:
    """All entries, read when first needed, and what was changed."""

    def __init__(self, schema: TableSchema, state: StateReader) -> None:
        self.schema = schema
        self.open_for_changes = False
        self._state = state
        self._entries: dict[Any, Any] | None = None
        self._changed: dict[Any, Any] = {}
        self._fit = fitting(schema.table, schema.values[0].type, also_range=True)

    @property
    def entries(self) -> dict[Any, Any]:
        """All entries by key."""
        if self._entries is None:
            self._entries = {}
            for piece in self._state.scan(self.schema.table):
                keys = map(as_stored, to_python(piece.column(MAP_KEY)))
                self._entries |= zip(keys, to_python(piece.column(VALUE)), strict=True)
        return self._entries

    def set(self, key: Any, value: Any) -> None:
        """Set an entry."""
        self._check()
        key = self.name(key)
        value = self._fit(value)
        self.entries[key] = self._changed[key] = value

    def remove(self, key: Any) -> None:
        """Remove an entry."""
        self._check()
        key = self.name(key)
        self.entries.pop(key, None)
        self._changed[key] = _REMOVED

    def name(self, key: Any) -> Any:
        """What an entry is called, as it will be read back."""
        kind = self.schema.keys[0].type
        return key if type(key) is name_type(kind) else entry_name(key, kind)

    def finish(self) -> pa.Table | None:
        """The rows to write."""
        if not self._changed:
            return None
        names, schema = list(self._changed), self.schema
        gone = [value is _REMOVED for value in self._changed.values()]
        values = [None if value is _REMOVED else value for value in self._changed.values()]
        low = np.array([entry_low(name, schema.keys[0].type) for name in names], np.uint32)
        hashes = entry_hashes(np.zeros(len(names), np.uint64), low)
        columns = [
            pa.array(hashes),
            to_arrow(names, schema.keys[0].type),
            to_arrow(values, schema.values[0].type),
            pa.array(gone),
        ]
        table = pa.Table.from_arrays(columns, schema=schema.arrow_with_tombstones)
        self._changed = {}
        return sort_rows(table, 1).table

    def _check(self) -> None:
        if not self.open_for_changes:
            raise InputError(
                "broadcast state was changed outside of process_broadcast",
                hint="only rows of the control stream may change it: every partition must see the "
                "same",
            )


class _Broadcast(BroadcastState):
    def __init__(self, cell: BroadcastCell) -> None:
        self._cell = cell

    def __getitem__(self, key: Any) -> Any:
        return self._cell.entries[self._cell.name(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cell.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if self._cell.name(key) not in self._cell.entries:
            raise KeyError(key)
        self._cell.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self._cell.name(key) in self._cell.entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cell.entries)

    def __len__(self) -> int:
        return len(self._cell.entries)

    def __bool__(self) -> bool:
        return bool(self._cell.entries)

    def get(self, key: Any, default: Any = None) -> Any:
        return self._cell.entries.get(self._cell.name(key), default)

    def pop(self, key: Any, default: Any = None) -> Any:
        value = self._cell.entries.get(self._cell.name(key), default)
        self._cell.remove(key)
        return value

    def update(self, entries: Any) -> None:
        for key, value in entries.items():
            self._cell.set(key, value)

    def keys(self) -> Iterator[Any]:
        return iter(self._cell.entries.keys())

    def values(self) -> Iterator[Any]:
        return iter(self._cell.entries.values())

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._cell.entries.items())

    def clear(self) -> None:
        for key in list(self._cell.entries):
            self._cell.remove(key)


def bind_broadcast(state: BroadcastState, cells: Cells) -> BroadcastState:
    """The state, at work in a task."""
    return bound_broadcast(cells.broadcast[state.name])


def bound_broadcast(cell: BroadcastCell) -> BroadcastState:
    """The state of a cell."""
    return _Broadcast(cell)
