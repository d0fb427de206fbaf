"""``transformWithState`` with PySpark's own arguments: checked, and made a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from holdfast.errors import InputError
from holdfast.operators.event_time import EventTime
from holdfast.operators.process.operator import ProcessOperator
from holdfast.spark.cluster.shipping import send_along
from holdfast.spark.jvm.columns import grouped_frame, grouping_columns
from holdfast.spark.plans.resolve import Resolved
from holdfast.spark.plans.rows import RowPlan, columns_of, resolve_keys
from holdfast.spark.stateful.errors import (
    event_time_without_watermark,
    schema_not_nullable,
    unknown_output_mode,
    unresolved_column,
)
from holdfast.spark.stateful.handle import parse_time_mode
from holdfast.spark.stateful.program import Declared, StatefulProgram, discover
from holdfast.types import parse_schema, type_words

if TYPE_CHECKING:
    from pyspark.sql import GroupedData

    from holdfast.operators.process.program import Program

__all__ = ["TransformWithState", "plan_stateful", "program_for_tests", "spark_watermark"]

_DELAY = "spark.watermarkDelayMs"
_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"


@dataclass(frozen=True)
class TransformWithState:
    """The arguments of PySpark's ``transformWithState`` and ``transformWithStateInPandas``."""

    processor: StatefulProcessor
    output: object
    output_mode: str
    time_mode: str
    initial_state: GroupedData | None = None
    event_time_column: str = ""
    pandas: bool = False

    @cached_property
    def declared(self) -> Declared:
        """What the processor declares; its ``init`` and ``close`` run once, whoever asks."""
        _check_processor(self.processor)
        return discover(self.processor, parse_time_mode(self.time_mode))


def spark_watermark(df: DataFrame) -> tuple[str, int] | None:
    """The column and delay (in ms) that ``df.withWatermark`` was given, if it was called."""
    for field in df.schema.fields:
        delay = field.metadata.get(_DELAY)
        if delay is not None:
            return field.name, int(delay)
    return None


def plan_stateful(
    df: DataFrame,
    keys: Sequence[str | Column],
    call: TransformWithState,
    event_time: EventTime | None = None,
    *,
    batch: bool = False,
    id: str = "process",  # noqa: A002 - the operator's word for it
) -> RowPlan:
    """How rows reach a ``StatefulProcessor``, and the operator that runs it.

    ``event_time`` is the watermark's column. Runs no Spark job, but the processor's ``init`` and
    ``close``, once each.
    """
    _check_processor(call.processor)
    if not keys:
        raise InputError(
            f"{type(call.processor).__name__} needs keys, and groupBy() names no column",
            hint="name one; for one state over all rows group by a constant, "
            "groupBy(F.lit(0).alias('all'))",
        )
    send_along(call.processor)
    mode = parse_time_mode(call.time_mode)
    if str(call.output_mode).lower() not in ("append", "update"):
        raise unknown_output_mode(str(call.output_mode))
    output = parse_schema(call.output)
    _check_event_time(call.event_time_column, output, event_time)
    resolved = resolve_keys(df, keys)
    typed = [(key.name, key.type) for key in resolved]
    conf = df.sparkSession.conf
    frame_rows = int(conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0)
    if str(conf.get(_ENCODING, "unsaferow")).lower() == "avro":
        _check_nullable(call.declared)
    program = StatefulProgram(
        call.processor,
        call.declared,
        [key.name for key in resolved],
        output,
        mode,
        pandas=call.pandas,
        zone=conf.get("spark.sql.session.timeZone") or "UTC",
        frame_rows=frame_rows if frame_rows > 0 else 2**31 - 1,
        event_time=call.event_time_column or None,
        batch=batch,
    )
    columns = columns_of(df)
    initial, initial_keys = _initial(call.initial_state, resolved)
    operator = ProcessOperator(
        id,
        typed,
        columns,
        program,
        event_time=None if event_time is None else {"main": event_time},
        initial=None if initial is None else columns_of(initial),
        # As in PySpark: rows are late by the watermark of the batch before, and only in event time.
        late_by="previous" if mode == "EventTime" else "never",
    )
    return RowPlan(
        operator,
        tuple(resolved),
        tuple(name for name, _ in columns),
        initial=initial,
        initial_keys=tuple(initial_keys),
    )


def program_for_tests(
    processor: Any,
    schema: pa.Schema,
    keys: Sequence[str],
    output: object,
    time_mode: str,
    pandas: bool,
) -> Program:
    """The program of a processor that runs without Spark."""
    del schema
    _check_processor(processor)
    if output is None:
        raise InputError(
            f"{type(processor).__name__} doesn't say which columns it puts out",
            hint='give them: output="id string, count long"',
        )
    mode = parse_time_mode(time_mode)
    declared = discover(processor, mode)
    return StatefulProgram(processor, declared, keys, parse_schema(output), mode, pandas=pandas)


def _check_processor(processor: object) -> None:
    if not isinstance(processor, StatefulProcessor):
        raise InputError(
            f"{processor!r} is no StatefulProcessor",
            hint="give an instance of a class derived from pyspark.sql.streaming.StatefulProcessor; "
            "for a KeyedProcess say key_by(…).process(…)",
        )


def _check_nullable(declared: Declared) -> None:
    """Refuse what Spark refuses with this encoding; with the other it takes such fields."""
    for name, variable in declared.variables.items():
        if any(len(path) == 1 for path in (*variable.required, *variable.key_required)):
            raise schema_not_nullable(name, variable.words())


def _check_event_time(column: str, output: pa.Schema, event_time: EventTime | None) -> None:
    if not column:
        return
    if column not in output.names:
        raise unresolved_column(column, output.names)
    if event_time is None:
        raise event_time_without_watermark()
    if not pa.types.is_timestamp(output.field(column).type):
        raise InputError(
            f"eventTimeColumnName names {column!r}, which is "
            f"{type_words(output.field(column).type)} and no timestamp",
            hint="declare it as timestamp in outputStructType",
        )


def _initial(
    grouped: GroupedData | None, keys: Sequence[Resolved]
) -> tuple[DataFrame | None, list[Resolved]]:
    """The rows of the initial state, and what they are grouped by."""
    if grouped is None:
        return None, []
    df = grouped_frame(grouped)
    if df is None or df.isStreaming:
        raise InputError(
            "initialState is no grouped batch DataFrame",
            hint='give one that is grouped by the same keys: states.groupBy("id")',
        )
    found = resolve_keys(df, [_known(*column) for column in grouping_columns(grouped)])
    if [key.type for key in found] != [key.type for key in keys]:
        raise InputError(
            "initialState is grouped by "
            + ", ".join(f"{key.name} {type_words(key.type)}" for key in found)
            + ", the stream by "
            + ", ".join(f"{key.name} {type_words(key.type)}" for key in keys),
            hint="group both by columns of the same types, in the same order",
        )
    return df, found


def _known(name: str | None, words: str) -> str:
    if name is None:
        raise InputError(
            f"initialState is grouped by {words}, which is no column",
            hint="compute it as a column first",
        )
    return name
