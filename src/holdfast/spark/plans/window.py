"""Plan windows: which pane of time each row belongs to, and the operator that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.operators.aggregates.asked import Aggregate
from holdfast.operators.event_time import EventTime
from holdfast.operators.session.operator import SessionOperator
from holdfast.operators.window.operator import WindowOperator
from holdfast.operators.window.spec import (
    COUNT,
    PANE,
    TIME,
    GlobalWindow,
    SessionGap,
    Sliding,
    Tumbling,
    WindowSpec,
)
from holdfast.operators.window_function.operator import WindowFunctionOperator
from holdfast.spark.cluster.shipping import send_along
from holdfast.spark.plans.lift import AggregatePlan, Lifted, hash_and_keys, resolve_aggregates
from holdfast.spark.plans.rows import RowPlan, columns_of, resolve_keys
from holdfast.spark.plans.times import TimeBound, event_micros
from holdfast.spark.said import SaidStream, SaidWindows
from holdfast.spark.types import arrow_type
from holdfast.types import parse_schema

__all__ = ["plan_window", "plan_window_function"]


def plan_window(
    id: str,  # noqa: A002 - the operator's word for it
    windows: SaidWindows,
    aggregates: Mapping[str, Aggregate],
) -> AggregatePlan:
    """How rows reach a window, and its operator. Runs no Spark job."""
    source = windows.source
    lifted = resolve_aggregates(source.df, windows.keys, aggregates)
    operator = _operator(id, windows, lifted)
    micros = event_micros(source)
    pane = F.lit(0).cast("long") if micros is None else _pane(micros, windows.window)
    time = F.lit(None).cast("long") if micros is None else micros
    names = operator.input_schema.names[len(lifted.keys) + 4 :]
    rows = lifted.rows(names)
    groups = lifted.groups(names)
    keys = hash_and_keys(lifted.keys, None) if lifted.keys else (_no_hash(),)
    of_row = [time.alias(TIME), F.lit(1).cast("long").alias(COUNT)]
    of_group = [F.max(time).alias(TIME), F.count(F.lit(1)).alias(COUNT)]
    group_pane = bound = None
    if isinstance(operator, SessionOperator):
        of_row, of_group = [time.alias(PANE), *of_row], [F.min(time).alias(PANE), *of_group]
        bound = TimeBound(lambda clock: operator.late_us(clock) or 0)
        group_pane = _session_pane(time, operator.gap_ms, bound)
    else:
        keys = (*keys, pane.alias(PANE))
    return AggregatePlan(
        operator,
        keys,
        None if rows is None else (*of_row, *rows),
        (*of_group, *groups),
        condition=None if micros is None else micros.isNotNull(),
        pane=group_pane,
        bound=bound,
    )


def plan_window_function(
    id: str,  # noqa: A002
    windows: SaidWindows,
    function: Callable[[pa.Table], pa.Table],
    output: object,
) -> RowPlan:
    """How rows reach a window function, and its operator. Runs no Spark job."""
    source, window = windows.source, windows.window
    if isinstance(window, GlobalWindow) or source.watermark is None:
        raise InputError(
            "a window function is called when a window closes, and this one never does",
            hint="use hf.tumbling(...), hf.sliding(...) or hf.session(...)",
        )
    if windows.output_mode != "append" or windows.emit.is_early:
        raise InputError(
            "a window function is called once, when its window closes",
            hint="leave out output_mode= and early results, or use aggregate(...)",
        )
    send_along(function)
    keys = resolve_keys(source.df, windows.keys)
    columns = columns_of(source.df)
    operator = WindowFunctionOperator(
        id,
        [(key.name, key.type) for key in keys],
        window,
        columns,
        function,
        parse_schema(output),
        event_time=EventTime(source.watermark.column, source.watermark.lateness_ms),
        lateness_ms=source.lateness_ms,
    )
    return RowPlan(operator, tuple(keys), tuple(name for name, _ in columns))


def _operator(id: str, windows: SaidWindows, lifted: Lifted) -> WindowOperator | SessionOperator:  # noqa: A002
    source = windows.source
    keys = [(key.name, key.type) for key in lifted.keys]
    if isinstance(windows.window, SessionGap):
        return SessionOperator(
            id,
            keys,
            windows.window.gap_ms,
            lifted.specs,
            time_type=_time_type(source),
            emit=windows.emit,
            output_mode=windows.output_mode,
            lateness_ms=source.lateness_ms,
        )
    return WindowOperator(
        id,
        keys,
        windows.window,
        lifted.specs,
        time_type=_time_type(source),
        emit=windows.emit,
        output_mode=windows.output_mode,
        lateness_ms=source.lateness_ms,
    )


def _time_type(source: SaidStream) -> pa.DataType:
    if source.watermark is None:
        return pa.timestamp("us", "UTC")
    column = source.watermark.column
    return arrow_type(column, source.df.schema[column].dataType)


def _pane(micros: Column, window: WindowSpec) -> Column:
    if isinstance(window, Tumbling | Sliding):
        size, offset = window.pane_ms * 1000, window.offset_ms * 1000
        return micros - F.pmod(micros - F.lit(offset), F.lit(size))
    return F.lit(0).cast("long")


def _session_pane(micros: Column, gap_ms: int, bound: TimeBound) -> Column:
    """Rows of a key in one pane are in one session, and all of them or none are late."""
    since = micros - bound.column(micros) - F.lit(1)
    return since - F.pmod(since, F.lit(gap_ms * 1000))


def _no_hash() -> Column:
    from holdfast.state.schema import HASH

    return F.lit(0).cast("long").alias(HASH)
