"""PySpark's state variables on the cells of the key in hand."""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from holdfast.operators.process.cells import Cells, ListCell, MapCell, ValueCell
from holdfast.spark.stateful.errors import empty_list
from holdfast.spark.stateful.values import Codec
from holdfast.spark.stateful.variables import StateVariable

__all__ = ["Bound", "bind"]

UPDATING = "Error updating value state"
UPDATING_MAP = "Error updating map state value"


class _Value(ValueState):
    def __init__(self, variable: StateVariable, cell: ValueCell) -> None:
        self._stateName = variable.name
        self._cell, self._cursor = cell, cell.cursor
        codec = Codec(variable.name, variable.schema, UPDATING, variable.required)
        self._encode, self._decode = codec.encode, codec.decode

    def exists(self) -> bool:
        return self._cell.column[self._cursor.i] is not None

    def get(self) -> tuple[Any, ...] | None:
        held = self._cell.column[self._cursor.i]
        return None if held is None else self._decode(held)

    def update(self, newValue: Any) -> None:
        self._cell.set(self._encode(newValue))

    def clear(self) -> None:
        self._cell.set(None)


class _List(ListState):
    def __init__(self, variable: StateVariable, cell: ListCell) -> None:
        self._stateName = variable.name
        self._cell = cell
        codec = Codec(variable.name, variable.schema, UPDATING, variable.required)
        self._encode, self._decode = codec.encode, codec.decode

    def exists(self) -> bool:
        return next(self._cell.items(), None) is not None

    def get(self) -> Iterator[tuple[Any, ...]]:
        # All at once: what is appended while the list is read is not part of what is read.
        return iter([self._decode(held) for held in self._cell.items()])

    def put(self, newState: Any) -> None:
        values = self._encoded(newState)
        self._cell.clear()
        for value in values:
            self._cell.append(value)

    def appendValue(self, newState: Any) -> None:
        self._cell.append(self._encode(newState))

    def appendList(self, newState: Any) -> None:
        for value in self._encoded(newState):
            self._cell.append(value)

    def clear(self) -> None:
        self._cell.clear()

    def _encoded(self, values: Any) -> list[dict[str, Any]]:
        encoded = [self._encode(value) for value in values]
        if not encoded:
            raise empty_list(UPDATING, self._stateName)
        return encoded


class _Map(MapState):
    def __init__(self, variable: StateVariable, cell: MapCell) -> None:
        assert variable.key_schema is not None
        self._stateName = variable.name
        self._cell = cell
        name, required = variable.name, variable.required
        self._keys = Codec(name, variable.key_schema, UPDATING_MAP, variable.key_required)
        self._values = Codec(name, variable.schema, UPDATING_MAP, required)
        self._bare = len(variable.key_schema) == 1

    def exists(self) -> bool:
        return next(self._cell.items(), None) is not None

    def getValue(self, key: Any) -> Row | None:
        held = self._cell.get(self._name(key))
        return None if held is None else self._values.decode_row(held)

    def containsKey(self, key: Any) -> bool:
        return self._cell.contains(self._name(key))

    def updateValue(self, key: Any, value: Any) -> None:
        name = self._name(key)
        self._cell.set(name, self._values.encode(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        decode = self._values.decode
        return iter([(self._key(name), decode(held)) for name, held in self._cell.items()])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._key(name) for name, _ in self._cell.items()])

    def values(self) -> Iterator[tuple[Any, ...]]:
        decode = self._values.decode
        return iter([decode(held) for _, held in self._cell.items()])

    def removeKey(self, key: Any) -> None:
        self._cell.remove(self._name(key))

    def clear(self) -> None:
        self._cell.clear()

    def _name(self, key: Any) -> Any:
        parts = self._keys.parts(key)
        return parts[0] if self._bare else tuple(parts)

    def _key(self, name: Any) -> tuple[Any, ...]:
        return self._keys.decode_parts((name,) if self._bare else name)


Bound = ValueState | ListState | MapState


def bind(variable: StateVariable, held_as: str, cells: Cells) -> Bound:
    """The variable, for the key that the cursor of ``cells`` is on."""
    if variable.kind == "list":
        return _List(variable, cells.lists[held_as])
    if variable.kind == "map":
        return _Map(variable, cells.maps[held_as])
    return _Value(variable, cells.values[held_as])
