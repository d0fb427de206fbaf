"""Declared states at work: the same interface, on the cells of the key in hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pyarrow as pa

from holdfast.operators.process.cells import Cells, ListCell, MapCell, ValueCell
from holdfast.operators.process.convert import exact_type, fitting
from holdfast.operators.process.declare import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

__all__ = ["bind"]

_NOTHING = object()


def bind(state: State, cells: Cells) -> State:
    """The state of the key that the cursor of ``cells`` is on."""
    if isinstance(state, ListState):
        return _List(state, cells.lists[state.name])
    if isinstance(state, MapState):
        return _Map(state, cells.maps[state.name])
    cell = cells.values[state.name]
    if isinstance(state, ReducingState):
        return _Reducing(state, cell)
    if isinstance(state, AggregatingState):
        return _Aggregating(state, cell)
    assert isinstance(state, ValueState)
    plain = state.ttl is None and not pa.types.is_nested(state.type)
    return _Value(state, cell) if plain else _CheckedValue(state, cell)


class _Value(ValueState):
    """A plain value without time to live: nothing but a column and a mark that the row changed."""

    def __init__(self, state: ValueState, cell: ValueCell) -> None:
        self.name, self.type, self.default = state.name, state.type, state.default
        self._cell = cell
        self._cursor = cell.cursor
        self._exact, self._fit = exact_type(state.type), fitting(state.name, state.type)

    @property
    def value(self) -> Any:
        value = self._cell.column[self._cursor.i]
        return self.default if value is None else value

    @value.setter
    def value(self, value: Any) -> None:
        if type(value) is not self._exact:
            value = self._fit(value)
        cell, i = self._cell, self._cursor.i
        cell.column[i] = value
        cell.dirty[i] = 1

    def exists(self) -> bool:
        return self._cell.column[self._cursor.i] is not None

    def clear(self) -> None:
        self.value = None


class _CheckedValue(_Value):
    @property
    def value(self) -> Any:
        value = self._cell.get()
        # A copy: user code may change a list or dict that it got, and that must not be the default.
        return deepcopy(self.default) if value is None else value

    @value.setter
    def value(self, value: Any) -> None:
        self._cell.set(value if type(value) is self._exact else self._fit(value))


class _Reducing(ReducingState):
    def __init__(self, state: ReducingState, cell: ValueCell) -> None:
        self.name, self.type, self.merge = state.name, state.type, state.merge
        self._cell = cell
        self._exact, self._fit = exact_type(state.type), fitting(state.name, state.type)

    @property
    def value(self) -> Any:
        return self._cell.get()

    def add(self, value: Any) -> None:
        # A merge must see what is added as it sees what was stored.
        if type(value) is not self._exact:
            value = self._fit(value)
        before = self._cell.get()
        if before is not None:
            value = self.merge(before, value)
            if type(value) is not self._exact:
                value = self._fit(value)
        self._cell.set(value)

    def clear(self) -> None:
        self._cell.set(None)


class _Aggregating(AggregatingState):
    def __init__(self, state: AggregatingState, cell: ValueCell) -> None:
        self.name, self.type = state.name, state.type
        self.create, self.add_to, self.result_of = state.create, state.add_to, state.result_of
        self._cell = cell
        self._exact, self._fit = exact_type(state.type), fitting(state.name, state.type)

    @property
    def value(self) -> Any:
        accumulator = self._cell.get()
        return None if accumulator is None else self.result_of(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._cell.get()
        if accumulator is None:
            accumulator = self._fit(self.create())
        accumulator = self.add_to(accumulator, value)
        if type(accumulator) is not self._exact:
            accumulator = self._fit(accumulator)
        self._cell.set(accumulator)

    def clear(self) -> None:
        self._cell.set(None)


class _List(ListState):
    def __init__(self, state: ListState, cell: ListCell) -> None:
        self._cell = cell
        self._exact, self._fit = exact_type(cell.kind), fitting(state.name, cell.kind)

    def append(self, value: Any) -> None:
        self._cell.append(value if type(value) is self._exact else self._fit(value))

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def set(self, values: Iterable[Any]) -> None:
        kept = list(values)
        self._cell.clear()
        self.extend(kept)

    def clear(self) -> None:
        self._cell.clear()

    def __iter__(self) -> Iterator[Any]:
        return self._cell.items()

    def __len__(self) -> int:
        return sum(1 for _ in self._cell.items())

    def __bool__(self) -> bool:
        return next(self._cell.items(), _NOTHING) is not _NOTHING


class _Map(MapState):
    def __init__(self, state: MapState, cell: MapCell) -> None:
        self._cell = cell
        self._exact, self._fit = exact_type(cell.kind), fitting(state.name, cell.kind)
        self.get = cell.get  # type: ignore[method-assign, assignment]  # one call less per entry

    def __getitem__(self, key: Any) -> Any:
        value = self._cell.get(key, _NOTHING)
        if value is _NOTHING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cell.set(key, value if type(value) is self._exact else self._fit(value))

    def __delitem__(self, key: Any) -> None:
        if not self._cell.contains(key):
            raise KeyError(key)
        self._cell.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self._cell.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

    def __len__(self) -> int:
        return sum(1 for _ in self._cell.items())

    def __bool__(self) -> bool:
        return next(self._cell.items(), None) is not None

    def pop(self, key: Any, default: Any = None) -> Any:
        value = self._cell.get(key, _NOTHING)
        if value is _NOTHING:
            return default
        self._cell.remove(key)
        return value

    def update(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self[key] = value

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self._cell.items())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self._cell.items())

    def items(self) -> Iterator[tuple[Any, Any]]:
        return self._cell.items()

    def clear(self) -> None:
        self._cell.clear()
