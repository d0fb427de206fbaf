"""When rows happened: the greatest event time among them, and which of them come too late."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.columns import one_array

__all__ = ["LATE", "EventTime", "greatest_ms", "milliseconds", "part_late"]

LATE = "late"
"""The side output that late rows go to."""
_MICROS = 1000


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column of a source says when something happened."""

    column: str
    allowed_lateness_ms: int = 0


def milliseconds(times: pa.ChunkedArray | pa.Array, *, up: bool = False) -> pa.Array:
    """Times in µs as ms, rounded down, or up: only then has a watermark in ms passed them.

    >>> milliseconds(pa.array([1500, None]).cast(pa.timestamp("us")), up=True).to_pylist()
    [2, None]
    """
    micros = one_array(times).cast(pa.int64())
    values = micros.fill_null(0).to_numpy()
    ms = -(-values // _MICROS) if up else values // _MICROS
    return pa.array(ms, mask=micros.is_null().to_numpy(zero_copy_only=False))


def greatest_ms(rows: pa.Table, column: str) -> int | None:
    """The greatest event time among rows; None if there is none."""
    most: int | None = pc.max(milliseconds(rows.column(column))).as_py() if rows.num_rows else None
    return most


def part_late(
    rows: pa.Table, time: EventTime, watermark_ms: int | None
) -> tuple[pa.Table, pa.Table | None]:
    """Rows that are not late, and those that are: at or before the watermark less what is allowed."""
    if watermark_ms is None or not rows.num_rows:
        return rows, None
    bound = pa.scalar(watermark_ms - time.allowed_lateness_ms, pa.int64())
    late = pc.less_equal(milliseconds(rows.column(time.column), up=True), bound)
    late = pc.fill_null(late, False)
    if not late.true_count:
        return rows, None
    return rows.filter(pc.invert(late)), rows.filter(late)
