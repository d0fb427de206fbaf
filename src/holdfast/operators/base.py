"""What an operator is to a task: a function from sorted rows and state to changes and output.

Pure: no Spark, no files, no clock. The same operator and input always give the same result
(invariant 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import msgspec
import pyarrow as pa

from holdfast.state.hashing import Hashes, HashRange
from holdfast.state.keys import SortedRows
from holdfast.state.schema import ClockName, TableSchema
from holdfast.state.view import FoundMany, FoundRows

__all__ = [
    "Clock",
    "FoundMany",
    "FoundRows",
    "KeyReader",
    "Operator",
    "Place",
    "Received",
    "Session",
    "StateReader",
    "Update",
]


class Clock(msgspec.Struct, frozen=True):
    """The times that the driver fixed for an epoch; a task reads no other clock."""

    epoch: int
    processing_time_ms: int
    watermark_ms: int | None = None
    """No row is expected any more at or before this event time."""
    previous_watermark_ms: int | None = None
    """The watermark of the epoch before."""
    previous_processing_time_ms: int | None = None
    """The processing time of the epoch before."""
    derived: bool = False
    """Whether the rows are other operators' results, which may be as old as the epoch before's
    watermark."""
    at_end: bool = False
    """Whether input has ended: the watermark is after all times. No rows come but other operators'."""

    @property
    def late_ms(self) -> int | None:
        """Rows at or before this event time come too late (less what lateness is allowed)."""
        by_previous = self.derived or self.at_end
        return self.previous_watermark_ms if by_previous else self.watermark_ms

    def now(self, kind: ClockName) -> int | None:
        """What one of the two clocks says; None before the first watermark."""
        return self.processing_time_ms if kind == "processing" else self.watermark_ms

    def before(self, kind: ClockName) -> int | None:
        """What it said in the epoch before."""
        by_event = kind == "event"
        return self.previous_watermark_ms if by_event else self.previous_processing_time_ms


class Place(msgspec.Struct, frozen=True):
    """Which part of an epoch a task does."""

    partition: int
    partitions: int
    range: HashRange


class KeyReader(Protocol):
    """State in which keys can be looked up."""

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        """Find the rows of these distinct keys, which are sorted by (hash, key)."""


class StateReader(KeyReader, Protocol):
    """The state before this epoch, as far as a task may see it; what has expired is hidden."""

    def lookup_prefix(self, table: str, hashes: Hashes, keys: pa.Table, limit: int) -> FoundMany:
        """Find all rows under each of these keys, but for keys with more than ``limit`` of them."""

    def scan_prefix(self, table: str, key_hash: int, key: pa.Table) -> Iterator[pa.Table]:
        """All rows under one key, in pieces."""

    def scan(self, table: str) -> Iterator[pa.Table]:
        """All rows of a table, of every partition."""

    def scan_within(self, table: str, within: HashRange) -> Iterator[pa.Table]:
        """The rows of a table whose hashes lie in a range, in pieces."""

    def due(self, table: str, until_ms: int, within: HashRange) -> pa.Table:
        """The rows of a timed table up to a time whose key hash lies in the range."""

    def first_time(self, table: str, after_ms: int | None) -> int | None:
        """The earliest time in a timed table after another, in this task's range."""

    def overlaid(self, changes: Mapping[str, Sequence[pa.Table]]) -> StateReader:
        """The same state with newer rows on top, per table newest first."""


@dataclass(frozen=True, slots=True)
class Update:
    """What an operator made of some rows."""

    changes: Mapping[str, pa.Table]
    """Per table the new rows, in its Arrow schema, sorted by (hash, key), a key once. Rows of timed
    tables may come in any order."""
    output: pa.Table
    """Rows for the next operator or the sink, in :attr:`Operator.output_schema`."""
    new_keys: int
    """How many keys had no state before (less those deleted)."""
    sides: Mapping[str, pa.Table] = field(default_factory=dict)
    """Rows of side outputs, by name."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What user code counted."""
    wants_epoch: bool = False
    """Whether the next epoch has something to do though no rows should come."""


@dataclass(frozen=True, slots=True)
class Received:
    """What an operator makes of rows as they come in, before they are sorted."""

    rows: pa.Table
    sides: Mapping[str, pa.Table] = field(default_factory=dict)
    """Rows that go out at once, such as late ones."""
    control: pa.Table | None = None
    """Rows for every partition."""
    greatest_ms: Mapping[str, int] = field(default_factory=dict)
    """Per source the greatest event time among the rows."""
    late_rows: int = 0
    """Rows that came too late and are in no side output."""


class Session:
    """An operator at work in one task; :meth:`Operator.open` makes it."""

    def control(self, rows: pa.Table) -> None:
        """Take rows that every partition gets, before any others."""
        raise NotImplementedError

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Fold all rows of some keys into the state; ``within`` holds them, and timers that are due."""
        raise NotImplementedError

    def close(self) -> None:
        """The task is done, or has failed."""


class Operator(ABC):
    """A stateful operator. Instances are pickled into tasks, so they hold specifications only."""

    id: str
    """Stable name of the operator in its pipeline."""

    needs_ticks: bool = False
    """Whether epochs without rows can change something: timers, expiry."""

    begins_with_rows: bool = False
    """Whether its first epoch has rows that come from no source: initial state."""

    late_by_epoch_before: bool = False
    """Whether rows are late by the watermark of the epoch before theirs."""

    deletes: bool = False
    """Whether its changes may have tombstones."""

    shared_tables: frozenset[str] = frozenset()
    """Tables that every partition reads as a whole, whoever wrote them."""

    deleted_states: frozenset[str] = frozenset()
    """Names of states that user code wants forgotten, if there are any."""

    side_schemas: Mapping[str, pa.Schema] = MappingProxyType({})
    """The columns of each side output."""

    @property
    @abstractmethod
    def tables(self) -> tuple[TableSchema, ...]:
        """The state tables it owns."""

    @property
    @abstractmethod
    def input_schema(self) -> pa.Schema:
        """The columns a task receives: hash (uint64), keys, then what the operator asked for."""

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of what :meth:`receive` keeps of them; by default the same."""
        return self.input_schema

    @property
    @abstractmethod
    def output_schema(self) -> pa.Schema:
        """The columns of its output."""

    @property
    def key_columns(self) -> int:
        """How many columns behind the hash are the key."""
        return len(self.tables[0].keys)

    @property
    def has_expiry(self) -> bool:
        """Whether rows of its tables go by themselves when their time has come."""
        return any(schema.expires for schema in self.tables)

    @property
    def row_tables(self) -> list[str]:
        """Its tables without those that only say when to look at a key."""
        return [schema.table for schema in self.tables if schema.timed is None]

    @property
    def key_names(self) -> list[str]:
        """The names of the columns that the operator groups by."""
        names: list[str] = self.input_schema.names
        return names[1 : self.key_columns + 1]

    @abstractmethod
    def describe(self) -> str:
        """What it computes, a line per key and value: a restart must bring the same."""

    def describe_states(self) -> Sequence[str]:
        """The states that user code declares, a line each: they may change, by rules."""
        return ()

    @property
    def code(self) -> object:
        """The user's code that it runs, if any: an instance of a class, or a function."""
        return None

    def continuing(self, earlier: Mapping[str, TableSchema]) -> None:
        """Take over from the tables of an earlier start: column ids, say; by default nothing."""
        del earlier

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Look at rows as they come in; by default they are taken as they are."""
        del clock
        return Received(rows)

    def combine(self, rows: SortedRows) -> SortedRows:
        """Shrink rows of equal keys before they are kept or spilled; by default nothing."""
        return rows

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        return _PlainSession(self, state, clock)

    def update(self, rows: SortedRows, state: StateReader, clock: Clock) -> Update:
        """Fold all rows of some keys into the state."""
        raise NotImplementedError


@dataclass
class _PlainSession(Session):
    operator: Operator
    state: StateReader
    clock: Clock

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        del within
        return self.operator.update(rows, self.state, self.clock)
