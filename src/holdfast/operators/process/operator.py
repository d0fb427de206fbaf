"""The process operator: runs a program per key, with its state, its timers and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.choices import TimeKind
from holdfast.errors import InputError, ProcessingError
from holdfast.operators.base import (
    Clock,
    Operator,
    Place,
    Received,
    Session,
    StateReader,
    Update,
)
from holdfast.operators.event_time import LATE, EventTime, greatest_ms
from holdfast.operators.input_rows import (
    CONTROL,
    INITIAL,
    SOURCE,
    TAG,
    Fields,
    input_row_schema,
    part_control,
    receive_timed,
)
from holdfast.operators.process.broadcast import BroadcastCell, BroadcastState, broadcast_table
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.passes import Passes, WorkKeys
from holdfast.operators.process.program import (
    Chunk,
    DueTimer,
    Program,
    ProgramOutput,
    RunningProgram,
)
from holdfast.operators.process.tables import ProcessTables
from holdfast.state.columns import hash_values, one_array, take_all
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows, key_order, sort_rows
from holdfast.state.schema import HASH, TableSchema, order_to_time
from holdfast.state.text import python_rows

__all__ = ["ProcessOperator"]

# Timers of this many keys fire in order of time; of more, in several rounds.
_TIMER_KEYS = 250_000
# So often may timers set the next ones once input has ended: who sets one every minute never ends.
_MOST_ROUNDS = 10_000


class ProcessOperator(Operator):
    """Runs user code per key."""

    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        columns: Fields,
        program: Program,
        *,
        event_time: Mapping[str, EventTime] | None = None,
        control: Fields | None = None,
        initial: Fields | None = None,
        broadcast: Sequence[BroadcastState] = (),
        late_by: Literal["current", "previous", "never"] = "current",
        earlier: Mapping[str, TableSchema] | None = None,
    ) -> None:
        self.id = id
        self.program = program
        self.columns = tuple(columns)
        self.control = None if control is None else tuple(control)
        self.initial = None if initial is None else tuple(initial)
        self.begins_with_rows = initial is not None
        self.event_time = dict(event_time or {})
        self.late_by = late_by
        self.late_by_epoch_before = late_by == "previous"
        self.keys = tuple(keys)
        self._broadcast = tuple(broadcast)
        self.broadcast = {state.name: broadcast_table(id, state) for state in broadcast}
        self.shared_tables = frozenset(schema.table for schema in self.broadcast.values())
        self.needs_ticks = bool(program.timer_kinds)
        self.deleted_states = program.deleted
        self.process_tables = ProcessTables.of(
            id, keys, program.states, program.timer_kinds, earlier
        )
        self.side_schemas = dict(program.side_schemas)
        if self.event_time:
            if LATE in self.side_schemas:
                raise InputError(
                    f"side output {LATE!r} is the one that late rows go to",
                    hint="give the process's own side output another name",
                )
            self.side_schemas[LATE] = pa.schema(self.columns)

    def continuing(self, earlier: Mapping[str, TableSchema]) -> None:
        """Keep the column ids of the tables that an earlier start of the program left."""
        self.process_tables = ProcessTables.of(
            self.id, self.keys, self.program.states, self.program.timer_kinds, earlier
        )

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Values, maps, lists, timers, broadcast state."""
        return (*self.process_tables.all, *self.broadcast.values())

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, order, source, then the columns of each source."""
        return input_row_schema(
            self.keys, self.columns, control=self.control or (), initial=self.initial or ()
        )

    @property
    def output_schema(self) -> pa.Schema:
        """What the program puts out."""
        return self.program.output_schema

    def describe(self) -> str:
        """Keys and kind of program; states may come and go, and are checked by their tables."""
        keys = ", ".join(f"{name}: {kind}" for name, kind in self.keys)
        return f"{self.program.describe()} by {keys}"

    def describe_states(self) -> Sequence[str]:
        """Those of the program, broadcast states last."""
        return [state.describe() for state in (*self.program.states, *self._broadcast)]

    @property
    def code(self) -> object:
        """The process or processor."""
        return self.program.code

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Set control rows and late rows apart, and note the greatest event times."""
        control, clock = None, self.program.times(clock)
        if self.control is not None:
            rows, control = part_control(rows)
        marks = {"current": clock.late_ms, "previous": clock.previous_watermark_ms}
        time = self.event_time.get("main")
        received = receive_timed(rows, time, marks.get(self.late_by), self.columns)
        greatest = dict(received.greatest_ms)
        time = self.event_time.get("control")
        if time is not None and control is not None:
            most = greatest_ms(control, CONTROL + time.column)
            greatest |= {} if most is None else {"control": most}
        return replace(received, control=control, greatest_ms=greatest)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Open the program for one task."""
        return _ProcessSession(self, state, self.program.times(clock), place)


class _ProcessSession(Session):
    def __init__(
        self, operator: ProcessOperator, state: StateReader, clock: Clock, place: Place
    ) -> None:
        self.operator, self.state, self.clock, self.place = operator, state, clock, place
        tables = operator.process_tables
        ttls = {s.name: s.ttl for s in operator.program.states}
        self.cells = Cells(tables, ttls, state, clock)
        self.cells.broadcast = {
            name: BroadcastCell(schema, state) for name, schema in operator.broadcast.items()
        }
        self.running: RunningProgram = operator.program.open(self.cells, clock, place)
        self._schemas = {schema.table: schema for schema in operator.tables}
        self._shared: dict[str, pa.Table] = {}

    def control(self, rows: pa.Table) -> None:
        """Let the program take control rows, in the order of their source."""
        ordered = rows.sort_by(TAG)
        names = [name for name, _ in self.operator.control or ()]
        given = ordered.select([CONTROL + name for name in names]).rename_columns(names)
        for cell in self.cells.broadcast.values():
            cell.open_for_changes = True
        self.running.control(given)
        for name, cell in self.cells.broadcast.items():
            cell.open_for_changes = False
            changed = cell.finish()
            # All partitions come to the same; the one that owns the lowest hashes writes it down.
            if changed is not None and self.place.range.first == 0:
                self._shared[self.operator.broadcast[name].table] = changed

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Rows of initial state, rows, then timers."""
        passes = Passes(self.cells, self.state, self._schemas)
        if self.operator.initial is not None:
            first, rows = self._parted(rows)
            if first is not None:
                passes.run(self._work(first, self.operator.initial, INITIAL), self.running.initial)
        if rows.table.num_rows:
            passes.run(self._work(rows, self.operator.columns, ""), self.running.rows)
        self._fire(passes, within)
        changes = passes.changes()
        if within.first == self.place.range.first:
            changes.update(self._shared)
        empty = self.operator.output_schema.empty_table()
        return Update(
            changes,
            pa.concat_tables(passes.outputs) if passes.outputs else empty,
            passes.new_keys,
            {name: pa.concat_tables(tables) for name, tables in passes.sides.items()},
            self.running.metrics(),
        )

    def close(self) -> None:
        """Close the program."""
        self.running.close()

    def _parted(self, rows: SortedRows) -> tuple[SortedRows | None, SortedRows]:
        """Rows of the initial state, and the others."""
        source = rows.table.column(SOURCE)
        initial = rows.table.filter(pc.equal(source, 2))
        if not initial.num_rows:
            return None, rows
        others = rows.table.filter(pc.not_equal(source, 2))
        return sort_rows(initial, rows.keys), sort_rows(others, rows.keys)

    def _work(self, rows: SortedRows, columns: Fields, prefix: str) -> WorkKeys:
        table, starts = rows.table, rows.starts
        key_columns = [one_array(table.column(i)) for i in range(1, rows.keys + 1)]
        keys = take_all(key_columns, starts, ascending=True)
        names = [name for name, _ in self.operator.keys]
        known = set(table.column_names)
        given = [prefix + name if prefix + name in known else name for name, _ in columns]
        return WorkKeys(
            hash_values(table)[starts],
            pa.Table.from_arrays(keys, names=names),
            table.select(given).rename_columns([name for name, _ in columns]),
            np.append(starts, table.num_rows),
        )

    def _fire(self, passes: Passes, within: HashRange) -> None:
        """Run the code of every timer that the clock has reached."""
        due = self._due_keys(passes, within)
        if due is None:
            return
        for kind, timer in self.cells.timers.items():
            timer.past_allowed = self._goes_on(kind)
        fresh = {kind: self._fresh(passes, kind) for kind in self.cells.timers}
        passes.run(due, lambda chunk: self._fire_chunk(chunk, fresh), _TIMER_KEYS)
        if self._goes_on("event"):
            self._fire_on(passes)
        for timer in self.cells.timers.values():
            timer.past_allowed = True

    def _goes_on(self, kind: TimeKind) -> bool:
        """Whether timers that timers set are due as well: the watermark won't move any more."""
        return kind == "event" and self.clock.at_end and kind in self.cells.timers

    def _fire_on(self, passes: Passes) -> None:
        """Input has ended: fire what timers have set, until they set no more.

        In the same epoch, so that whoever reads the results gets them all before its own end.
        """
        table, now = self.operator.process_tables.due["event"].table, self.clock.watermark_ms
        assert now is not None
        # Processing time goes on: its timers wait for it.
        fresh: dict[TimeKind, set[tuple[int, str]] | None] = {"event": None, "processing": set()}
        for _ in range(_MOST_ROUNDS):
            hints = [_between(hints, None, now) for hints in passes.last_hints(table)]
            due = self._keys_of([table for table in hints if table.num_rows])
            if due is None:
                return
            passes.settle()
            passes.run(due, lambda chunk: self._fire_chunk(chunk, fresh), _TIMER_KEYS)
        raise ProcessingError(
            f"input has ended, and timers of {self.operator.id!r} have set further timers "
            f"{_MOST_ROUNDS} times since",
            hint="set no timer again once ctx.input_ended (in a StatefulProcessor: once the watermark "
            f"is {now})",
        )

    def _due_keys(self, passes: Passes, within: HashRange) -> WorkKeys | None:
        """Keys that have, or had, a timer up to now: hints from before and from this epoch."""
        found: list[pa.Table] = []
        for kind, schema in self.operator.process_tables.due.items():
            now = self.clock.now(kind)
            if now is None:
                continue
            # Hints that are dead may be there or not, as merges go: none must be followed. What was due
            # in the epoch before has been looked at.
            before = self.clock.before(kind)
            hints = [_between(self.state.due(schema.table, now, within), before, now)]
            hints += [_between(fresh, None, now) for fresh in passes.hints(schema.table)]
            found += [table for table in hints if table.num_rows]
        return self._keys_of(found)

    def _keys_of(self, hints: list[pa.Table]) -> WorkKeys | None:
        """The keys of hints, each once; None if there are none."""
        if not hints:
            return None
        found = pa.concat_tables([table.drop_columns([HASH]) for table in hints])
        rows = sort_rows(found.combine_chunks(), len(self.operator.keys))
        work = self._work(rows, (), "")
        # Without rows.
        return WorkKeys(
            work.hashes, work.keys, work.rows.slice(0, 0), np.zeros(len(rows.starts) + 1, np.int64)
        )

    def _fresh(self, passes: Passes, kind: TimeKind) -> set[tuple[int, str]] | None:
        """If the clock stands still, the timers set in this epoch; only those can be due.

        Others that are due were set while timers fired: they wait until the clock moves.
        """
        now, before = self.clock.now(kind), self.clock.before(kind)
        if now is None or before is None or now > before:
            return None
        due = [
            _between(hints, None, now)
            for hints in passes.hints(self.operator.process_tables.due[kind].table)
        ]
        return {
            (ms, words)
            for hints in due
            for ms, words in zip(
                order_to_time(hash_values(hints)).tolist(), self._words(hints), strict=True
            )
        }

    def _words(self, rows: pa.Table) -> list[str]:
        # Not the values themselves: one NaN is not the other.
        return list(map(repr, python_rows(rows.select([name for name, _ in self.operator.keys]))))

    def _fire_chunk(
        self, chunk: Chunk, fresh: Mapping[TimeKind, set[tuple[int, str]] | None]
    ) -> ProgramOutput:
        due = []
        for kind, cell in self.cells.timers.items():
            now, only = self.clock.now(kind), fresh[kind]
            if now is None or (only is not None and not only):
                continue
            found = [
                DueTimer(ms, kind, i)
                for i, times in enumerate(cell.column)
                for ms in times or ()
                if ms <= now
            ]
            if only is not None:
                words = self._words(chunk.keys)
                found = [timer for timer in found if (timer.ms, words[timer.key]) in only]
            due += found
        ranks = _ranks(chunk.keys)
        due.sort(key=lambda timer: (timer.ms, ranks[timer.key], timer.kind))
        return self.running.timers(chunk, due)


def _between(hints: pa.Table, after: int | None, until: int) -> pa.Table:
    """The rows of a timed table after one time (if given) and up to another."""
    times = order_to_time(hash_values(hints))
    wanted = times <= until if after is None else (times <= until) & (times > after)
    return hints if wanted.all() else hints.filter(pa.array(wanted))


def _ranks(keys: pa.Table) -> list[int]:
    """The place of each key in the order of the keys themselves."""
    ranks = np.empty(keys.num_rows, np.int64)
    ranks[key_order(keys)] = np.arange(keys.num_rows)
    values: list[int] = ranks.tolist()
    return values
