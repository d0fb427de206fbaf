"""Test a process without Spark: rows, time and state are in the test's hands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from holdfast.errors import InputError
from holdfast.operators.arriving import CONTROL, SOURCE, TAG
from holdfast.operators.base import Clock, Place, Update
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.process.broadcast import BroadcastState
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.convert import to_python
from holdfast.operators.process.declare import TimeKind
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram, from_ms, to_ms
from holdfast.operators.process.operator import ProcessOperator
from holdfast.operators.process.program import Program
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.keys import sort_rows
from holdfast.state.schema import HASH
from holdfast.testing.memory_state import MemoryState
from holdfast.types import parse_schema

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

    def __init__(
        self,
        process: Any,
        *,
        columns: object,
        keys: str | Sequence[str],
        output: object = None,
        event_time: str | None = None,
        allowed_lateness_ms: int = 0,
        control_columns: object = None,
        time_mode: str = "None",
        pandas: bool = False,
        processing_time: datetime | int = 0,
        watermark: datetime | int | None = None,
    ) -> None:
        """``columns`` are those of the rows, ``keys`` name some of them.

        ``event_time`` names the column that ``watermark`` is about. For a ``StatefulProcessor`` say
        its ``output``, its ``time_mode`` and whether it takes ``pandas`` frames.
        """
        self._schema = parse_schema(columns)
        self._keys = [keys] if isinstance(keys, str) else list(keys)
        missing = [name for name in self._keys if name not in self._schema.names]
        if missing:
            raise InputError(
                f"the rows have no column {missing[0]!r}",
                hint=f"choose keys from: {', '.join(self._schema.names)}",
            )
        self._control = None if control_columns is None else parse_schema(control_columns)
        program, broadcast = self._program(process, output, event_time, time_mode, pandas)
        self._operator = ProcessOperator(
            "process",
            [(name, self._schema.field(name).type) for name in self._keys],
            [(f.name, f.type) for f in self._schema],
            program,
            event_time={"main": EventTime(event_time, allowed_lateness_ms)} if event_time else None,
            control=None if self._control is None else [(f.name, f.type) for f in self._control],
            broadcast=broadcast,
            late_by="current" if isinstance(process, KeyedProcess) else "previous",
        )
        self._state = MemoryState(self._operator.tables)
        self._sides: dict[str, list[dict[str, Any]]] = {}
        self.metrics: dict[str, float] = {}
        self.epoch = -1
        self._processing_ms = to_ms(processing_time)
        self._watermark_ms = None if watermark is None else to_ms(watermark)
        self._previous_ms = self._watermark_ms

    def process(
        self, rows: Iterable[Any] = (), control: Iterable[Any] = ()
    ) -> list[dict[str, Any]]:
        """One epoch with these rows (dicts, or tuples in the order of ``columns``): what comes out.

        Timers that are due fire after the rows.
        """
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

    def set_time(
        self,
        *,
        processing_time: datetime | int | None = None,
        watermark: datetime | int | None = None,
    ) -> None:
        """Set the clocks for the next epoch; they never go back."""
        if processing_time is not None:
            self._processing_ms = _forward("processing time", self._processing_ms, processing_time)
        if watermark is not None:
            before = self._watermark_ms
            self._watermark_ms = _forward("the watermark", before, watermark)

    def side_output(self, name: str = LATE) -> list[dict[str, Any]]:
        """All rows that went to a side output so far."""
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
        """Replace some of the state of a key."""
        cells = self._cells(key)
        for name, value in states.items():
            if name in cells.values:
                cells.values[name].set(value)
            elif name in cells.lists:
                cells.lists[name].clear()
                for item in value:
                    cells.lists[name].append(item)
            elif name in cells.maps:
                cells.maps[name].clear()
                for entry, item in value.items():
                    cells.maps[name].set(entry, item)
            else:
                raise InputError(f"the process has no state {name!r}")
        changes, _ = cells.finish()
        self._state.apply(changes)

    def _program(
        self, process: Any, output: object, event_time: str | None, time_mode: str, pandas: bool
    ) -> tuple[Program, tuple[BroadcastState, ...]]:
        if isinstance(process, KeyedProcess):
            kinds: tuple[TimeKind, ...] = ("event", "processing") if event_time else ("processing",)
            program = KeyedProgram(process, kinds, output)
            return program, program.broadcast
        from holdfast.spark.stateful.api import program_for_tests

        return program_for_tests(process, self._schema, self._keys, output, time_mode, pandas), ()

    def _received(self, rows: list[Any]) -> pa.Table:
        return _table(rows, self._schema, "row")

    def _run(self, rows: pa.Table, control: list[Any]) -> list[dict[str, Any]]:
        self.epoch += 1
        clock = Clock(self.epoch, self._processing_ms, self._watermark_ms, self._previous_ms)
        self._state.clock = TableClock(clock.processing_time_ms, clock.watermark_ms)
        received = self._operator.receive(self._input(rows), clock)
        for name, side in received.sides.items():
            self._put_aside(name, side)
        session = self._operator.open(self._state, clock, Place(0, 1, FULL_RANGE))
        try:
            if control:
                session.control(self._control_rows(control))
            update = session.update(sort_rows(received.rows, len(self._keys)), FULL_RANGE)
        finally:
            session.close()
        self._previous_ms = self._watermark_ms
        return self._accept(update)

    def _accept(self, update: Update) -> list[dict[str, Any]]:
        self._state.apply(update.changes)
        for name, side in update.sides.items():
            self._put_aside(name, side)
        for name, amount in update.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + amount
        return _dicts(update.output)

    def _put_aside(self, name: str, rows: pa.Table) -> None:
        self._sides.setdefault(name, []).extend(_dicts(rows))

    def _input(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        columns: dict[str, Any] = {HASH: pa.array(_hashes(rows.select(self._keys)))}
        columns |= {TAG: pa.array(np.arange(count)), SOURCE: pa.array(np.zeros(count, np.int8))}
        columns |= dict(zip(rows.column_names, rows.columns, strict=True))
        arrays = [
            columns[f.name] if f.name in columns else pa.nulls(count, f.type)
            for f in self._operator.input_schema
        ]
        return pa.Table.from_arrays(arrays, schema=self._operator.input_schema).combine_chunks()

    def _control_rows(self, control: list[Any]) -> pa.Table:
        if self._control is None:
            raise InputError("there is no control stream", hint="give the tester control_columns=…")
        rows = _table(control, self._control, "control row")
        named = rows.rename_columns([CONTROL + name for name in rows.column_names])
        return named.append_column(TAG, pa.array(np.arange(rows.num_rows)))

    def _cells(self, key: tuple[Any, ...]) -> Cells:
        """The state of one key, between two epochs."""
        names = self._keys
        if len(key) != len(names):
            raise InputError(f"a key has {len(names)} parts ({', '.join(names)}), not {len(key)}")
        arrays = [
            pa.array([v], self._schema.field(n).type) for n, v in zip(names, key, strict=True)
        ]
        keys = pa.Table.from_arrays(arrays, names=names)
        clock = Clock(max(self.epoch, 0), self._processing_ms, self._watermark_ms)
        self._state.clock = TableClock(clock.processing_time_ms, clock.watermark_ms)
        program = self._operator.program
        ttls = {state.name: state.ttl for state in program.states}
        cells = Cells(self._operator.process_tables, ttls, self._state, clock)
        cells.begin(_hashes(keys), keys)
        return cells


def _forward(what: str, before: int | None, when: datetime | int) -> int:
    ms = to_ms(when)
    if before is not None and ms < before:
        raise InputError(f"{what} can't go back from {from_ms(before)} to {from_ms(ms)}")
    return ms


def _table(rows: Sequence[Any], schema: pa.Schema, what: str) -> pa.Table:
    dicts: list[Mapping[str, Any]] = []
    for row in rows:
        given = row if isinstance(row, Mapping) else dict(zip(schema.names, row, strict=True))
        unknown = set(given) - set(schema.names)
        if unknown:
            raise InputError(f"a {what} has columns {sorted(unknown)}, which are not declared")
        dicts.append(given)
    return pa.Table.from_pylist(dicts, schema)


def _hashes(keys: pa.Table) -> Any:
    """Hashes that spread keys; Spark's own are not needed where nothing is kept."""
    digests = [
        xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(row, enc_hook=str))
        for row in zip(*(column.to_pylist() for column in keys.columns), strict=True)
    ]
    return np.array(digests, np.uint64)


def _dicts(table: pa.Table) -> list[dict[str, Any]]:
    columns = [to_python(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
