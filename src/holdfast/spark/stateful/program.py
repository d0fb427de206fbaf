"""The program that runs a ``StatefulProcessor``: which of its methods is called when, and with what.

The order is PySpark's: per task ``init``; initial state, in the first epoch; ``handleInputRows`` per
key; ``handleExpiredTimer`` for what is due, by time, then key; ``close``. The driver runs ``init`` and
``close`` once, on a copy, to learn what is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    TimerValues,
)

from holdfast.choices import TimeKind
from holdfast.operators.base import Clock, Place
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.declare import State
from holdfast.operators.process.program import (
    Chunk,
    DueTimer,
    Program,
    ProgramOutput,
    RunningProgram,
    user_error,
)
from holdfast.spark.stateful.errors import old_event_time
from holdfast.spark.stateful.handle import DriverHandle, TaskHandle, TimeMode
from holdfast.spark.stateful.rows import RowForm
from holdfast.spark.stateful.values import decoder, row_maker
from holdfast.spark.stateful.variables import StateVariable
from holdfast.state.text import python_rows, python_values

__all__ = ["Declared", "StatefulProgram", "discover"]

_TIMER_KINDS: dict[TimeMode, tuple[TimeKind, ...]] = {
    "NoTime": (),
    "ProcessingTime": ("processing",),
    "EventTime": ("event",),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """What ``init`` declared, and what it had deleted."""

    variables: Mapping[str, StateVariable]
    deleted: frozenset[str]


def discover(processor: StatefulProcessor, mode: TimeMode) -> Declared:
    """Run ``init`` and ``close`` on a copy of the processor, as the driver of PySpark does."""
    copied: StatefulProcessor = cloudpickle.loads(cloudpickle.dumps(processor))  # type: ignore[no-untyped-call]
    handle = DriverHandle(mode)
    copied.init(handle)
    copied.close()
    return Declared(dict(handle.variables), frozenset(handle.deleted))


class StatefulProgram(Program):
    """Runs a ``StatefulProcessor``."""

    side_schemas: Mapping[str, pa.Schema] = {}

    def __init__(
        self,
        processor: StatefulProcessor,
        declared: Declared,
        keys: Sequence[str],
        output: pa.Schema,
        mode: TimeMode,
        *,
        pandas: bool,
        zone: str = "UTC",
        frame_rows: int = 10_000,
        event_time: str | None = None,
        batch: bool = False,
    ) -> None:
        self.processor, self.mode, self.pandas = processor, mode, pandas
        self.zone, self.frame_rows, self.batch = zone, frame_rows, batch
        self.event_time = event_time
        """The output column that is the next operator's event time."""
        self.declared, self.deleted = declared, declared.deleted
        kept = {
            name: variable
            for name, variable in declared.variables.items()
            if name not in declared.deleted
        }
        self.held_as = {name: variable.held_as(keys) for name, variable in kept.items()}
        self.states: tuple[State, ...] = tuple(v.state(keys) for v in kept.values())
        self.timer_kinds = _TIMER_KINDS[mode]
        self.output_schema = output

    def describe(self) -> str:
        """The kind of program and its time; Row or pandas makes no difference to its state."""
        return f"transformWithState in {self.mode}"

    @property
    def code(self) -> object:
        """The processor."""
        return self.processor

    def times(self, clock: Clock) -> Clock:
        """Spark's watermark begins at 0: what is due, or late, by then is so in the first epoch."""
        if self.mode != "EventTime" or self.batch:
            return clock
        return msgspec.structs.replace(
            clock,
            watermark_ms=max(clock.watermark_ms or 0, 0),
            previous_watermark_ms=max(clock.previous_watermark_ms or 0, 0),
        )

    def open(self, cells: Cells, clock: Clock, place: Place) -> RunningProgram:
        """Run ``init`` for one task."""
        del place
        return _RunningStateful(self, cells, clock)


class _RowForm(Protocol):
    """How keys and rows look to the processor, and what it puts out."""

    def keys(self, chunk: Chunk) -> list[tuple[Any, ...]]: ...

    def inputs(self, chunk: Chunk) -> Iterator[Iterator[Any]]: ...

    def initial(self, chunk: Chunk) -> Iterator[Iterator[Any]]: ...

    def put_out(self, rows: Any, key: int) -> None: ...

    def output(self, chunk: Chunk) -> pa.Table: ...


def _form(program: StatefulProgram, epoch: int) -> _RowForm:
    author = program.processor
    if not program.pandas:
        return RowForm(program.output_schema, program.zone, author, epoch)
    # Only here, so that Rows don't wait for pandas to be imported.
    from holdfast.spark.stateful.frames import FrameForm

    return FrameForm(program.output_schema, program.zone, program.frame_rows, author, epoch)


class _RunningStateful(RunningProgram):
    def __init__(self, program: StatefulProgram, cells: Cells, clock: Clock) -> None:
        self._program, self._cells, self._clock = program, cells, clock
        self._processor = program.processor
        self._form = _form(program, clock.epoch)
        self._times = _timer_values(program, clock)
        self._handle = TaskHandle(program.mode, program.declared.variables, program.held_as, cells)
        self._failed = False
        self._guarded("init", lambda: self._processor.init(self._handle), None, 0)
        self._handle.phase = "INITIALIZED"

    def initial(self, chunk: Chunk) -> ProgramOutput:
        handle, times = self._processor.handleInitialState, self._times
        cursor = self._cells.cursor
        i = 0

        def run() -> None:
            nonlocal i
            self._handle.keys = keys = self._form.keys(chunk)
            pairs = zip(keys, self._form.initial(chunk), strict=True)
            for i, (key, states) in enumerate(pairs):
                cursor.i = i
                for state in states:
                    handle(key, state, times)

        self._guarded("handleInitialState", run, chunk, lambda: i)
        return ProgramOutput(self._form.output(chunk))

    def rows(self, chunk: Chunk) -> ProgramOutput:
        handle, times, put_out = self._processor.handleInputRows, self._times, self._form.put_out
        cursor = self._cells.cursor
        i = 0

        def run() -> None:
            nonlocal i
            self._handle.keys = keys = self._form.keys(chunk)
            pairs = zip(keys, self._form.inputs(chunk), strict=True)
            for i, (key, rows) in enumerate(pairs):
                cursor.i = i
                put_out(handle(key, rows, times), i)

        self._guarded("handleInputRows", run, chunk, lambda: i)
        return self._result(chunk)

    def timers(self, chunk: Chunk, due: Sequence[DueTimer]) -> ProgramOutput:
        self._handle.phase = "DATA_PROCESSED"
        self._handle.keys = keys = _timer_keys(chunk.keys)
        cells, put_out = self._cells, self._form.put_out
        i = 0

        def run() -> None:
            nonlocal i
            for timer in due:
                i = cells.cursor.i = timer.key
                rows = self._processor.handleExpiredTimer(
                    key=keys[i],
                    timerValues=self._times,
                    expiredTimerInfo=ExpiredTimerInfo(timer.ms),
                )
                put_out(rows, i)
                # Only now: its own code still sees it, and registering it anew is too early.
                cells.timers[timer.kind].remove(i, timer.ms)

        self._guarded("handleExpiredTimer", run, chunk, lambda: i)
        self._handle.phase = "INITIALIZED"
        return self._result(chunk)

    def close(self) -> None:
        # PySpark closes only what has come to its end.
        if not self._failed:
            self._handle.phase = "TIMER_PROCESSED"
            self._guarded("close", self._processor.close, None, 0)
        self._handle.phase = "CLOSED"

    def _result(self, chunk: Chunk) -> ProgramOutput:
        try:
            output = self._form.output(chunk)
            self._check_event_time(output)
        except Exception:
            self._failed = True
            raise
        return ProgramOutput(output)

    def _check_event_time(self, output: pa.Table) -> None:
        # Once input has ended all times are before the watermark, and none is too late.
        clock = self._clock
        watermark = clock.previous_watermark_ms if clock.at_end else clock.watermark_ms
        column = self._program.event_time
        if column is None or watermark is None or not output.num_rows:
            return
        first = pc.min(output.column(column).cast(pa.timestamp("us"), safe=False)).value
        if first is not None and first // 1000 <= watermark:
            where = f"of {type(self._processor).__name__} in epoch {self._clock.epoch}"
            raise old_event_time(first // 1000, watermark, where)

    def _guarded(self, what: str, run: Callable[[], None], chunk: Chunk | None, place: Any) -> None:
        try:
            run()
        except Exception as error:
            self._failed = True
            name = f"{type(self._processor).__name__}.{what}"
            key = {} if chunk is None else python_rows(chunk.keys.slice(place(), 1))[0]
            raise user_error(error, name, key, self._clock.epoch) from error


def _timer_values(program: StatefulProgram, clock: Clock) -> TimerValues:
    if program.mode == "NoTime":
        return TimerValues(-1, -1)
    if program.batch:
        return TimerValues(clock.processing_time_ms, -1)
    return TimerValues(clock.processing_time_ms, clock.watermark_ms or 0)


def _timer_keys(keys: pa.Table) -> list[Row]:
    """Keys as they come back from state: Rows, in both forms."""
    row = row_maker(tuple(keys.column_names))
    decoders = [decoder(field.type) for field in keys.schema]
    columns = [
        column if decode is None else [None if v is None else decode(v) for v in column]
        for column, decode in zip(map(python_values, keys.columns), decoders, strict=True)
    ]
    return [row(values) for values in zip(*columns, strict=True)]
