"""The keys that user code is working on, and what the cells of their state share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.choices import TimeKind
from holdfast.errors import ProcessingError
from holdfast.operators.base import Clock, StateReader
from holdfast.operators.process.convert import first_misfit, to_arrow
from holdfast.operators.process.declare import Ttl
from holdfast.state.hashing import Hashes
from holdfast.state.text import python_rows
from holdfast.types import type_words

__all__ = ["ChunkState", "Cursor", "typed"]


class Cursor:
    """Which key of the chunk user code is working on."""

    __slots__ = ("i",)

    def __init__(self) -> None:
        self.i = 0


@dataclass(slots=True)
class ChunkState:
    """What cells share: the keys in hand, and where to find their state."""

    cursor: Cursor
    state: StateReader
    clock: Clock
    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    keys: pa.Table | None = None
    dirty: bytearray = field(default_factory=bytearray)
    """Per key whether its row of values changed."""

    def key(self, i: int) -> pa.Table:
        """The key columns of key i."""
        assert self.keys is not None
        return self.keys.slice(i, 1)

    def now_ms(self, clock: TimeKind) -> int | None:
        """What a clock says in this epoch; None before the first watermark."""
        return self.clock.now(clock)

    def expiry(self, ttl: Ttl) -> int | None:
        """When something written now expires; before the first watermark event time stands still."""
        now = self.now_ms(ttl.clock)
        return None if now is None else now + ttl.ms

    def words(self, i: int) -> str:
        """Key i, for messages."""
        (row,) = python_rows(self.key(i))
        return ", ".join(f"{name}={value!r}" for name, value in row.items())


def typed(
    chunk: ChunkState, state: str, values: Sequence[Any], kind: pa.DataType, owners: Any
) -> pa.Array:
    """A column of values that user code set; an error names the state, the key and the value."""
    try:
        return to_arrow(values, kind)
    except Exception as error:
        misfit = first_misfit(values, kind)
        if misfit is None:
            raise
        raise _misfit(chunk, state, kind, values, misfit, owners) from error


def _misfit(
    chunk: ChunkState,
    state: str,
    kind: pa.DataType,
    values: Sequence[Any],
    misfit: tuple[int, Exception],
    owners: Any,
) -> ProcessingError:
    index, error = misfit
    value = values[index]
    return ProcessingError(
        f"state {state!r} of key ({chunk.words(int(owners[index]))}) was given {value!r} "
        f"({type(value).__name__}), which is no {type_words(kind)}: {error}",
        hint="convert it in the process, or declare the state with another type",
    )
