"""Test a process without Spark: rows, time and state are in the test's hands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.arguments import once_called
from holdfast.checkpoint.entry import END_MS
from holdfast.choices import TimeKind, TimeMode
from holdfast.durations import Duration, parse_ms
from holdfast.errors import InputError
from holdfast.operators.base import Clock, Place, Update
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.input_rows import CONTROL, INITIAL, SOURCE, TAG
from holdfast.operators.process.broadcast import BroadcastState
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.convert import fitting
from holdfast.operators.process.entry import entry_name
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram, from_ms, to_ms
from holdfast.operators.process.operator import ProcessOperator
from holdfast.operators.process.program import Program
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.keys import sort_rows
from holdfast.state.schema import HASH
from holdfast.testing.given import (
    check_columns,
    check_event_time,
    column_of,
    dicts_of,
    hashes_of,
    names_of,
    table_of,
)
from holdfast.testing.memory_state import MemoryState
from holdfast.types import parse_schema, type_words

__all__ = ["ProcessorTester"]


class ProcessorTester:
    """Runs a ``KeyedProcess``, or PySpark's ``StatefulProcessor``, epoch by epoch, without Spark.

    >>> import holdfast as hf
    >>> class Total(hf.KeyedProcess):
    ...     output = "user string, total double"
    ...     total = hf.ValueState("double", default=0.0)
    ...
    ...     def process(self, key, rows, ctx):
    ...         self.total.value += sum(row.price for row in rows)
    ...         yield {"user": key.user, "total": self.total.value}
    >>> tester = ProcessorTester(Total(), columns="user string, price double", keys="user")
    >>> tester.process([("ann", 3.0), ("ann", 4.0)])
    [{'user': 'ann', 'total': 7.0}]
    >>> tester.state("ann")["total"]
    7.0
    >>> tester.set_state("ann", total=1.0)
    >>> tester.process([("ann", 1.0)])
    [{'user': 'ann', 'total': 2.0}]
    """

    @once_called(allowed_lateness_ms="allowed_lateness")
    def __init__(
        self,
        process: Any,
        *,
        columns: object,
        keys: str | Sequence[str],
        output: object = None,
        event_time: str | None = None,
        allowed_lateness: Duration = 0,
        control_columns: object = None,
        time_mode: TimeMode = "None",
        pandas: bool = False,
        initial_columns: object = None,
        initial_keys: str | Sequence[str] | None = None,
        initial: Iterable[Any] = (),
        processing_time: datetime | int = 0,
        watermark: datetime | int | None = None,
    ) -> None:
        """``columns`` are those of the rows, ``keys`` name some of them.

        ``event_time`` names the column that ``watermark`` is about, and rows may come up to
        ``allowed_lateness`` behind it. For a ``StatefulProcessor`` say
        its ``output``, its ``time_mode`` and whether it takes ``pandas`` frames. What would be its
        ``initialState`` are the rows ``initial``, with ``initial_columns``, grouped by
        ``initial_keys`` (by default named as ``keys``): ``handleInitialState`` gets them in the first
        epoch, before its rows.
        """
        self._schema = parse_schema(columns)
        self._keys = names_of("keys", keys)
        check_columns("rows", self._keys, self._schema)
        if event_time is not None:
            check_event_time(event_time, self._schema)
        lateness_ms = parse_ms(allowed_lateness, "allowed_lateness")
        self._first = _Initial.of(process, initial_columns, initial_keys, initial, self._typed_keys)
        self._control = None if control_columns is None else parse_schema(control_columns)
        program, broadcast = self._program(process, output, event_time, time_mode, pandas)
        self._operator = ProcessOperator(
            "process",
            self._typed_keys,
            [(f.name, f.type) for f in self._schema],
            program,
            event_time={"main": EventTime(event_time, lateness_ms)} if event_time else None,
            control=None if self._control is None else [(f.name, f.type) for f in self._control],
            initial=None if self._first is None else [(f.name, f.type) for f in self._first.schema],
            broadcast=broadcast,
            late_by="current" if isinstance(process, KeyedProcess) else "previous",
        )
        self._state = MemoryState(self._operator.tables)
        self._sides: dict[str, list[dict[str, Any]]] = {}
        self._side_names = {LATE, *getattr(process, "side_outputs", ())}
        self.metrics: dict[str, float] = {}
        self.epoch = -1
        self._processing_ms = to_ms(processing_time)
        self._watermark_ms = None if watermark is None else to_ms(watermark)
        self._previous_ms = self._watermark_ms
        self._ended = False

    def process(
        self, rows: Iterable[Any] = (), control: Iterable[Any] = ()
    ) -> list[dict[str, Any]]:
        """One epoch with these rows (dicts, or tuples in the order of ``columns``): what comes out.

        Timers that are due fire after the rows.
        """
        self._not_ended()
        table = self._received(list(rows))
        return self._run(table, list(control))

    def advance(
        self,
        *,
        processing_time: datetime | int | None = None,
        watermark: datetime | int | None = None,
    ) -> list[dict[str, Any]]:
        """Set the clocks, and run an epoch without rows: what the timers put out."""
        self.set_time(processing_time=processing_time, watermark=watermark)
        return self._run(self._received([]), [])

    def end(self) -> list[dict[str, Any]]:
        """Input ends, as with ``start(…, end_of_input=True)``: what event-time timers put out.

        Those fire that are set, and those that they set. Timers by processing time don't.
        """
        self._not_ended()
        self._watermark_ms, self._ended = END_MS, True
        return self._run(self._received([]), [])

    def set_time(
        self,
        *,
        processing_time: datetime | int | None = None,
        watermark: datetime | int | None = None,
    ) -> None:
        """Set the clocks for the next epoch; they never go back."""
        self._not_ended()
        if processing_time is not None:
            self._processing_ms = _forward("processing time", self._processing_ms, processing_time)
        if watermark is not None:
            before = self._watermark_ms
            self._watermark_ms = _forward("the watermark", before, watermark)

    def side_output(self, name: str = LATE) -> list[dict[str, Any]]:
        """All rows that went to a side output so far."""
        if name not in self._side_names:
            raise InputError(
                f"there is no side output {name!r}",
                hint=f"choose one of: {', '.join(sorted(self._side_names))}",
            )
        return list(self._sides.get(name, ()))

    def state(self, *key: Any) -> dict[str, Any]:
        """The state of a key: values (None where there is none), lists, maps as dicts."""
        cells = self._cells(key)
        found: dict[str, Any] = {name: cell.get() for name, cell in cells.values.items()}
        found |= {name: list(cell.items()) for name, cell in cells.lists.items()}
        found |= {name: dict(cell.items()) for name, cell in cells.maps.items()}
        return found

    def timers(self, *key: Any, clock: TimeKind = "event") -> list[datetime]:
        """The timers of a key that are set."""
        cells = self._cells(key)
        return [from_ms(ms) for ms in cells.timers[clock].list()] if clock in cells.timers else []

    def set_state(self, *key: Any, **states: Any) -> None:
        """Replace some of the state of a key.

        Values and keys of maps may be given as ``state`` shows them, or as a ``StatefulProcessor``
        has them: as tuples of their fields.
        """
        cells = self._cells(key)
        for name, value in states.items():
            if name in cells.values:
                cells.values[name].set(_fitted(name, cells.values[name].kind, value))
            elif name in cells.lists:
                items = cells.lists[name]
                items.clear()
                for item in _listed(name, items.kind, value):
                    items.append(_fitted(name, items.kind, item))
            elif name in cells.maps:
                entries = cells.maps[name]
                entries.clear()
                named = entries.entry.type
                for entry, item in _mapped(name, named, entries.kind, value).items():
                    called = _entry_name(name, named, entry)
                    entries.set(called, _fitted(name, entries.kind, item))
            else:
                raise InputError(f"the process has no state {name!r}")
        changes, _ = cells.finish()
        self._state.apply(changes)

    @property
    def _typed_keys(self) -> list[tuple[str, pa.DataType]]:
        return [(name, self._schema.field(name).type) for name in self._keys]

    def _program(
        self,
        process: Any,
        output: object,
        event_time: str | None,
        time_mode: TimeMode,
        pandas: bool,
    ) -> tuple[Program, tuple[BroadcastState, ...]]:
        if isinstance(process, KeyedProcess):
            kinds: tuple[TimeKind, ...] = ("event", "processing") if event_time else ("processing",)
            program = KeyedProgram(process, kinds, output)
            return program, program.broadcast
        if isinstance(process, type):
            raise InputError(
                f"{process.__name__} is a class, not a process", hint=f"give {process.__name__}()"
            )
        from holdfast.spark.stateful.api import program_for_tests

        return program_for_tests(process, self._schema, self._keys, output, time_mode, pandas), ()

    def _clock(self) -> Clock:
        """The times of the epoch, which the state is seen at too."""
        times = (self._processing_ms, self._watermark_ms, self._previous_ms)
        clock = Clock(max(self.epoch, 0), *times, at_end=self._ended)
        self._state.clock = TableClock(clock.processing_time_ms, clock.late_ms)
        return clock

    def _not_ended(self) -> None:
        if self._ended:
            raise InputError("input has ended", hint="give all rows and times before end()")

    def _received(self, rows: list[Any]) -> pa.Table:
        return table_of(rows, self._schema, "row")

    def _run(self, rows: pa.Table, control: list[Any]) -> list[dict[str, Any]]:
        self.epoch += 1
        clock = self._clock()
        given = self._input(rows)
        if self._first is not None and not self.epoch:
            given = pa.concat_tables([self._initial_rows(self._first), given]).combine_chunks()
        received = self._operator.receive(given, clock)
        for name, side in received.sides.items():
            self._put_aside(name, side)
        session = self._operator.open(self._state, clock, Place(0, 1, FULL_RANGE))
        try:
            if control:
                session.control(self._control_rows(control))
            update = session.update(sort_rows(received.rows, len(self._keys)), FULL_RANGE)
        finally:
            session.close()
        if not self._ended:
            self._previous_ms = self._watermark_ms
        return self._accept(update)

    def _accept(self, update: Update) -> list[dict[str, Any]]:
        self._state.apply(update.changes)
        for name, side in update.sides.items():
            self._put_aside(name, side)
        for name, amount in update.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + amount
        return dicts_of(update.output)

    def _put_aside(self, name: str, rows: pa.Table) -> None:
        self._sides.setdefault(name, []).extend(dicts_of(rows))

    def _input(self, rows: pa.Table) -> pa.Table:
        return self._input_table(
            0, rows.select(self._keys), dict(zip(rows.column_names, rows.columns, strict=True))
        )

    def _initial_rows(self, first: _Initial) -> pa.Table:
        rows = first.rows
        keys = rows.select(first.keys).rename_columns(self._keys)
        named = {INITIAL + name: rows.column(name) for name in rows.column_names}
        return self._input_table(2, keys, named)

    def _input_table(self, source: int, keys: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
        """Rows as they reach the operator; columns of other sources are null."""
        count = keys.num_rows
        columns = {
            HASH: pa.array(hashes_of(keys)),
            TAG: pa.array(np.arange(count)),
            SOURCE: pa.array(np.full(count, source, np.int8)),
            **dict(zip(self._keys, keys.columns, strict=True)),
            **columns,
        }
        arrays = [
            columns[f.name] if f.name in columns else pa.nulls(count, f.type)
            for f in self._operator.input_schema
        ]
        return pa.Table.from_arrays(arrays, schema=self._operator.input_schema).combine_chunks()

    def _control_rows(self, control: list[Any]) -> pa.Table:
        if self._control is None:
            raise InputError("there is no control stream", hint="give the tester control_columns=…")
        rows = table_of(control, self._control, "control row")
        named = rows.rename_columns([CONTROL + name for name in rows.column_names])
        return named.append_column(TAG, pa.array(np.arange(rows.num_rows)))

    def _cells(self, key: tuple[Any, ...]) -> Cells:
        """The state of one key, between two epochs."""
        names = self._keys
        if len(key) != len(names):
            raise InputError(f"a key has {len(names)} parts ({', '.join(names)}), not {len(key)}")
        arrays = [
            column_of(f"key {name!r}", [value], kind)
            for (name, kind), value in zip(self._typed_keys, key, strict=True)
        ]
        keys = pa.Table.from_arrays(arrays, names=names)
        clock = self._clock()
        program = self._operator.program
        ttls = {state.name: state.ttl for state in program.states}
        cells = Cells(self._operator.process_tables, ttls, self._state, clock)
        cells.begin(hashes_of(keys), keys)
        return cells


@dataclass(frozen=True)
class _Initial:
    """Rows of an initial state, and the columns that are its keys."""

    schema: pa.Schema
    keys: list[str]
    rows: pa.Table

    @classmethod
    def of(
        cls,
        process: Any,
        columns: object,
        keys: str | Sequence[str] | None,
        rows: Iterable[Any],
        wanted: Sequence[tuple[str, pa.DataType]],
    ) -> _Initial | None:
        given = list(rows)
        if columns is None:
            if given or keys is not None:
                raise InputError(
                    "the columns of the initial state aren't named",
                    hint='say initial_columns="id string, n long"',
                )
            return None
        if isinstance(process, KeyedProcess):
            raise InputError(
                f"{type(process).__name__} is a KeyedProcess, which takes no initial state",
                hint="set the state that a test begins with by tester.set_state(key, name=value)",
            )
        schema = parse_schema(columns)
        names = [name for name, _ in wanted] if keys is None else names_of("initial_keys", keys)
        check_columns("rows of the initial state", names, schema)
        kinds = [schema.field(name).type for name in names]
        if kinds != [kind for _, kind in wanted]:
            raise InputError(
                f"the initial state is grouped by {', '.join(map(type_words, kinds))}, the rows by "
                + ", ".join(type_words(kind) for _, kind in wanted),
                hint="group both by columns of the same types, in the same order",
            )
        return cls(schema, names, table_of(given, schema, "row of the initial state"))


def _fitted(name: str, kind: pa.DataType, value: Any) -> Any:
    """A value for a state, as it will be read back."""
    try:
        return fitting(name, kind, also_range=True)(value)
    except TypeError as error:
        raise InputError(str(error), hint=f"give what fits {type_words(kind)}") from None


def _listed(name: str, kind: pa.DataType, given: Any) -> Iterable[Any]:
    """What a list state is to hold, if it is a list of something."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return given
    raise InputError(
        f"state {name!r} is a list of {type_words(kind)}, and was given {given!r} "
        f"({type(given).__name__})",
        hint=f"give a list: {name}=[…]",
    )


def _mapped(name: str, named: pa.DataType, kind: pa.DataType, given: Any) -> Mapping[Any, Any]:
    """What a map state is to hold, if it is a mapping."""
    if isinstance(given, Mapping):
        return given
    raise InputError(
        f"state {name!r} is a map of {type_words(named)} to {type_words(kind)}, and was given "
        f"{given!r} ({type(given).__name__})",
        hint=f"give a dict: {name}={{…: …}}",
    )


def _entry_name(name: str, kind: pa.DataType, given: Any) -> Any:
    """What an entry of a map is called; to a ``StatefulProcessor`` also a bare one is a tuple."""
    bare = not pa.types.is_struct(kind) and isinstance(given, tuple) and len(given) == 1
    try:
        return entry_name(given[0] if bare else given, kind)
    except TypeError as error:
        raise InputError(
            f"map {name!r}: {error}", hint=f"give keys that fit {type_words(kind)}"
        ) from None


def _forward(what: str, before: int | None, when: datetime | int) -> int:
    ms = to_ms(when)
    if before is not None and ms < before:
        raise InputError(f"{what} can't go back from {from_ms(before)} to {from_ms(ms)}")
    return ms
