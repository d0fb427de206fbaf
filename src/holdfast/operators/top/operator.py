"""The top operator: keeps of each key the first n rows in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.choices import TopOutputMode
from holdfast.errors import InputError
from holdfast.operators.base import Clock, Operator, Place, Received, Session, StateReader
from holdfast.operators.columns import column
from holdfast.operators.event_time import LATE, EventTime, milliseconds
from holdfast.operators.groups import RowGroups
from holdfast.operators.input_rows import TAG, Fields, input_row_schema, receive_timed
from holdfast.operators.top.ranking import SortColumn, rank_rows
from holdfast.operators.top.session import TopSession
from holdfast.operators.top.tables import TopTables
from holdfast.state.columns import one_array, take_all
from holdfast.state.keys import SortedRows
from holdfast.state.schema import TableSchema, check_plain_type

__all__ = ["CHANGE", "TopOperator"]

CHANGE = "change"
"""The column that says whether a row came into the top n (1) or left it (-1)."""


class TopOperator(Operator):
    """Keeps of each key the first n rows in an order, and says what changes.

    ``order`` names columns, each with whether it is descending. Nulls count as less than any value,
    as in Spark; of rows that are equal in all these columns the one that came first stays.

    With the output mode ``retract`` a row goes out with ``change`` 1 when it comes into the top n and with
    -1 when it leaves; with a column ``rank`` also when it moves. With ``append`` the top n of a key go
    out once, when the watermark has reached the key's column ``expires`` (and the lateness that is
    allowed). In both the key's state is freed then, and rows of the key come too late; a key whose
    ``expires`` is null is kept for ever.

    >>> scores = [("game", pa.string()), ("player", pa.string()), ("points", pa.int64())]
    >>> operator = TopOperator("top", scores[:1], scores, 3, [("points", True)], rank="place")
    >>> operator.output_schema.names
    ['game', 'player', 'points', 'place', 'change']
    >>> print(operator.describe())
    top 3 by game: string
    order: points descending
    output: retract
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        columns: Fields,
        n: int,
        order: Sequence[tuple[str, bool]],
        *,
        event_time: EventTime | None = None,
        output_mode: TopOutputMode = "retract",
        expires: str | None = None,
        rank: str | None = None,
    ) -> None:
        self.id = id
        self.columns = tuple(columns)
        self.n = n
        self.order = tuple(order)
        self.event_time = event_time
        self.output_mode = output_mode
        self.expires = expires
        self.rank = rank
        self.keys = tuple(keys)
        self._check()
        self.appends = output_mode == "append"
        self.needs_ticks = self.deletes = self.appends
        # What is equal within a key can't order its rows.
        known = {name for name, _ in keys}
        self.sort_by = tuple((name, down) for name, down in self.order if name not in known)
        values = [(name, kind) for name, kind in columns if name not in known]
        self.top_tables = TopTables.of(
            id, self.keys, values, hints=self.appends, expires=expires is not None
        )
        if event_time is not None:
            self.side_schemas = {LATE: pa.schema(self.columns)}

    def _check(self) -> None:
        kinds, keys = dict(self.columns), dict(self.keys)
        if not self.keys or self.n < 1 or not self.order:
            raise InputError(
                f"top {self.n} by {len(self.keys)} key columns and {len(self.order)} to order by",
                hint="give at least one key column, n of at least 1 and a column to order by",
            )
        for name in (*keys, *(name for name, _ in self.order)):
            if name not in kinds:
                raise InputError(
                    f"top: there is no column {name!r}", hint=f"columns are {', '.join(kinds)}"
                )
        for name, _ in self.order:
            _check_order(name, kinds[name])
        added = [CHANGE] if self.output_mode == "retract" else []
        added += [] if self.rank is None else [self.rank]
        for column_name in added:
            if column_name in kinds or added.count(column_name) > 1:
                raise InputError(
                    f"top: the output would have two columns named {column_name!r}",
                    hint="rename the column of the input, or give the rank another name",
                )
        ends = None if self.expires is None else keys.get(self.expires, pa.null())
        if ends is not None and not pa.types.is_timestamp(ends):
            raise InputError(
                f"top: {self.expires!r} is not a timestamp column of the key",
                hint="let state expire by a time that is part of the key, such as a window's end",
            )
        if self.output_mode not in ("append", "retract"):
            raise InputError(
                f"top: output mode {self.output_mode!r} is not offered: rows that leave would stay in place",
                hint='use output_mode="retract", or "append" with a key that expires',
            )
        if self.output_mode == "append" and (self.expires is None or self.event_time is None):
            raise InputError(
                'top: output mode "append" has to know when a key is complete',
                hint="give the stream a watermark and say until= with a key column that has a time, such "
                'as "window_end"; or use output_mode="retract"',
            )

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """The rows under their keys; with ``append`` also when to look at which key."""
        return self.top_tables.all

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, order, source, then the other columns."""
        return input_row_schema(self.keys, self.columns)

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The columns of the input, then the rank (from 1) and the change."""
        fields = [pa.field(name, kind) for name, kind in self.columns]
        if self.rank is not None:
            fields.append(pa.field(self.rank, pa.int32()))
        if not self.appends:
            fields.append(pa.field(CHANGE, pa.int8()))
        return pa.schema(fields)

    @property
    def key_columns(self) -> int:
        """The keys; a row's place among those of its key is not known before."""
        return len(self.keys)

    @property
    def lateness_ms(self) -> int:
        """How long after its time a key still takes rows."""
        return 0 if self.event_time is None else self.event_time.allowed_lateness_ms

    def describe(self) -> str:
        """Keys, order and when keys go; equal words mean equal state."""
        keys = ", ".join(f"{name}: {kind}" for name, kind in self.keys)
        order = ", ".join(f"{name} {'de' if down else 'a'}scending" for name, down in self.order)
        # Words of the log, and older than those of the API: with others it would be another operator.
        words = [f"top {self.n} by {keys}", f"order: {order}", f"output: {self.output_mode}"]
        if self.expires is not None:
            words.append(f"until {self.lateness_ms} ms after {self.expires}")
        return "\n".join(words)

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time, and set rows apart that are late or whose key is over."""
        received = receive_timed(rows, self.event_time, clock.late_ms, self.columns)
        rows = received.rows
        if self.expires is None or clock.late_ms is None or not rows.num_rows:
            return received
        over = pc.less_equal(self.ends_ms(rows.column(self.expires)), clock.late_ms)
        over = pc.fill_null(over, False)
        if not over.true_count:
            return received
        late, rows = rows.filter(over), rows.filter(pc.invert(over))
        if self.event_time is None:
            return replace(received, rows=rows, late_rows=late.num_rows)
        schema = self.side_schemas[LATE]
        aside = [late.select(schema.names).cast(schema), received.sides.get(LATE)]
        sides = {LATE: pa.concat_tables([table for table in aside if table is not None])}
        return replace(received, rows=rows, sides=sides)

    def combine(self, rows: SortedRows) -> SortedRows:
        """Only the first n rows of each key, in the order they are in."""
        groups = RowGroups(rows.starts, rows.table.num_rows)
        if groups.largest <= self.n:
            return rows
        kinds = dict(self.columns)
        by = [
            SortColumn(column(rows.table, name, kinds[name]), down) for name, down in self.sort_by
        ]
        by.append(SortColumn(column(rows.table, TAG, pa.int64())))
        ranked = rank_rows(groups.ids, by)
        places = np.sort(ranked.order[ranked.ranks < self.n])
        columns = take_all([one_array(c) for c in rows.table.columns], places, ascending=True)
        sizes = np.minimum(np.diff(rows.starts, append=rows.table.num_rows), self.n)
        table = pa.Table.from_arrays(columns, schema=rows.table.schema)
        return SortedRows(table, np.cumsum(sizes) - sizes, rows.keys)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        return TopSession(self, state, clock)

    def ends_ms(self, times: pa.ChunkedArray | pa.Array) -> pa.Array:
        """From which watermark on keys with these values of ``expires`` are over."""
        return pc.add(milliseconds(times, up=True), self.lateness_ms)


def _check_order(name: str, kind: pa.DataType) -> None:
    try:
        check_plain_type(name, kind)
    except InputError:
        raise InputError(
            f"rows can't be put in order by column {name!r} of type {kind}",
            hint="order by boolean, number, text, binary, date or timestamp columns",
        ) from None
