"""What an operator is to a task: a function from sorted rows and state to changes and output.

Pure: no Spark, no files, no clock. The same operator and input always give the same result
(invariant 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa

from holdfast.state.hashing import Hashes
from holdfast.state.keys import SortedRows
from holdfast.state.schema import TableSchema
from holdfast.state.view import Found

__all__ = ["Clock", "Found", "Operator", "StateReader", "Update"]


class Clock(msgspec.Struct, frozen=True):
    """The times that the driver fixed for an epoch; a task reads no other clock."""

    epoch: int
    processing_time_ms: int
    watermark_ms: int | None = None


class StateReader(Protocol):
    """The state before this epoch, as far as a task may see it."""

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> Found:
        """Find the rows of these distinct keys, which are sorted by (hash, key)."""


@dataclass(frozen=True, slots=True)
class Update:
    """What an operator made of some rows."""

    changes: Mapping[str, pa.Table]
    """Per table the new rows, in its Arrow schema, sorted by (hash, key), a key once."""
    output: pa.Table
    """Rows for the next operator or the sink, in :attr:`Operator.output_schema`."""
    new_keys: int
    """How many keys had no state before (less those deleted)."""


class Operator(ABC):
    """A stateful operator. Instances are pickled into tasks, so they hold specifications only."""

    id: str
    """Stable name of the operator in its pipeline."""

    @property
    @abstractmethod
    def tables(self) -> tuple[TableSchema, ...]:
        """The state tables it owns."""

    @property
    @abstractmethod
    def input_schema(self) -> pa.Schema:
        """The columns a task receives: hash (uint64), keys, then what the operator asked for."""

    @property
    @abstractmethod
    def output_schema(self) -> pa.Schema:
        """The columns of its output."""

    @abstractmethod
    def describe(self) -> str:
        """What it computes, a line per key and value: a restart must bring the same."""

    def combine(self, rows: SortedRows) -> SortedRows:
        """Shrink rows of equal keys before they are kept or spilled; by default nothing."""
        return rows

    @abstractmethod
    def update(self, rows: SortedRows, state: StateReader, clock: Clock) -> Update:
        """Fold all rows of some keys into the state."""
