"""The window operator: aggregates per key and window, put out as the watermark and triggers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.choices import OutputMode
from holdfast.errors import InputError
from holdfast.operators.aggregates.buffers import Buffers, Overflow, rows_of
from holdfast.operators.aggregates.kinds import AggregateSpec
from holdfast.operators.base import Clock, Operator, Place, Received, Session, StateReader, Update
from holdfast.operators.columns import column, numbers
from holdfast.operators.groups import RowGroups
from holdfast.operators.input_rows import Fields
from holdfast.operators.window.changes import changes_of
from holdfast.operators.window.firing import Firing, Rules
from holdfast.operators.window.panes import (
    FixedWindow,
    late_panes,
    mixed_hashes,
    overlap,
    window_hashes,
    windows_of,
)
from holdfast.operators.window.results import put_out
from holdfast.operators.window.spec import (
    CHANGE,
    COUNT,
    PANE,
    TIME,
    WINDOW_END,
    WINDOW_START,
    Emit,
    GlobalWindow,
    SessionGap,
    WindowSpec,
)
from holdfast.operators.window.tables import WindowTables
from holdfast.operators.window.windows import gather
from holdfast.state.columns import hash_values, one_array, take_all
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import HASH, KEY_HASH, TableSchema, order_to_time

__all__ = ["WindowOperator"]

_MICROS = 1000
_MAIN = "main"


class WindowOperator(Operator):
    """Folds buffer rows into one state row per key and window.

    Output mode ``append`` puts a window's result out when the watermark reaches its end, and again in
    every epoch that brings late rows while lateness lasts; ``emit`` adds early results. ``update``
    puts the new result out in every epoch that changes it. ``retract`` does the same (or, with an
    ``emit``, when that says so), with the row put out before taken back by ``change`` -1.

    A window that has got no rows since it last fired doesn't fire early by time; if rows come after
    that time, it fires in their epoch.

    >>> from holdfast.operators.window.spec import Tumbling
    >>> operator = WindowOperator("clicks", [("user", pa.string())], Tumbling(60_000),
    ...     [AggregateSpec("n", "count")], time_type=pa.timestamp("us", "UTC"))
    >>> operator.output_schema.names
    ['user', 'window_start', 'window_end', 'n']
    >>> print(operator.describe())
    append tumbling windows of 60000 ms from 0 ms by user: string
    lateness 0 ms, trigger: late rows too
    n: count() -> int64
    """

    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        window: WindowSpec,
        aggregates: Sequence[AggregateSpec],
        *,
        time_type: pa.DataType,
        emit: Emit = Emit(),  # noqa: B008 - frozen
        output_mode: OutputMode = "append",
        lateness_ms: int = 0,
    ) -> None:
        fixed = _checked(window, emit, output_mode, lateness_ms)
        if not (pa.types.is_timestamp(time_type) and time_type.unit == "us"):
            raise InputError(
                f"windows can't have bounds of type {time_type}",
                hint="take a timestamp column as event time",
            )
        ends = not isinstance(fixed, GlobalWindow)
        self.id = id
        self.window: FixedWindow = fixed
        self.aggregates = tuple(aggregates)
        self.time_type = time_type
        self.rules = Rules(fixed, emit, output_mode, lateness_ms if ends else 0)
        self.buffers = Buffers(aggregates)
        self.window_tables = WindowTables(
            id,
            tuple(keys),
            self.buffers,
            ends_by_time=ends,
            closed=self.rules.lateness_ms > 0 and self.rules.closing_matters,
            waiting=emit.is_early,
            early=emit.early_every_ms is not None,
            fired=output_mode == "retract" and emit.is_early,
        )
        self.needs_ticks = ends or emit.early_every_ms is not None
        self._check_names()

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Windows, when they end, when they may fire early."""
        return self.window_tables.all

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, pane, time, count and buffers."""
        named = [(PANE, pa.int64()), (TIME, pa.int64()), (COUNT, pa.int64())]
        return self._input_schema(named)

    @cached_property
    def kept_schema(self) -> pa.Schema:
        """Hash, keys, window, count (if ``emit`` needs it) and buffers."""
        counted = [(COUNT, pa.int64())] if self.window_tables.waiting else []
        return self._input_schema([(WINDOW_START, pa.int64()), *counted])

    @cached_property
    def output_schema(self) -> pa.Schema:
        """Keys, bounds of the window, results, and what changes."""
        fields = list(self.window_tables.keys)
        if not isinstance(self.window, GlobalWindow):
            fields += [(WINDOW_START, self.time_type), (WINDOW_END, self.time_type)]
        fields += self.buffers.results
        if self.rules.output_mode == "retract":
            fields.append((CHANGE, pa.int8()))
        return pa.schema(fields)

    def describe(self) -> str:
        """Window, keys, firings and aggregates in words; equal words mean equal state."""
        rules = self.rules
        keys = ", ".join(f"{name}: {kind}" for name, kind in self.window_tables.keys)
        first = (
            f"{rules.output_mode} {self.window} by {keys}"
            if keys
            else f"{rules.output_mode} {self.window}"
        )
        # Words of the log, and older than those of the API: with others it would be another operator.
        second = f"lateness {rules.lateness_ms} ms, trigger: {rules.emit}"
        return "\n".join([first, second, *map(str, self.aggregates)])

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time, and put rows into windows that have not closed for good.

        Rows without a pane have no event time: they are in no window.
        """
        latest = pc.max(rows.column(TIME)).as_py()
        greatest = {} if latest is None else {_MAIN: latest // _MICROS}
        if rows.column(PANE).null_count:
            rows = rows.filter(pc.is_valid(rows.column(PANE)))
        bound = None if clock.late_ms is None else clock.late_ms - self.rules.lateness_ms
        late = late_panes(numbers(column(rows, PANE, pa.int64())), self.window, bound)
        late_rows = 0
        if late is not None:
            late_rows = pc.sum(rows.column(COUNT).filter(pa.array(late))).as_py() or 0
            rows = rows.filter(pa.array(~late))
        return Received(self._windowed(rows, bound), greatest_ms=greatest, late_rows=late_rows)

    def combine(self, rows: SortedRows) -> SortedRows:
        """Merge the buffers of equal keys and windows."""
        groups = RowGroups(rows.starts, rows.table.num_rows)
        if groups.count == groups.rows:
            return rows
        schema = self.kept_schema
        arrays = [column(rows.table, f.name, f.type) for f in schema]
        first = len(schema) - len(self.buffers.fields)
        named = len(self.window_tables.keys) + 2
        names = take_all(arrays[:named], rows.starts, ascending=True)
        keys = pa.Table.from_arrays(names[1:-1], names=[n for n, _ in self.window_tables.keys])
        try:
            buffers = self.buffers.merge(arrays[first:], groups, rows_of(keys))
        except Overflow:  # Together with the state, rows of both signs may fit all the same.
            return rows
        counts = [pa.array(groups.sum_ints(numbers(c))) for c in arrays[named:first]]
        table = pa.Table.from_arrays([*names, *counts, *buffers], schema=schema)
        return SortedRows(table, np.arange(groups.count), rows.keys)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        return _WindowSession(self, state, clock)

    def _windowed(self, rows: pa.Table, bound_ms: int | None) -> pa.Table:
        """Rows as they are kept, once per window, with Spark's signed hashes."""
        schema = self.kept_schema
        panes = numbers(column(rows, PANE, pa.int64()))
        hashes = one_array(rows.column(HASH)).view(pa.uint64()).to_numpy()
        hashed = mixed_hashes if overlap(self.window) else window_hashes
        arrays = [pa.array(hashed(hashes, panes, self.window))]
        for field in list(schema)[1:]:
            name = PANE if field.name == WINDOW_START else field.name
            arrays.append(column(rows, name, field.type))
        if overlap(self.window):
            arrays = self._in_each_window(pa.Table.from_arrays(arrays, schema=schema), bound_ms)
        arrays[0] = arrays[0].view(pa.int64())
        return pa.Table.from_arrays(arrays, schema=schema.set(0, pa.field(HASH, pa.int64())))

    def _in_each_window(self, table: pa.Table, bound_ms: int | None) -> list[pa.Array]:
        """Rows by pane as rows by window."""
        # What is about to be copied for every window is combined before.
        table = self.combine(sort_rows(table, self.key_columns)).table
        panes = numbers(column(table, WINDOW_START, pa.int64()))
        rows, starts = windows_of(panes, self.window, bound_ms)
        arrays = take_all([one_array(c) for c in table.columns], rows, ascending=True)
        key_hashes = mixed_hashes(arrays[0].to_numpy(), panes[rows], self.window)
        arrays[0] = pa.array(window_hashes(key_hashes, starts, self.window))
        arrays[table.schema.get_field_index(WINDOW_START)] = pa.array(starts)
        return arrays

    def _input_schema(self, named: Fields) -> pa.Schema:
        fields = [pa.field(HASH, pa.uint64(), nullable=False)]
        columns = chain(self.window_tables.keys, named, self.buffers.fields)
        return pa.schema([*fields, *(pa.field(name, kind) for name, kind in columns)])

    def _check_names(self) -> None:
        names = self.output_schema.names
        for name in names:
            if names.count(name) > 1:
                raise InputError(
                    f"the result of {self.id!r} would have two columns named {name!r}",
                    hint="give the key column or the aggregate another name",
                )


@dataclass
class _WindowSession(Session):
    operator: WindowOperator
    state: StateReader
    clock: Clock

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Fold rows in first, then fire what is due: rows of this epoch may be part of it."""
        operator = self.operator
        windows = gather(operator.window_tables, rows, self._due(within), self.state)
        firing = Firing(windows, operator.rules, self.clock)
        output = put_out(firing, operator.output_schema)
        new = int(np.count_nonzero(firing.begins)) - int(np.count_nonzero(firing.deleted))
        return Update(changes_of(firing), output, new)

    def _due(self, within: HashRange) -> list[pa.Table]:
        """Hash, keys and start of windows whose time may have come."""
        tables, clock = self.operator.window_tables, self.clock
        times: list[tuple[TableSchema, int | None, int | None]] = []
        if tables.ends_by_time:
            times.append((tables.ends, clock.previous_watermark_ms, clock.watermark_ms))
        if tables.early:
            now, before = clock.processing_time_ms, clock.previous_processing_time_ms
            times.append((tables.early_times, before, now))
        due = []
        for schema, after, until in times:
            if until is None:
                continue
            hints = self.state.due(schema.table, until, within)
            # Hints that are dead may be there or not, as merges go: none is followed.
            if after is not None and hints.num_rows:
                hints = hints.filter(pa.array(order_to_time(hash_values(hints)) > after))
            if hints.num_rows:
                due.append(_names(hints, schema))
        return due


def _names(hints: pa.Table, schema: TableSchema) -> pa.Table:
    arrays = [column(hints, KEY_HASH, pa.uint64())]
    arrays += [column(hints, c.name, c.type) for c in schema.keys]
    return pa.Table.from_arrays(arrays, names=[HASH, *schema.key_names])


def _checked(
    window: WindowSpec, emit: Emit, output_mode: OutputMode, lateness_ms: int
) -> FixedWindow:
    """The window, if it goes with emit, output mode and lateness."""
    if isinstance(window, SessionGap):
        raise InputError("sessions are no windows of fixed bounds", hint="use SessionOperator")
    if lateness_ms < 0:
        raise InputError(f"the lateness is {lateness_ms} ms", hint="give 0 or more")
    if output_mode == "update" and emit.is_early:
        raise InputError(
            "output mode 'update' puts every change out at once: early results add nothing",
            hint='leave emit= out, or say output_mode="append" or "retract"',
        )
    if isinstance(window, GlobalWindow) and output_mode == "append" and not emit.is_early:
        raise InputError(
            "a global window never closes, so nothing would ever be put out",
            hint='say emit=hf.emit(early_rows=1000), or output_mode="update" or "retract"',
        )
    return window
