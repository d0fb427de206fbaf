"""Declared states at work: the same interface, on the cells of the key in hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.operators.process.cells import Cells, ListCell, MapCell, ValueCell
from holdfast.operators.process.convert import normalizer
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
        return _List(cells.lists[state.name])
    if isinstance(state, MapState):
        return _Map(cells.maps[state.name])
    cell = cells.values[state.name]
    if isinstance(state, ReducingState):
        return _Reducing(state, cell)
    if isinstance(state, AggregatingState):
        return _Aggregating(state, cell)
    assert isinstance(state, ValueState)
    if state.ttl is None and normalizer(state.type) is None:
        return _Value(state, cell)
    return _CheckedValue(state, cell)


class _Value(ValueState):
    """A plain value without time to live: nothing but a column and a mark that the row changed."""

    def __init__(self, state: ValueState, cell: ValueCell) -> None:
        self.name, self.type, self.default = state.name, state.type, state.default
        self._cell = cell
        self._cursor = cell.cursor

    @property
    def value(self) -> Any:
        value = self._cell.column[self._cursor.i]
        return self.default if value is None else value

    @value.setter
    def value(self, value: Any) -> None:
        cell, i = self._cell, self._cursor.i
        cell.column[i] = value
        cell.dirty[i] = 1

    def exists(self) -> bool:
        return self._cell.column[self._cursor.i] is not None

    def clear(self) -> None:
        self.value = None


class _CheckedValue(_Value):
    def __init__(self, state: ValueState, cell: ValueCell) -> None:
        super().__init__(state, cell)
        self._normal = normalizer(state.type)

    @property
    def value(self) -> Any:
        value = self._cell.get()
        return self.default if value is None else value

    @value.setter
    def value(self, value: Any) -> None:
        self._cell.set(value if self._normal is None else self._normal(value))


class _Reducing(ReducingState):
    def __init__(self, state: ReducingState, cell: ValueCell) -> None:
        self.name, self.type, self.merge = state.name, state.type, state.merge
        self._cell = cell
        self._normal = normalizer(state.type)

    @property
    def value(self) -> Any:
        return self._cell.get()

    def add(self, value: Any) -> None:
        before = self._cell.get()
        if self._normal is None:
            self._cell.set(value if before is None else self.merge(before, value))
            return
        # A merge must see what is added as it sees what was stored.
        value = self._normal(value)
        self._cell.set(value if before is None else self._normal(self.merge(before, value)))

    def clear(self) -> None:
        self._cell.set(None)


class _Aggregating(AggregatingState):
    def __init__(self, state: AggregatingState, cell: ValueCell) -> None:
        self.name, self.type = state.name, state.type
        self.create, self.add_to, self.result_of = state.create, state.add_to, state.result_of
        self._cell = cell
        self._normal = normalizer(state.type)

    @property
    def value(self) -> Any:
        accumulator = self._cell.get()
        return None if accumulator is None else self.result_of(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._cell.get()
        if accumulator is None:
            accumulator = self.create()
            accumulator = accumulator if self._normal is None else self._normal(accumulator)
        accumulator = self.add_to(accumulator, value)
        self._cell.set(accumulator if self._normal is None else self._normal(accumulator))

    def clear(self) -> None:
        self._cell.set(None)


class _List(ListState):
    def __init__(self, cell: ListCell) -> None:
        self._cell = cell
        self._normal = normalizer(cell.kind)
        if self._normal is None:
            self.append = cell.append  # type: ignore[method-assign]  # one call less per item

    def append(self, value: Any) -> None:
        self._cell.append(value if self._normal is None else self._normal(value))

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
    def __init__(self, cell: MapCell) -> None:
        self._cell = cell
        self._normal = normalizer(cell.kind)
        self.get = cell.get  # type: ignore[method-assign, assignment]  # one call less per entry

    def __getitem__(self, key: Any) -> Any:
        value = self._cell.get(key, _NOTHING)
        if value is _NOTHING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cell.set(key, value if self._normal is None else self._normal(value))

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
