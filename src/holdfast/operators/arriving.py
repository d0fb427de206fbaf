"""Rows as they reach an operator that sees them whole: which columns they have, and which go aside."""

from __future__ import annotations

from collections.abc import Sequence

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
    "arriving_schema",
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


def arriving_schema(
    keys: Fields, columns: Fields, *, control: Fields = (), initial: Fields = ()
) -> pa.Schema:
    """Hash, keys, order and source, then the columns of each stream that are not keys.

    >>> arriving_schema([("k", pa.string())], [("k", pa.string()), ("x", pa.int64())]).names
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
