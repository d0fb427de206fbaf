"""A process of a user's as a program of the simulator's, and the same process in peace.

Both run the operator that a stream would; they differ in all that is around it. Under faults real
tasks run it, which each get a copy of the process, as workers do; in peace it gets one epoch after
the other as a whole, in a fork of its own each, so that nothing but state goes from one to the next.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.time import Watermark
from holdfast.choices import TimeMode
from holdfast.errors import InputError
from holdfast.operators.base import Clock, Operator, Place, Update
from holdfast.operators.event_time import EventTime
from holdfast.operators.process.batch import BatchOperator, BatchProcess
from holdfast.operators.process.declare import declared_states
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram
from holdfast.operators.process.operator import ProcessOperator
from holdfast.operators.process.unkeyed import PartitionOperator, Process
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.keys import sort_rows
from holdfast.state.schema import HASH
from holdfast.testing.elsewhere import forked
from holdfast.testing.given import dicts_of, hashes_of, table_of
from holdfast.testing.memory_state import MemoryState
from holdfast.testing.simulation.lifting import Lift
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Outcome,
    Port,
    Program,
    Row,
    Stage,
    made,
)

__all__ = ["MAIN", "Trial", "TrialProgram", "in_peace"]

MAIN = "sink-0"
"""The sink of what is put out; a side output has one that is called ``side-`` and its name."""
_ID = "process"
_TAG_BITS = 33


@dataclass(frozen=True)
class Trial:
    """What a user wants to see under faults."""

    process: Any
    columns: pa.Schema
    keys: tuple[str, ...]
    rows: Sequence[Any] | Callable[[Random], Iterable[Any]]
    event_time: str | None = None
    delay_ms: int = 0
    allowed_lateness_ms: int = 0
    output: object = None
    time_mode: TimeMode = "None"
    pandas: bool = False

    @property
    def keyed(self) -> bool:
        """Whether rows go by keys: otherwise what comes of them depends on their partition."""
        return not isinstance(self.process, Process)

    def operator(self) -> Operator:
        """The operator of a stream that says ``process(…)``."""
        columns = [(field.name, field.type) for field in self.columns]
        keys = [(name, self.columns.field(name).type) for name in self.keys]
        process = self.process
        if isinstance(process, Process):
            return PartitionOperator(_ID, columns, process, output=self.output)
        time = self.event_time and EventTime(self.event_time, self.allowed_lateness_ms)
        if isinstance(process, BatchProcess):
            return BatchOperator(
                _ID, keys, columns, process, output=self.output, event_time=time or None
            )
        times = {"main": time} if time else None
        if isinstance(process, KeyedProcess):
            program = KeyedProgram(process, _timers(process, bool(time)), self.output)
            return ProcessOperator(_ID, keys, columns, program, event_time=times)
        from holdfast.spark.stateful.api import program_for_tests

        return ProcessOperator(
            _ID,
            keys,
            columns,
            program_for_tests(
                process, self.columns, self.keys, self.output, self.time_mode, self.pandas
            ),
            event_time=times,
            late_by="previous" if self.time_mode.lower() == "eventtime" else "never",
        )

    def check(self) -> None:
        """Raise if it is nothing that can be simulated."""
        process = self.process
        if isinstance(process, type):
            raise InputError(
                f"{process.__name__} is a class, not a process", hint=f"give {process.__name__}()"
            )
        base = KeyedProcess if isinstance(process, KeyedProcess) else Process
        code = getattr(type(process), "process_broadcast", None)
        if code is not None and code is not base.process_broadcast:
            raise InputError(
                f"{type(process).__name__} takes a control stream, which simulate() doesn't have",
                hint="test it with hf.testing.ProcessorTester(…, control_columns=…)",
            )
        if isinstance(process, KeyedProcess | BatchProcess) and self.event_time is None:
            for name, state in declared_states(type(process)).items():
                if state.ttl is not None and state.ttl.clock == "event":
                    raise InputError(
                        f"state {name!r} of {type(process).__name__} lives by event time",
                        hint="say which column that is: event_time=…",
                    )
        self.operator()


def _timers(process: KeyedProcess, has_event_time: bool) -> tuple[Any, ...]:
    if type(process).on_timer is KeyedProcess.on_timer:
        return ()
    return ("event", "processing") if has_event_time else ("processing",)


class TrialProgram(Program):
    """One run of a trial."""

    name: ClassVar[str] = "yours"

    def __init__(self, trial: Trial, seed: str, pieces: int) -> None:
        self.trial = trial
        operator = trial.operator()
        self._pieces: list[pa.Table] | None = None
        self._cut = seed, pieces
        if trial.event_time is not None:
            self.watermarks = {"main": Watermark(trial.delay_ms)}  # type: ignore[misc]
        time = "main" if trial.event_time is not None else None
        port = Port(_lift(operator, trial.keys), (Feed(0, time=time),))
        sinks = {MAIN: "", **{f"side-{name}": name for name in operator.side_schemas}}
        super().__init__([self._piece], [Stage(operator, (port,), sinks)])

    def _piece(self, number: int, rng: Random) -> pa.Table:
        """The rows come in their order, cut where the seed says."""
        del rng
        if self._pieces is None:
            seed, pieces = self._cut
            rows = rows_for(self.trial, seed)
            draw = Random(f"{seed}/pieces")  # noqa: S311
            ends = sorted(draw.randint(0, rows.num_rows) for _ in range(pieces - 1))
            cuts = [0, *ends, rows.num_rows]
            self._pieces = [rows.slice(first, end - first) for first, end in pairwise(cuts)]
        return self._pieces[number]

    def copies(self, operator: Operator) -> Callable[[], Operator]:
        """See :meth:`Program.copies`; classes of a test's own can't be pickled just so."""
        return partial(copy.deepcopy, operator)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """Not asked: what it comes to in peace is worked out elsewhere."""
        raise NotImplementedError

    def outcome(self, published: Mapping[str, Iterable[tuple[int, pa.Table]]]) -> Outcome:
        """See :meth:`Program.outcome`; epochs and sinks without rows are left out."""
        return outcome_of(
            {
                sink: [(e, row) for e, table in of for row in _rows(table)]
                for sink, of in published.items()
            }
        )

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[str, list[Row]]:
        """See :meth:`Program.state`."""
        return state_of(self.stages[0].operator, tables)


def outcome_of(rows: Mapping[str, Sequence[tuple[int, Row]]]) -> Outcome:
    """Rows by sink and epoch, of those that have any."""
    return made({sink: of for sink, of in rows.items() if of})


def _rows(table: pa.Table) -> list[Row]:
    """Rows as users know them."""
    return [tuple(row.items()) for row in dicts_of(table)]


def rows_for(trial: Trial, seed: str) -> pa.Table:
    """All rows of a run."""
    given = trial.rows
    if callable(given):
        given = list(given(Random(f"{seed}/rows")))  # noqa: S311
    return table_of(given, trial.columns, "row")


def _lift(operator: Operator, keys: Sequence[str]) -> Lift:
    schema = operator.input_schema
    columns = schema.names[len(keys) + 3 :]

    def lift(rows: pa.Table, part: int) -> pa.Table:
        count = rows.num_rows
        hashes = hashes_of(rows.select(keys)) if keys else np.zeros(count, np.uint64)
        arrays = [
            pa.array(hashes.view(np.int64)),
            *(rows.column(name) for name in keys),
            pa.array(np.arange(count, dtype=np.int64) + (part << _TAG_BITS)),
            pa.array(np.zeros(count, np.int8)),
            *(rows.column(name) for name in columns),
        ]
        return pa.Table.from_arrays(arrays, names=schema.names)

    return lift


def state_of(operator: Operator, tables: Mapping[str, pa.Table]) -> dict[str, list[Row]]:
    """What is in state, per table. What says when to look at which key may be there or not.

    Keys come first, then columns by name: a class that was pickled by value has its states in another
    order than the one that was written.
    """

    def columns(table: pa.Table) -> pa.Table:
        names = table.drop_columns([HASH]).column_names
        keys = operator.key_columns
        return table.select([*names[:keys], *sorted(names[keys:])])

    return {
        schema.table: sorted(_rows(columns(tables[schema.table])), key=repr)
        for schema in operator.tables
        if not schema.timed and schema.table in tables
    }


# ---- in peace


def in_peace(
    trial: Trial, program: TrialProgram, epochs: Sequence[EpochInput], *, apart: bool = True
) -> tuple[Outcome, dict[str, list[Row]]]:
    """What is put out, and the state in the end, if every epoch is run as a whole.

    Unless ``apart`` all epochs are run in this process, and each of them twice, as when a task is
    repeated: that differs if anything but state stays.
    """
    operator = trial.operator()
    state = MemoryState(operator.tables)
    out: dict[str, list[tuple[int, Row]]] = {sink: [] for sink in program.sinks}
    before: EpochRecord | None = None
    clock = None
    for epoch in epochs:
        record = epoch.record
        clock = Clock(
            record.epoch,
            record.processing_time_ms,
            record.watermark_ms,
            record.previous_watermark_ms,
            None if before is None else before.processing_time_ms,
            at_end=record.at_end,
        )
        state.clock = TableClock(record.processing_time_ms, record.expiry_ms)
        run = partial(_epoch, operator, program, state, clock, epoch.sources[0])
        if not apart:
            run()
        changes, puts = forked(run) if apart else run()
        state.apply(changes)
        for sink, (_, output) in program.sinks.items():
            out[sink] += [(record.epoch, row) for table in puts[output] for row in _rows(table)]
        before = record
    tables = {
        schema.table: pa.concat_tables([schema.arrow.empty_table(), *state.scan(schema.table)])
        for schema in operator.tables
    }
    return outcome_of(out), state_of(operator, tables)


def _epoch(
    operator: Operator, program: TrialProgram, state: MemoryState, clock: Clock, rows: pa.Table
) -> tuple[Mapping[str, pa.Table], dict[str, list[pa.Table]]]:
    lifted = program.lift(_ID, 0, rows)
    lifted = pa.Table.from_arrays(
        [lifted.column(0).cast(pa.uint64(), safe=False), *lifted.columns[1:]],
        schema=operator.input_schema,
    )
    received = operator.receive(lifted.combine_chunks(), clock)
    session = operator.open(state, clock, Place(0, 1, FULL_RANGE))
    try:
        given = sort_rows(received.rows, operator.key_columns)
        update: Update = session.update(given, FULL_RANGE)
    finally:
        session.close()
    puts: dict[str, list[pa.Table]] = {output: [] for _, output in program.sinks.values()}
    puts[""].append(update.output)
    for sides in (received.sides, update.sides):
        for name, table in sides.items():
            puts[name].append(table)
    return update.changes, puts
