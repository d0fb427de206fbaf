"""Plan user code on streams: resolve keys, columns and event times, and make the operator."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampNTZType, TimestampType

from holdfast.choices import TimeKind
from holdfast.errors import InputError
from holdfast.operators.event_time import EventTime
from holdfast.operators.input_rows import CONTROL, INITIAL, Fields
from holdfast.operators.process.batch import BatchOperator, BatchProcess
from holdfast.operators.process.declare import declared_states
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram
from holdfast.operators.process.operator import ProcessOperator
from holdfast.operators.process.unkeyed import PartitionOperator, Process
from holdfast.spark.cluster.shipping import send_along
from holdfast.spark.flow.branch import WatermarkSpec
from holdfast.spark.plans.resolve import Resolved
from holdfast.spark.plans.rows import RowPlan, columns_of, resolve_keys
from holdfast.spark.said import SaidKeyed, SaidStream

__all__ = [
    "check_event_time",
    "event_times",
    "plan_process",
    "plan_unkeyed",
]


def check_event_time(df: DataFrame, column: str) -> None:
    """Raise unless the column can say when something happened."""
    if column not in df.columns:
        raise InputError(
            f"the watermark names column {column!r}, which the input doesn't have",
            hint=f"choose one of: {', '.join(df.columns)}",
        )
    kind = df.schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise InputError(
            f"the watermark column {column!r} is of type {kind.simpleString()}, not a timestamp",
            hint=f"convert it first, for example F.to_timestamp('{column}')",
        )


def event_times(main: SaidStream, control: SaidStream | None) -> dict[str, EventTime]:
    """The event-time column of each source that has a watermark."""
    given: dict[str, WatermarkSpec | None] = {"main": main.watermark}
    if control is not None:
        given["control"] = control.watermark
    return {
        source: EventTime(spec.column, spec.lateness_ms) for source, spec in given.items() if spec
    }


def plan_process(
    id: str,  # noqa: A002 - the operator's word for it
    keyed: SaidKeyed,
    process: KeyedProcess | BatchProcess,
    output: object = None,
    control: SaidStream | None = None,
) -> RowPlan:
    """How rows reach a process, and the operator that runs it. Runs no Spark job."""
    send_along(process)
    main = keyed.source
    keys = resolve_keys(main.df, keyed.keys)
    columns = columns_of(main.df)
    times = event_times(main, control)
    _check_names(keys, columns)
    if not times:
        _check_no_event_time(type(process))
    if isinstance(process, BatchProcess):
        batch = BatchOperator(
            id,
            _typed(keys),
            columns,
            process,
            output=output,
            event_time=times.get("main"),
        )
        return RowPlan(batch, tuple(keys), tuple(name for name, _ in columns))
    if not isinstance(process, KeyedProcess):
        raise InputError(
            f"{process!r} is no process",
            hint="give an instance of a class derived from hf.KeyedProcess or hf.BatchProcess",
        )
    program = KeyedProgram(process, _timer_kinds(process, bool(times)), output)
    _check_broadcast(program, control)
    operator = ProcessOperator(
        id,
        _typed(keys),
        columns,
        program,
        event_time=times,
        control=None if control is None else columns_of(control.df),
        broadcast=program.broadcast,
    )
    return RowPlan(
        operator,
        tuple(keys),
        tuple(name for name, _ in columns),
        None if control is None else tuple(control.df.columns),
    )


def plan_unkeyed(
    id: str,  # noqa: A002
    main: SaidStream,
    process: Process,
    output: object = None,
    control: SaidStream | None = None,
) -> RowPlan:
    """How rows reach a process without a key, and its operator. Runs no Spark job."""
    if not isinstance(process, Process):
        raise InputError(
            f"{process!r} is no process without a key",
            hint="give an instance of a class derived from hf.Process, or key_by first",
        )
    send_along(process)
    columns = columns_of(main.df)
    _check_names((), columns)
    operator = PartitionOperator(
        id,
        columns,
        process,
        output=output,
        control=None if control is None else columns_of(control.df),
    )
    has_code = type(process).process_broadcast is not Process.process_broadcast
    _check_connected(type(process), has_code, bool(operator.broadcast), control)
    names = tuple(name for name, _ in columns)
    return RowPlan(operator, (), names, None if control is None else tuple(control.df.columns))


def _timer_kinds(process: KeyedProcess, has_event_time: bool) -> tuple[TimeKind, ...]:
    if type(process).on_timer is KeyedProcess.on_timer:
        return ()
    return ("event", "processing") if has_event_time else ("processing",)


def _check_no_event_time(owner: type) -> None:
    for name, state in declared_states(owner).items():
        if state.ttl is not None and state.ttl.clock == "event":
            raise InputError(
                f"state {name!r} of {owner.__name__} lives by event time, but the stream has no "
                "watermark",
                hint='say stream.with_watermark("ts", "10 minutes") before key_by, or let it live '
                'by ttl_clock="processing"',
            )


def _typed(keys: Sequence[Resolved]) -> list[tuple[str, pa.DataType]]:
    return [(key.name, key.type) for key in keys]


def _check_names(keys: Sequence[Resolved], columns: Fields) -> None:
    types = dict(columns)
    for key in keys:
        if key.name in types and types[key.name] != key.type:
            raise InputError(
                f"the key {key.name!r} has the name of a column of another type",
                hint="give the key expression an alias of its own",
            )
    for name, _ in columns:
        if name.startswith((CONTROL, INITIAL, "_holdfast")):
            raise InputError(f"a column can't be named {name!r}", hint="rename it")


def _check_broadcast(program: KeyedProgram, control: SaidStream | None) -> None:
    owner = type(program.process)
    has_code = owner.process_broadcast is not KeyedProcess.process_broadcast
    _check_connected(owner, has_code, bool(program.broadcast), control)


def _check_connected(
    owner: type, has_code: bool, has_state: bool, control: SaidStream | None
) -> None:
    if control is None and (has_code or has_state):
        raise InputError(
            f"{owner.__name__} has broadcast state, but no control stream is connected",
            hint="say key_by(…).connect(control).broadcast(process)",
        )
    if control is not None and not has_code:
        raise InputError(
            f"{owner.__name__} has no process_broadcast for the rows of the control stream",
            hint="define process_broadcast(self, rows, ctx)",
        )
