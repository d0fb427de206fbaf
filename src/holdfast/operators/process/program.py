"""User code, as the operator runs it: chunk by chunk of keys.

A *program* adapts a kind of user code (``KeyedProcess``, PySpark's ``StatefulProcessor``) to this
interface. It holds specifications only, since it is pickled into tasks. :meth:`Program.open` gives
a *running* program for one task, whose methods get a chunk of keys each and loop over them: the
loop is the program's, because what rows look like to user code is.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from holdfast.choices import TimeKind
from holdfast.errors import FencedError, HoldfastError, ProcessingError
from holdfast.operators.base import Clock, Place
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.declare import State

__all__ = ["Chunk", "DueTimer", "Program", "ProgramOutput", "RunningProgram", "user_error"]

_OURS = str(Path(__file__).parents[2])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Keys, and the rows of each in the order of their source."""

    keys: pa.Table
    """A row per key: the key columns."""
    rows: pa.Table
    """The rows of all keys, key after key: the input's columns (key columns among them)."""
    offsets: Sequence[int]
    """Key i has the rows ``offsets[i]`` to ``offsets[i + 1]``."""


@dataclass(frozen=True, slots=True, order=True)
class DueTimer:
    """A timer that fires: its time, and its key's place in the chunk."""

    ms: int
    kind: TimeKind
    key: int


@dataclass(slots=True)
class ProgramOutput:
    """What user code put out for a chunk."""

    output: pa.Table
    sides: Mapping[str, pa.Table] = field(default_factory=dict)


class RunningProgram(ABC):
    """A program in one task. ``cells.cursor.i`` must be set to a key's place before its code runs."""

    @abstractmethod
    def rows(self, chunk: Chunk) -> ProgramOutput:
        """Run the code for the rows of each key, in order of the keys."""

    @abstractmethod
    def timers(self, chunk: Chunk, due: Sequence[DueTimer]) -> ProgramOutput:
        """Run the code for timers, in the order given. They are no longer set when their code runs:
        call ``cells.timers[kind].remove(key, ms)`` before (or after, if the code may see them)."""

    def initial(self, chunk: Chunk) -> ProgramOutput:
        """Run the code for the initial state of keys; ``chunk.rows`` are its rows."""
        raise NotImplementedError

    def control(self, rows: pa.Table) -> None:
        """Run the code for rows that every partition gets."""
        raise NotImplementedError

    def metrics(self) -> Mapping[str, float]:
        """What was counted since the last call."""
        return {}

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """The task is done, or has failed."""


class Program(ABC):
    """A specification of user code."""

    states: tuple[State, ...]
    timer_kinds: tuple[TimeKind, ...]
    """Kinds of time it may set timers for."""
    output_schema: pa.Schema
    side_schemas: Mapping[str, pa.Schema]
    deleted: frozenset[str] = frozenset()
    """Names of states that it wants forgotten, if there are any."""

    @abstractmethod
    def describe(self) -> str:
        """What kind of program, in a line; its states describe themselves."""

    @property
    @abstractmethod
    def code(self) -> object:
        """The user's object."""

    def times(self, clock: Clock) -> Clock:
        """The times that its timers and its code go by; by default the epoch's own."""
        return clock

    @abstractmethod
    def open(self, cells: Cells, clock: Clock, place: Place) -> RunningProgram:
        """Begin the work of one task."""


def user_error(error: Exception, what: str, key: Mapping[str, object], epoch: int) -> HoldfastError:
    """An error of user code, with its own traceback, the key and the epoch."""
    words = ", ".join(f"{name}={value!r}" for name, value in key.items())
    where = (f"for key ({words}) " if key else "") + f"in epoch {epoch}"
    if isinstance(error, FencedError):
        return error
    if isinstance(error, HoldfastError):
        # What user code asked of Holdfast and can't have.
        lines = "".join(_users_part(error).format()).rstrip()
        text = f"{what}, {where}: {error.message}"
        if lines:
            text += f"\nTraceback (most recent call last):\n{lines}"
        return type(error)(text, hint=error.hint)
    whole = traceback.TracebackException.from_exception(error)
    whole.stack = _users_part(error)
    frames = "".join(whole.format() if whole.stack else whole.format_exception_only()).rstrip()
    failed = ProcessingError(
        f"{what} raised {type(error).__name__} {where}: {error}\n{frames}",
        hint="mend the code and start again: it continues after the last checkpoint",
    )
    failed.__cause__ = error
    return failed


def _users_part(error: Exception) -> traceback.StackSummary:
    """The traceback from the first to the last frame that isn't Holdfast's own."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [i for i, frame in enumerate(frames) if not frame.filename.startswith(_OURS)]
    part = frames[theirs[0] : theirs[-1] + 1] if theirs else []
    return traceback.StackSummary.from_list(part)
