"""A window function at work in one task: rows are kept, and go to the function when windows close.

Rows that come are written without reading anything, unless one of their windows has closed already.
Of each key that gets rows one hint is written, for the first time that a window of theirs closes.
When it comes, all rows of the key are read: some go to the function, some are forgotten, and for
what stays there is a new hint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import ProcessingError
from holdfast.operators.base import Clock, Session, StateReader, Update
from holdfast.operators.columns import Bits, column
from holdfast.operators.groups import RowGroups
from holdfast.operators.input_rows import Fields
from holdfast.operators.piece_keys import Hints, KeySet, keys_of, read_under, together
from holdfast.operators.process.program import user_error
from holdfast.operators.spans import sort_spans
from holdfast.operators.window.spec import WINDOW_START
from holdfast.operators.window_function.assign import Assigned, Assigner, Bounds, RowsOfKeys
from holdfast.state.columns import Indices, concat, take, take_all
from holdfast.state.hashing import HashRange, entry_hashes, marker_hashes
from holdfast.state.keys import SortedRows, key_order, sort_rows
from holdfast.state.schema import TableSchema
from holdfast.types import type_words

__all__ = ["EPOCH", "SEQUENCE", "FunctionWork", "KeptForm"]

EPOCH = "_holdfast_epoch"
"""The epoch that a row came in."""
SEQUENCE = "_holdfast_sequence"
"""The place of a row among those of its key in its epoch."""
_SEQUENCE_BITS = 20
_FAR = np.iinfo(np.int64).max

Call = tuple[Callable[[pa.Table], pa.Table], pa.Schema, pa.Schema]
"""A function, the columns of what it gets, and of what it returns."""


@dataclass(frozen=True, slots=True)
class KeptForm:
    """How rows are kept."""

    table: TableSchema
    hints: Hints
    keys: Fields
    time: str
    """The column with the event time, a key or a value."""


@dataclass(frozen=True)
class _RowsOfWindows:
    """Rows of this epoch, and behind them those that the state has of keys that were looked at."""

    keys: KeySet
    fresh: int
    owners: Indices
    """The key of each row."""
    epochs: Indices
    sequences: Indices
    times: Indices
    stored: KeptForm
    tables: tuple[pa.Table, pa.Table]

    @cached_property
    def values(self) -> list[pa.Array]:
        """The value columns of all rows."""
        tables = [table for table in self.tables if table.num_rows]
        return [
            concat([column(table, c.name, c.type) for table in tables], c.type)
            for c in self.stored.table.values
        ]


class FunctionWork(Session):
    """One task's work on the windows of a function."""

    def __init__(
        self,
        stored: KeptForm,
        assigner: Assigner,
        lateness_ms: int,
        call: Call,
        state: StateReader,
        clock: Clock,
    ) -> None:
        self._stored, self._assigner = stored, assigner
        self._function, self._given, self._output = call
        self._state, self._clock = state, clock
        self._bounds = Bounds.of(clock, lateness_ms)

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Take rows in, call the function on the windows that close, and forget what is over."""
        members = self._members(rows, within)
        if not len(members.owners):
            return Update({}, self._output.empty_table(), 0)
        assigned = self._assigner.assign(
            RowsOfKeys(members.owners, members.times, members.fresh), self._bounds
        )
        changes, more = self._changes(members, assigned.over)
        hints = self._new_hints(members, assigned)
        tables = {self._stored.table.table: changes, self._stored.hints.schema.table: hints}
        return Update(tables, self._call(members, assigned), more)

    def _members(self, rows: SortedRows, within: HashRange) -> _RowsOfWindows:
        stored, table = self._stored, rows.table
        hinted = stored.hints.due(self._state, self._clock, within)
        keys, fresh, due = together(keys_of(rows, stored.keys), hinted)
        groups = RowGroups(rows.starts, table.num_rows)
        owners, times = fresh[groups.ids], self._times(table)
        looked = np.zeros(len(keys), np.bool_)
        looked[due] = True
        looked[owners[self._assigner.may_close(times, self._bounds)]] = True
        places = np.flatnonzero(looked)
        query, found = read_under(self._state, stored.table, keys.at(places))
        epochs = np.full(table.num_rows, self._clock.epoch)
        sequences = np.arange(table.num_rows) - rows.starts[groups.ids]
        return _RowsOfWindows(
            keys,
            table.num_rows,
            np.concatenate([owners, places[query]]),
            np.concatenate([epochs, found.column(EPOCH).to_numpy()]),
            np.concatenate([sequences, found.column(SEQUENCE).to_numpy()]),
            np.concatenate([times, self._times(found)]),
            stored,
            (table, found),
        )

    def _times(self, table: pa.Table) -> Indices:
        times: Indices = (
            column(table, self._stored.time, self._given.field(WINDOW_START).type)
            .cast(pa.int64())
            .to_numpy()
        )
        return times

    def _changes(self, members: _RowsOfWindows, over: Bits) -> tuple[pa.Table, int]:
        """New rows, and what is forgotten: by a key's marker, with what stays written again, or row by
        row, whichever is less to write. And how many more rows there are."""
        schema, fresh, total = self._stored.table, members.fresh, len(members.owners)
        old = np.arange(fresh, total)
        dead, alive = old[over[fresh:]], old[~over[fresh:]]
        dying = np.bincount(members.owners[dead], minlength=len(members.keys))
        staying = np.bincount(members.owners[alive], minlength=len(members.keys))
        cleared = dying > staying + 1
        markers = np.flatnonzero(cleared)
        stones = dead[~cleared[members.owners[dead]]]
        kept = np.flatnonzero(~over[:fresh])
        written = np.concatenate([kept, alive[cleared[members.owners[alive]]]])
        named = np.concatenate([written, stones])
        owners = np.concatenate([members.owners[named], markers])
        epochs, sequences = members.epochs[named], members.sequences[named]
        low = ((epochs << _SEQUENCE_BITS) + sequences).astype(np.uint32)
        hashes = entry_hashes(members.keys.hashes[members.owners[named]], low)
        gone = len(stones) + len(markers)
        unnamed = pa.nulls(len(markers), pa.int64())
        values = members.values
        if len(written) < total:
            values = take_all(values, written)
        columns = [
            pa.array(np.concatenate([hashes, marker_hashes(members.keys.hashes[markers])])),
            *members.keys.columns_at(owners),
            concat([pa.array(epochs), unnamed], pa.int64()),
            concat([pa.array(sequences), unnamed], pa.int64()),
        ]
        for i, value in enumerate(schema.values):
            blank = [pa.nulls(gone, value.type)] if gone else []
            columns.append(concat([values[i], *blank], value.type))
        arrow = schema.arrow
        if gone:
            columns.append(pa.array(np.arange(len(owners)) >= len(written)))
            arrow = schema.arrow_with_tombstones
        table = pa.Table.from_arrays(columns, schema=arrow)
        return sort_rows(table, len(schema.keys)).table, len(kept) - len(dead)

    def _new_hints(self, members: _RowsOfWindows, assigned: Assigned) -> pa.Table:
        """When each key that still has rows must be looked at next."""
        first = np.full(len(members.keys), _FAR)
        stays = ~assigned.over
        np.minimum.at(first, members.owners[stays], assigned.next_ms[stays])
        places = np.flatnonzero(first != _FAR)
        return self._stored.hints.make(first[places], members.keys, places)

    def _call(self, members: _RowsOfWindows, assigned: Assigned) -> pa.Table:
        if not len(assigned.rows):
            return self._output.empty_table()
        given = self._closing(members, assigned)
        name = getattr(self._function, "__qualname__", repr(self._function))
        try:
            returned: object = self._function(given)
        except Exception as error:
            raise user_error(error, name, {}, self._clock.epoch) from error
        return _checked(returned, self._output, name, self._clock.epoch)

    def _closing(self, members: _RowsOfWindows, assigned: Assigned) -> pa.Table:
        """The rows of all windows that close, in order."""
        order = _in_order(members, assigned, overlapping=self._assigner.overlapping)
        rows = assigned.rows[order]
        keys = len(self._given) - 2 - len(self._stored.table.values)
        columns = members.keys.columns_at(members.owners[rows])[:keys]
        for times in (assigned.starts, assigned.ends):
            kind = self._given.field(WINDOW_START).type
            columns.append(pa.array(times[order]).cast(kind))
        columns += [take(value, rows) for value in members.values]
        return pa.Table.from_arrays(columns, schema=self._given)


def _in_order(members: _RowsOfWindows, assigned: Assigned, *, overlapping: bool) -> Indices:
    """The rows that go out by keys, window, event time, and order in the source."""
    # Earlier rows first: then hardly any that are equal otherwise stand the wrong way round.
    is_fresh = assigned.rows < members.fresh
    first = np.concatenate([np.flatnonzero(~is_fresh), np.flatnonzero(is_fresh)])
    rows = assigned.rows[first]
    groups, times = _key_ranks(members, rows), members.times[rows]
    if overlapping:
        starts, windows = np.unique(assigned.starts[first], return_inverse=True)
        groups, times = groups * len(starts) + windows, times - starts[windows]
    order = sort_spans(groups, times)
    if order is None:
        order = np.arange(len(rows))
    epochs = members.epochs[rows]
    source = ((epochs - epochs.min()) << 32) + members.sequences[rows]
    before, after = order[:-1], order[1:]
    tied = np.flatnonzero((groups[before] == groups[after]) & (times[before] == times[after]))
    if (source[before[tied]] > source[after[tied]]).any():
        order = np.lexsort((source, times, groups))
    return first[order]


def _key_ranks(members: _RowsOfWindows, rows: Indices) -> Indices:
    """The place of each row's key among the keys of these rows, in the order of the keys themselves."""
    owners = members.owners[rows]
    named = np.flatnonzero(np.bincount(owners, minlength=len(members.keys)))
    keys = members.keys.at(named).keys
    ranks = np.empty(len(members.keys), np.int64)
    ranks[named[key_order(keys)]] = np.arange(len(named))
    return ranks[owners]


def _checked(returned: object, schema: pa.Schema, name: str, epoch: int) -> pa.Table:
    """What a function returned, if it is what was declared."""
    words = ", ".join(f"{field.name} {type_words(field.type)}" for field in schema)
    hint = f"return a pyarrow.Table; the output is declared as {words}"
    if not isinstance(returned, pa.Table):
        raise ProcessingError(
            f"{name} returned a {type(returned).__name__} in epoch {epoch}, not a table", hint=hint
        )
    problem = _problem(returned, schema)
    if problem:
        raise ProcessingError(
            f"{name} returned a table in epoch {epoch} that doesn't fit its output: {problem}",
            hint=hint,
        )
    return pa.Table.from_arrays(returned.columns, schema=schema)


def _problem(returned: pa.Table, schema: pa.Schema) -> str:
    """What is wrong with the first column that doesn't fit."""
    if returned.column_names != schema.names:
        return f"it has the columns {returned.column_names}, not {schema.names}"
    for field, given in zip(schema, returned.schema, strict=True):
        if given.type != field.type:
            wanted, found = type_words(field.type), type_words(given.type)
            # Spark's words don't tell all types of Arrow's apart.
            found = found if found != wanted else str(given.type)
            return f"column {field.name!r} should be {wanted}, but is {found}"
    return ""
