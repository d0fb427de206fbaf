"""The session operator: aggregates over rows of a key that follow each other closely."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.choices import OutputMode
from holdfast.errors import InputError
from holdfast.operators.aggregates.buffers import Buffers, Overflow
from holdfast.operators.aggregates.kinds import AggregateSpec
from holdfast.operators.base import Clock, Operator, Place, Received, Session, StateReader
from holdfast.operators.columns import column
from holdfast.operators.groups import RowGroups
from holdfast.operators.input_rows import Fields
from holdfast.operators.piece_keys import Hints, keys_of, same_key_for_all
from holdfast.operators.session.work import SessionRules, SessionWork
from holdfast.operators.spans import merge_spans
from holdfast.operators.window.spec import (
    CHANGE,
    COUNT,
    PANE,
    TIME,
    WINDOW_END,
    WINDOW_START,
    Emit,
    SessionGap,
)
from holdfast.state.columns import take, take_all
from holdfast.state.keys import SortedRows
from holdfast.state.schema import HASH, Column, TableSchema
from holdfast.state.text import python_rows

__all__ = ["SessionOperator"]


class SessionOperator(Operator):
    """Folds buffer rows into sessions, and puts out what they come to.

    A row at t makes a session from t to t + gap; sessions of a key that overlap or touch are one, as
    in Spark and Flink. A session closes when the watermark reaches its end, and is forgotten
    ``lateness_ms`` later. A row is late if its own session would be forgotten already; rows without
    an event time are in no session.

    ``append`` puts a session out when it closes. If rows then change it while lateness lasts, it is
    put out again: at once if it is still closed (unless ``emit.late`` is off), else when it
    closes. ``update`` puts out every session that rows have changed, at once. A session that begins
    earlier than before, or that swallowed another, is a new row: those put out before for its parts
    stay with the reader, who can tell by their bounds, which lie within the new ones'. ``retract``
    is ``update`` with every such row taken back, so what readers have adds up.

    >>> operator = SessionOperator("visits", [("user", pa.string())], 30_000,
    ...     [AggregateSpec("n", "count")], time_type=pa.timestamp("us", "UTC"))
    >>> operator.output_schema.names
    ['user', 'window_start', 'window_end', 'n']
    >>> print(operator.describe())
    sessions by user: string
    gap 30000 ms, output append
    n: count() -> int64
    """

    needs_ticks = True
    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        gap_ms: int,
        aggregates: Sequence[AggregateSpec],
        *,
        time_type: pa.DataType,
        emit: Emit = Emit(),  # noqa: B008 - a frozen value
        output_mode: OutputMode = "append",
        lateness_ms: int = 0,
    ) -> None:
        _check(emit, output_mode, lateness_ms)
        self.id = id
        self.aggregates = tuple(aggregates)
        self.gap_ms = SessionGap(gap_ms).gap_ms
        self.time_type = time_type
        self.emit = emit
        self.output_mode = output_mode
        self.lateness_ms = lateness_ms
        self._keys = tuple(keys)
        self._state_keys = tuple(same_key_for_all(keys))
        self._buffers = Buffers(aggregates)
        names = [*self._state_keys, (WINDOW_START, pa.int64()), (WINDOW_END, pa.int64())]
        numbered = [Column(i, n, k) for i, (n, k) in enumerate(names + self._buffers.fields, 1)]
        count = len(self._state_keys)
        self._table = TableSchema(
            f"{id}.sessions", tuple(numbered[: count + 1]), tuple(numbered[count + 1 :]), count
        )
        self._hints = Hints.of(id, self._state_keys)
        _check_names(self.output_schema)

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Sessions by key and start, and when to look at which key."""
        return (self._table, self._hints.schema)

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, the times of the first and the last row, how many there are, buffers."""
        return self._input_schema(self._keys, (PANE, TIME, COUNT))

    @cached_property
    def kept_schema(self) -> pa.Schema:
        """The same without the count of rows, and with a key if there is none."""
        return self._input_schema(self._state_keys, (PANE, TIME))

    @cached_property
    def output_schema(self) -> pa.Schema:
        """Keys, bounds of the session, results, and for ``retract`` the change."""
        fields = [*self._keys, (WINDOW_START, self.time_type), (WINDOW_END, self.time_type)]
        fields += self._buffers.results
        if self.output_mode == "retract":
            fields.append((CHANGE, pa.int8()))
        return pa.schema(fields)

    @property
    def key_columns(self) -> int:
        """The state's keys without the session's start."""
        return len(self._state_keys)

    def describe(self) -> str:
        """Keys, gap, output mode and aggregates in words; equal words mean equal state."""
        # The output mode too: what may be taken back, and when to look at a key, hang on it. These are
        # words of the log, and older than those of the API: with others it would be another operator.
        keys = ", ".join(f"{name}: {kind}" for name, kind in self._keys)
        lines = [f"sessions by {keys}", f"gap {self.gap_ms} ms, output {self.output_mode}"]
        return "\n".join([*lines, *map(str, self.aggregates)])

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time, and leave out rows that come too late."""
        rows = _with_time(rows)
        if not rows.num_rows:
            return Received(self._kept(rows))
        times = column(rows, TIME, pa.int64()).to_numpy()
        greatest = {"main": int(times.max()) // 1000}
        bound = self.late_us(clock)
        if bound is None:
            return Received(self._kept(rows), greatest_ms=greatest)
        late, count = times <= bound, 0
        if late.any():
            count = int(column(rows, COUNT, pa.int64()).to_numpy()[late].sum())
            rows = rows.filter(pa.array(~late))
        return Received(self._kept(rows), greatest_ms=greatest, late_rows=count)

    def late_us(self, clock: Clock) -> int | None:
        """Rows up to this time, in µs, are late; None if none are."""
        if clock.late_ms is None:
            return None
        return (clock.late_ms - self.lateness_ms - self.gap_ms) * 1000

    def combine(self, rows: SortedRows) -> SortedRows:
        """Merge the buffers of rows of one session."""
        total = rows.table.num_rows
        groups = RowGroups(rows.starts, total).ids
        first = column(rows.table, PANE, pa.int64()).to_numpy()
        last = column(rows.table, TIME, pa.int64()).to_numpy()
        order, firsts = merge_spans(groups, first, last + self.gap_ms * 1000)
        if len(firsts) == total:
            return rows
        columns = self._buffers.of(rows.table)
        if order is not None:
            columns, first, last = take_all(columns, order), first[order], last[order]
        owners = groups[firsts]
        keys = keys_of(rows, self._state_keys)
        whose = lambda group: python_rows(keys.slice(owners[group], 1).drop_columns([HASH]))[0]  # noqa: E731
        try:
            merged = self._buffers.merge(columns, RowGroups(firsts, total), whose)
        except Overflow:  # Together with the state, rows of both signs may fit all the same.
            return rows
        arrays = [take(c.combine_chunks(), owners, ascending=True) for c in keys.columns]
        arrays += [pa.array(first[firsts]), pa.array(np.maximum.reduceat(last, firsts)), *merged]
        starts = np.searchsorted(owners, np.arange(len(rows.starts)))
        table = pa.Table.from_arrays(arrays, schema=self.kept_schema)
        return SortedRows(table, starts, rows.keys)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        shape = SessionRules(
            self._state_keys,
            len(self._keys),
            self.gap_ms,
            self.lateness_ms,
            self.output_mode,
            self.emit.late,
        )
        parts = (self._table, self._hints, self._buffers, self.output_schema)
        return SessionWork(shape, *parts, state, clock)

    def _input_schema(self, keys: Fields, numbers: Sequence[str]) -> pa.Schema:
        fields = [pa.field(HASH, pa.uint64(), nullable=False)]
        fields += [pa.field(name, kind) for name, kind in keys]
        fields += [pa.field(name, pa.int64()) for name in numbers]
        fields += [pa.field(name, kind) for name, kind in self._buffers.fields]
        return pa.schema(fields)

    def _kept(self, rows: pa.Table) -> pa.Table:
        if not self._keys:
            same = pa.array(np.zeros(rows.num_rows, np.int8))
            rows = rows.add_column(1, self.kept_schema.field(1), same)
        return rows.drop_columns([COUNT])


def _with_time(rows: pa.Table) -> pa.Table:
    if not rows.column(TIME).null_count and not rows.column(PANE).null_count:
        return rows
    known = rows.column(TIME).is_valid(), rows.column(PANE).is_valid()
    return rows.filter(known[0]).filter(known[1].filter(known[0]))


def _check(emit: Emit, output_mode: OutputMode, lateness_ms: int) -> None:
    if emit.is_early:
        raise InputError(
            "sessions can't have early results: a session may yet become part of another",
            hint='say output_mode="update" or "retract" to see sessions before they close',
        )
    if output_mode == "retract" and lateness_ms and not emit.late:
        raise InputError(
            'output mode "retract" takes back and puts out every change, late ones too',
            hint="leave late firings on, or allow no lateness",
        )
    if lateness_ms < 0:
        raise InputError(
            f"the allowed lateness is {lateness_ms} ms", hint="give 0 or a time in milliseconds"
        )


def _check_names(schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InputError(
                f"the result would have two columns named {name!r}",
                hint="give the key column or the aggregate another name",
            )
