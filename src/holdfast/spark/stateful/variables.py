"""State variables as a processor declares them, and as Holdfast keeps them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from holdfast.operators.process.declare import ListState, MapState, State, ValueState
from holdfast.types import type_words

__all__ = ["Kind", "StateVariable"]

Kind = Literal["value", "list", "map"]


@dataclass(frozen=True, slots=True)
class StateVariable:
    """One variable: its kind, its fields, and for how long a value lives."""

    name: str
    kind: Kind
    schema: pa.Schema
    key_schema: pa.Schema | None = None
    """Of a map: the fields of its keys."""
    ttl_ms: int | None = None
    required: tuple[tuple[str, ...], ...] = ()
    """Fields that are declared never to be null, each with the names on the way to it."""
    key_required: tuple[tuple[str, ...], ...] = ()
    """Of a map: such fields of its keys."""

    def state(self, taken: Collection[str] = ()) -> State:
        """The state that keeps it. ``taken`` are the names of key columns, which it can't have.

        >>> schema = pa.schema([("n", pa.int64())])
        >>> StateVariable("count", "value", schema).state().describe()
        'count: value struct<n:bigint>'
        """
        value = pa.struct(list(self.schema))
        ttl = None if self.ttl_ms is None else self.ttl_ms / 1000
        state: State
        if self.kind == "map":
            state = MapState(self.key_type, value, ttl=ttl)
        elif self.kind == "list":
            state = ListState(value, ttl=ttl)
        else:
            state = ValueState(value, ttl=ttl)
        state.name = self.held_as(taken)
        return state

    def held_as(self, taken: Collection[str]) -> str:
        """The name under which Holdfast keeps it: its own, unless a key column has that."""
        return f"state.{self.name}" if self.name in taken else self.name

    @property
    def key_type(self) -> pa.DataType:
        """The type of a map's keys: bare if they have one field, which is faster to find."""
        assert self.key_schema is not None
        if len(self.key_schema) == 1:
            return self.key_schema.field(0).type
        return pa.struct(list(self.key_schema))

    def words(self) -> str:
        """Kind and types, for people."""
        value = type_words(pa.struct(list(self.schema)))
        if self.key_schema is None:
            return f"{self.kind} of {value}"
        return f"map of {type_words(pa.struct(list(self.key_schema)))} to {value}"
