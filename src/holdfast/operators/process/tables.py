"""The state tables of a process: which tables there are, and which columns hold which state.

- ``<id>.values``: a row per key, a column per value, reducing and aggregating state, the key's timers;
- ``<id>.map.<name>``, ``<id>.list.<name>``: a row per entry, under the key (*prefixed* tables);
- ``<id>.due.event``, ``<id>.due.processing``: when to look at a key (*timed* tables).

Column ids are given by name when a state is first seen and kept by later versions of a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.choices import TimeKind
from holdfast.operators.process.declare import ListState, MapState, State
from holdfast.state.schema import Column, TableSchema

__all__ = ["KINDS_OF_TIME", "MAP_KEY", "SEQUENCE", "VALUE", "ProcessTables"]

MAP_KEY = "map_key"
SEQUENCE = "sequence"
VALUE = "value"
EXPIRES = "expires"
KINDS_OF_TIME: tuple[TimeKind, ...] = ("event", "processing")


@dataclass(frozen=True, slots=True)
class ProcessTables:
    """The tables of one process operator."""

    values: TableSchema
    maps: Mapping[str, TableSchema]
    lists: Mapping[str, TableSchema]
    due: Mapping[TimeKind, TableSchema]

    @classmethod
    def of(
        cls,
        operator: str,
        keys: Sequence[tuple[str, pa.DataType]],
        states: Iterable[State],
        timers: Sequence[TimeKind] = KINDS_OF_TIME,
        earlier: Mapping[str, TableSchema] | None = None,
    ) -> ProcessTables:
        """The tables for these states; columns that ``earlier`` tables have keep their ids."""
        states, earlier = list(states), earlier or {}
        make = _Maker(operator, tuple(keys), earlier)
        return cls(
            make.values([s for s in states if not isinstance(s, ListState | MapState)], timers),
            {
                s.name: make.entries(s, MAP_KEY, s.key_type)
                for s in states
                if isinstance(s, MapState)
            },
            {
                s.name: make.entries(s, SEQUENCE, pa.int64())
                for s in states
                if isinstance(s, ListState)
            },
            {kind: make.due(kind) for kind in timers},
        )

    @property
    def all(self) -> tuple[TableSchema, ...]:
        """Every table, values first."""
        return (self.values, *self.maps.values(), *self.lists.values(), *self.due.values())


@dataclass(frozen=True, slots=True)
class _Maker:
    operator: str
    keys: tuple[tuple[str, pa.DataType], ...]
    earlier: Mapping[str, TableSchema]

    def values(self, states: Sequence[State], timers: Sequence[TimeKind]) -> TableSchema:
        ids = _Ids(self.earlier.get(f"{self.operator}.values"))
        keys = self._keys(ids)
        columns: list[Column] = []
        for state in states:
            columns += _expiring(ids, state, state.name, f"{state.name}.{EXPIRES}")
        columns += [
            Column(ids.of(f"timers.{kind}"), f"timers.{kind}", pa.list_(pa.int64()))
            for kind in timers
        ]
        table = f"{self.operator}.values"
        return TableSchema(table, keys, tuple(columns), last_id=ids.gone(keys, columns))

    def entries(self, state: State, name: str, kind: pa.DataType) -> TableSchema:
        table = f"{self.operator}.{state.kind}.{state.name}"
        ids = _Ids(self.earlier.get(table))
        keys = (*self._keys(ids), Column(ids.of(name), name, kind))
        values = tuple(_expiring(ids, state, VALUE, EXPIRES))
        return TableSchema(table, keys, values, prefix=len(self.keys))

    def due(self, kind: TimeKind) -> TableSchema:
        table = f"{self.operator}.due.{kind}"
        return TableSchema(table, self._keys(_Ids(self.earlier.get(table))), (), timed=kind)

    def _keys(self, ids: _Ids) -> tuple[Column, ...]:
        return tuple(Column(ids.of(name), name, kind) for name, kind in self.keys)


class _Ids:
    """Column ids of a table: those of the earlier table by name, else numbers never used."""

    def __init__(self, earlier: TableSchema | None) -> None:
        self._known = {c.name: c.id for c in earlier.columns} if earlier else {}
        self._last = max(self._known.values(), default=0)
        self._last = max(self._last, earlier.last_id if earlier else 0)

    def of(self, name: str) -> int:
        if name not in self._known:
            self._last += 1
            self._known[name] = self._last
        return self._known[name]

    def gone(self, *columns: Sequence[Column]) -> int:
        """The highest id, if none of the columns has it any more; else 0."""
        highest = max((c.id for some in columns for c in some), default=0)
        return self._last if self._last > highest else 0


def _expiring(ids: _Ids, state: State, name: str, expires: str) -> list[Column]:
    kind = getattr(state, "type")  # noqa: B009 - every kind of state has one, State itself hasn't
    if state.ttl is None:
        return [Column(ids.of(name), name, kind)]
    value, expiry = ids.of(name), ids.of(expires)
    return [
        Column(value, name, kind, expires=expiry, clock=state.ttl.clock),
        Column(expiry, expires, pa.int64()),
    ]
