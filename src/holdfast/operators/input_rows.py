"""Rows as they reach an operator that sees them whole: which columns they have, and which go aside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.base import Received
from holdfast.operators.event_time import LATE, EventTime, greatest_ms, part_late
from holdfast.state.schema import HASH

__all__ = [
    "CONTROL",
    "INITIAL",
    "SOURCE",
    "TAG",
    "Fields",
    "in_utc",
    "input_row_schema",
    "part_control",
    "receive_timed",
]

Fields = Sequence[tuple[str, pa.DataType]]

TAG = "_holdfast_tag"
"""The order of a row in its source."""
SOURCE = "_holdfast_source"
"""Which stream a row is of: 0 the main one, 1 the control stream, 2 the initial state."""
CONTROL = "_holdfast_control."
"""What the names of a control stream's columns begin with."""
INITIAL = "_holdfast_initial."
"""What the names of the initial state's columns begin with."""


def input_row_schema(
    keys: Fields, columns: Fields, *, control: Fields = (), initial: Fields = ()
) -> pa.Schema:
    """Hash, keys, order and source, then the columns of each stream that are not keys.

    >>> input_row_schema([("k", pa.string())], [("k", pa.string()), ("x", pa.int64())]).names
    ['_holdfast_hash', 'k', '_holdfast_tag', '_holdfast_source', 'x']
    """
    known = {name for name, _ in keys}
    fields = [pa.field(HASH, pa.uint64(), nullable=False)]
    fields += [pa.field(name, kind) for name, kind in keys]
    fields += [pa.field(TAG, pa.int64()), pa.field(SOURCE, pa.int8())]
    fields += [pa.field(name, kind) for name, kind in columns if name not in known]
    fields += [pa.field(CONTROL + name, kind) for name, kind in control]
    fields += [pa.field(INITIAL + name, kind) for name, kind in initial]
    return pa.schema(fields)


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same moments in types of UTC: Spark writes the session's zone into those of its batches.

    >>> there = pa.record_batch({"at": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))})
    >>> in_utc(there).schema.field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    schema = _utc_schema(batch.schema)
    return batch if schema is None else batch.cast(schema)


@lru_cache(maxsize=64)
def _utc_schema(schema: pa.Schema) -> pa.Schema | None:
    """The schema in types of UTC; None if it is that already."""
    made = pa.schema([_utc_field(field) for field in schema])
    return None if made.equals(schema.remove_metadata()) else made


def _utc_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _utc_type(field.type), field.nullable)


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_utc_field(field) for field in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_utc_field(kind.key_field), _utc_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_utc_field(kind.value_field))
    return kind


def part_control(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of the main stream, and those of the control stream."""
    is_control = pc.equal(rows.column(SOURCE), 1)
    return rows.filter(pc.invert(is_control)), rows.filter(is_control)


def receive_timed(
    rows: pa.Table, time: EventTime | None, watermark_ms: int | None, columns: Fields
) -> Received:
    """Note the greatest event time, and set late rows aside with these columns."""
    if time is None:
        return Received(rows)
    most = greatest_ms(rows, time.column)
    rows, late = part_late(rows, time, watermark_ms)
    sides = {}
    if late is not None:
        aside = late.select([name for name, _ in columns])
        sides[LATE] = aside.cast(pa.schema(columns))
    return Received(rows, sides, greatest_ms={} if most is None else {"main": most})
