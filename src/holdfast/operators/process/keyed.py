"""``KeyedProcess``: user code that gets the rows of one key, its state, and its timers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.choices import TimeKind
from holdfast.errors import InputError, ProcessingError, UnknownNameError
from holdfast.operators.base import Clock, Place
from holdfast.operators.process.bound import bind
from holdfast.operators.process.broadcast import BroadcastState, bind_broadcast
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.declare import State, declared_states
from holdfast.operators.process.output import Collector, declared_output, key_words
from holdfast.operators.process.program import (
    Chunk,
    DueTimer,
    Program,
    ProgramOutput,
    RunningProgram,
    user_error,
)
from holdfast.operators.process.rows import to_rows
from holdfast.state.text import python_rows
from holdfast.types import parse_schema

__all__ = [
    "Context",
    "KeyedProcess",
    "KeyedProgram",
    "Metrics",
    "SideOutputs",
    "Timers",
    "from_ms",
    "to_ms",
    "watermark_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MS
# Later than any row, and user code may still add to it or show it in a zone of its own.
_END = datetime(9999, 1, 1, tzinfo=timezone.utc)


def to_ms(when: object) -> int:
    """Milliseconds since 1970 of a datetime (one without a zone is taken as UTC) or a number.

    >>> to_ms(datetime(1970, 1, 1, 0, 0, 1))
    1000
    """
    if isinstance(when, datetime):
        aware = when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)
        # A timer must not fire early: what is between two milliseconds belongs to the later.
        return -((_EPOCH - aware) // _MS)
    if isinstance(when, int) and not isinstance(when, bool):
        return when
    raise InputError(
        f"a timer can't be set for {when!r} ({type(when).__name__})",
        hint="give a datetime, or milliseconds since 1970 as an int",
    )


def from_ms(ms: int) -> datetime:
    """The datetime, in UTC, of milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def watermark_of(clock: Clock) -> datetime | None:
    """The watermark as user code sees it; None before the first, 9999 once input has ended.

    >>> watermark_of(Clock(7, 0, watermark_ms=1000)), watermark_of(Clock(8, 0, 1 << 53, at_end=True))
    (datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc), \
datetime.datetime(9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """
    if clock.at_end:
        return _END
    return None if clock.watermark_ms is None else from_ms(clock.watermark_ms)


class Metrics:
    """Counters of a process; their sums are in ``query.progress``."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def add(self, name: str, amount: float = 1) -> None:
        """Count something."""
        self.counts[name] = self.counts.get(name, 0) + amount


class Timers:
    """The timers of the key in hand, by event time or by processing time."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells.timers

    def set(self, when: datetime | int, clock: TimeKind = "event") -> None:
        """Have ``on_timer`` called when the clock has reached ``when``.

        A time that the clock has passed already fires in this epoch, after all rows; one that is set
        while timers fire, when the clock next moves. Setting a timer twice is setting it once.
        """
        ms = to_ms(when)
        if not 0 <= ms <= _LAST_MS:
            raise InputError(
                f"a timer can't be set for {when!r}, which is "
                + ("before 1970" if ms < 0 else "behind the year 9999"),
                hint="give a datetime, or milliseconds since 1970",
            )
        self._cell(clock).set(ms)

    def delete(self, when: datetime | int, clock: TimeKind = "event") -> None:
        """Forget a timer; one that isn't set is no error."""
        self._cell(clock).delete(to_ms(when))

    def list(self, clock: TimeKind = "event") -> list[datetime]:
        """The timers that are set, in order of time."""
        return [from_ms(ms) for ms in self._cell(clock).list()]

    def _cell(self, clock: TimeKind) -> Any:
        cell = self._cells.get(clock)
        if not self._cells:
            raise InputError(
                "there are no timers, because the process has no on_timer",
                hint="define on_timer(self, key, when, ctx)",
            )
        if cell is None:
            raise InputError(
                "event-time timers need a watermark, and the stream has none"
                if clock == "event"
                else f"there is no clock {clock!r}",
                hint='say stream.with_watermark("ts", "10 minutes") before key_by, or set timers '
                'with clock="processing"',
            )
        return cell


class SideOutputs:
    """What puts rows out to the side outputs of a process."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name == "output":
                raise UnknownNameError(
                    "ctx has no 'output'",
                    hint="say ctx.side_output(name, row): a process has one output",
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Context(SideOutputs):
    """What user code may know and do beside its state: the ``ctx`` of a :class:`KeyedProcess`.

    >>> class Reminder(KeyedProcess):
    ...     output = "user string, asked_at timestamp"
    ...
    ...     def process(self, key, rows, ctx: Context):
    ...         ctx.metrics.add("rows", len(rows))
    ...         yield key.user, ctx.processing_time
    """

    def __init__(self, clock: Clock, cells: Cells, sides: Mapping[str, Collector]) -> None:
        self.epoch = clock.epoch
        self.processing_time = from_ms(clock.processing_time_ms)
        self.watermark = watermark_of(clock)
        self.input_ended = clock.at_end
        """Whether input has ended: there will be no more rows."""
        self.timers = Timers(cells)
        self.metrics = Metrics()
        self.timer_clock: TimeKind | None = None
        """While ``on_timer`` runs: the clock of the timer."""
        self._sides = sides
        self._cursor = cells.cursor

    def side_output(self, name: str, row: Any) -> None:
        """Put a row out to a side output that the process declares in ``side_outputs``."""
        side = self._sides.get(name)
        if side is None:
            raise InputError(
                f"there is no side output {name!r}",
                hint=f"declare it: side_outputs = {{{name!r}: 'field type, …'}}",
            )
        side.rows.append(row)
        side.owners.append(self._cursor.i)


class KeyedProcess:
    """User code per key, with managed state.

    Derive from it, declare state as class attributes and the columns that are put out, and give an
    instance to ``key_by(…).process(…)``.

    >>> from holdfast.operators.process.declare import ValueState
    >>> class Total(KeyedProcess):
    ...     output = "user string, total double"
    ...     total = ValueState("double", default=0.0)
    ...
    ...     def process(self, key, rows, ctx):
    ...         self.total.value += sum(row.price for row in rows)
    ...         yield {"user": key.user, "total": self.total.value}
    """

    output: ClassVar[object] = None
    """The columns put out: a Spark DDL string or StructType."""
    side_outputs: ClassVar[Mapping[str, object]] = {}
    """Further outputs by name, each with its columns."""

    def open(self, ctx: Context) -> None:
        """Called once per task, before any rows."""

    def close(self) -> None:
        """Called once per task, at its end, also if it failed."""

    def process(self, key: Any, rows: Sequence[Any], ctx: Context) -> Iterable[Any] | None:
        """Called with all rows of a key in an epoch, in the order of their source."""
        raise NotImplementedError

    def on_timer(self, key: Any, when: datetime, ctx: Context) -> Iterable[Any] | None:
        """Called when a timer of the key is due."""

    def process_broadcast(self, rows: Sequence[Any], ctx: Context) -> None:
        """Called in every partition with the rows of a connected control stream, before the others."""
        raise NotImplementedError(f"{type(self).__name__} has no process_broadcast")

    def checkpoint_complete(self, epoch: int) -> None:
        """Called on the driver once a checkpoint that holds the state after ``epoch`` is in the log."""


class KeyedProgram(Program):
    """Runs a :class:`KeyedProcess`."""

    def __init__(
        self,
        process: KeyedProcess,
        timer_kinds: tuple[TimeKind, ...],
        output: object = None,
    ) -> None:
        self.process = process
        owner = type(process)
        declared = declared_states(owner)
        self.states: tuple[State, ...] = tuple(
            s for s in declared.values() if not isinstance(s, BroadcastState)
        )
        self.broadcast: tuple[BroadcastState, ...] = tuple(
            s for s in declared.values() if isinstance(s, BroadcastState)
        )
        self.timer_kinds = timer_kinds
        self.output_schema = declared_output(owner, output)
        self.side_schemas = {name: parse_schema(s) for name, s in owner.side_outputs.items()}

    def describe(self) -> str:
        """The kind of program."""
        return "process"

    @property
    def code(self) -> object:
        """The process."""
        return self.process

    def open(self, cells: Cells, clock: Clock, place: Place) -> RunningProgram:
        """Bind the process's states and open it."""
        del place
        return _RunningKeyed(self, cells, clock)


class _RunningKeyed(RunningProgram):
    def __init__(self, program: KeyedProgram, cells: Cells, clock: Clock) -> None:
        self._cells, self._clock = cells, clock
        self._process = process = program.process
        self._main = Collector("", program.output_schema, process, clock.epoch)
        self._sides = {
            n: Collector(n, s, process, clock.epoch) for n, s in program.side_schemas.items()
        }
        self._context = Context(clock, cells, self._sides)
        self._states = {state.name: bind(state, cells) for state in program.states}
        self._bound = False
        for name in self._states:
            # Nobody's turn yet: open and process_broadcast must not use the state of a key.
            vars(self._process).pop(name, None)
        for shared in program.broadcast:
            setattr(self._process, shared.name, bind_broadcast(shared, cells))
        self._guarded("open", lambda: self._process.open(self._context))

    def _bind(self) -> None:
        if not self._bound:
            self._bound = True
            vars(self._process).update(self._states)

    def rows(self, chunk: Chunk) -> ProgramOutput:
        self._bind()
        keys, rows = to_rows(chunk.keys), to_rows(chunk.rows)
        cursor, context, process = self._cells.cursor, self._context, self._process.process
        out, owners, offsets = self._main.rows, self._main.owners, chunk.offsets
        i = 0
        try:
            for i, key in enumerate(keys):
                cursor.i = i
                put_out = process(key, rows[offsets[i] : offsets[i + 1]], context)
                if put_out is not None:
                    out += put_out
                    owners += [i] * (len(out) - len(owners))
        except Exception as error:
            raise self._failed("process", error, chunk, i) from error
        return self._result(chunk)

    def timers(self, chunk: Chunk, due: Sequence[DueTimer]) -> ProgramOutput:
        self._bind()
        keys = to_rows(chunk.keys)
        cells, context = self._cells, self._context
        out, owners, i = self._main.rows, self._main.owners, 0
        try:
            for timer in due:
                i = cells.cursor.i = timer.key
                # An earlier timer of the key may have deleted this one.
                if not cells.timers[timer.kind].remove(i, timer.ms):
                    continue
                context.timer_clock = timer.kind
                put_out = self._process.on_timer(keys[i], from_ms(timer.ms), context)
                if put_out is not None:
                    out += put_out
                    owners += [i] * (len(out) - len(owners))
        except Exception as error:
            raise self._failed("on_timer", error, chunk, i) from error
        finally:
            context.timer_clock = None
        return self._result(chunk)

    def control(self, rows: pa.Table) -> None:
        given = to_rows(rows)
        self._guarded(
            "process_broadcast", lambda: self._process.process_broadcast(given, self._context)
        )
        if any(side.rows for side in self._sides.values()):
            raise ProcessingError(
                "process_broadcast put rows out, but it runs in every partition",
                hint="remember them in broadcast state and put them out in process",
            )

    def metrics(self) -> Mapping[str, float]:
        counted, self._context.metrics.counts = self._context.metrics.counts, {}
        return counted

    def close(self) -> None:
        self._guarded("close", self._process.close)

    def _guarded(self, what: str, call: Any) -> None:
        try:
            call()
        except Exception as error:
            name = f"{type(self._process).__name__}.{what}"
            raise user_error(error, name, {}, self._clock.epoch) from error

    def _check_states(self) -> None:
        for name, state in self._states.items():
            if vars(self._process).get(name) is not state:
                raise ProcessingError(
                    f"{type(self._process).__name__} assigned to self.{name}, which is its state",
                    hint=f"change what it holds, for example self.{name}.value = …, or give the "
                    "attribute another name",
                )

    def _result(self, chunk: Chunk) -> ProgramOutput:
        self._check_states()

        def words(i: int) -> str:
            return key_words(chunk.keys, i)

        sides = {name: side.table(words) for name, side in self._sides.items() if side.rows}
        return ProgramOutput(self._main.table(words), sides)

    def _failed(self, what: str, error: Exception, chunk: Chunk, i: int) -> Exception:
        name = f"{type(self._process).__name__}.{what}"
        (key,) = python_rows(chunk.keys.slice(i, 1))
        return user_error(error, name, key, self._clock.epoch)
