"""The window function operator: user code on all rows of the windows that close."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.base import Clock, Operator, Place, Received, Session, StateReader
from holdfast.operators.columns import column
from holdfast.operators.event_time import LATE, EventTime, greatest_ms
from holdfast.operators.input_rows import Fields, input_row_schema
from holdfast.operators.piece_keys import Hints, same_key_for_all
from holdfast.operators.window.spec import WINDOW_END, WINDOW_START, SessionGap, Sliding, Tumbling
from holdfast.operators.window_function.assign import assigner_of
from holdfast.operators.window_function.work import EPOCH, SEQUENCE, FunctionWork, KeptForm
from holdfast.state.schema import Column, TableSchema

__all__ = ["WindowFunction", "WindowFunctionOperator"]

WindowFunction = Callable[[pa.Table], pa.Table]


class WindowFunctionOperator(Operator):
    """Keeps the rows of each window and calls a function on those of all windows that close.

    The function is called once for all windows of a task that close in an epoch. It gets one table:
    keys, ``window_start``, ``window_end``, then the other columns, sorted by keys, window, event
    time and order in the source. What it returns goes out. A row of several windows is kept once.

    Rows that come to a closed window while ``lateness_ms`` lasts call the function again, with all
    rows of that window. Rows that come later go to the side output ``late``; a row that some of its
    windows can still take is not late. Rows without an event time are in no window.

    >>> operator = WindowFunctionOperator(
    ...     "spread", [("user", pa.string())], Tumbling(60_000),
    ...     [("user", pa.string()), ("at", pa.timestamp("us", "UTC")), ("x", pa.int64())],
    ...     lambda rows: rows.select(["user", "x"]),
    ...     pa.schema([("user", pa.string()), ("x", pa.int64())]), event_time=EventTime("at"))
    >>> operator.function_schema.names
    ['user', 'window_start', 'window_end', 'at', 'x']
    """

    needs_ticks = True
    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        window: Tumbling | Sliding | SessionGap,
        columns: Fields,
        function: WindowFunction,
        output_schema: pa.Schema,
        *,
        event_time: EventTime,
        lateness_ms: int = 0,
    ) -> None:
        self.id = id
        self.window = window
        self.columns = tuple(columns)
        self.function = function
        self.event_time = event_time
        self.lateness_ms = lateness_ms
        self._output = output_schema
        self._keys = tuple(keys)
        self._state_keys = tuple(same_key_for_all(keys))
        named = {name for name, _ in keys}
        self._others = tuple((name, kind) for name, kind in columns if name not in named)
        self._check()
        self._assigner = assigner_of(window)
        fields = [*self._state_keys, (EPOCH, pa.int64()), (SEQUENCE, pa.int64()), *self._others]
        numbered = tuple(Column(i, name, kind) for i, (name, kind) in enumerate(fields, 1))
        count = len(self._state_keys)
        self._table = TableSchema(
            f"{id}.rows", numbered[: count + 2], numbered[count + 2 :], prefix=count
        )
        self._hints = Hints.of(id, self._state_keys)
        self.side_schemas = {LATE: pa.schema(self.columns)}

    def _check(self) -> None:
        kinds = dict((*self._keys, *self._others))
        kind = kinds.get(self.event_time.column)
        if not isinstance(self.window, Tumbling | Sliding | SessionGap):
            raise InputError(
                f"a function can't be called on {self.window}: such windows never close",
                hint="use tumbling, sliding or session windows",
            )
        if kind is None or not pa.types.is_timestamp(kind) or kind.unit != "us":
            raise InputError(
                f"the event time {self.event_time.column!r} is no timestamp column of the input",
                hint="name a timestamp column, or cast one",
            )
        for name in (WINDOW_START, WINDOW_END):
            if name in kinds:
                raise InputError(
                    f"the function's table would have two columns named {name!r}",
                    hint="give the input's column another name",
                )
        if self.lateness_ms < 0:
            raise InputError(
                f"the allowed lateness is {self.lateness_ms} ms",
                hint="give 0 or a time in milliseconds",
            )

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Rows by key and order of arrival, and when to look at which key."""
        return (self._table, self._hints.schema)

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, order, source, then the other columns."""
        return input_row_schema(self._keys, self.columns)

    @cached_property
    def kept_schema(self) -> pa.Schema:
        """The same, with a key if there is none."""
        return input_row_schema(self._state_keys, self.columns)

    @property
    def output_schema(self) -> pa.Schema:
        """What the function returns."""
        return self._output

    @cached_property
    def function_schema(self) -> pa.Schema:
        """What the function gets."""
        kind = self._time_type
        bounds = [(WINDOW_START, kind), (WINDOW_END, kind)]
        return pa.schema([*self._keys, *bounds, *self._others])

    @property
    def key_columns(self) -> int:
        """The state's keys without what tells the rows of a key apart."""
        return len(self._state_keys)

    def describe(self) -> str:
        """Keys, window and columns in words; equal words mean equal state."""
        keys = ", ".join(f"{name}: {kind}" for name, kind in self._keys)
        columns = [f"{name}: {kind}" for name, kind in self._others]
        return "\n".join([f"window function by {keys}", str(self.window), *columns])

    @property
    def code(self) -> object:
        """The function."""
        return self.function

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time, and set late rows apart."""
        name = self.event_time.column
        if rows.column(name).null_count:
            rows = rows.filter(rows.column(name).is_valid())
        most = greatest_ms(rows, name)
        greatest = {} if most is None else {"main": most}
        sides = {}
        if clock.late_ms is not None and rows.num_rows:
            times = column(rows, name, self._time_type).cast(pa.int64()).to_numpy()
            late = self._assigner.last_close_ms(times) <= clock.late_ms - self.lateness_ms
            if late.any():
                aside = rows.filter(pa.array(late)).select([name for name, _ in self.columns])
                sides[LATE] = aside.cast(self.side_schemas[LATE])
                rows = rows.filter(pa.array(~late))
        if not self._keys:
            same = pa.array(np.zeros(rows.num_rows, np.int8))
            rows = rows.add_column(1, self.kept_schema.field(1), same)
        return Received(rows, sides, greatest_ms=greatest)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        stored = KeptForm(self._table, self._hints, self._state_keys, self.event_time.column)
        call = (self.function, self.function_schema, self._output)
        return FunctionWork(stored, self._assigner, self.lateness_ms, call, state, clock)

    @property
    def _time_type(self) -> pa.DataType:
        return dict((*self._keys, *self._others))[self.event_time.column]
