"""Expiry: values that are over by a clock read as null, and rows without any other value are gone.

A table's clock is that of a version (invariant 4): nothing here knows what time it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.schema import ClockName, TableSchema

__all__ = ["Expired", "TableClock", "expire"]

Mask = npt.NDArray[np.bool_]


class TableClock(msgspec.Struct, frozen=True):
    """The times that a version's state is seen at, in ms."""

    processing_ms: int
    watermark_ms: int | None = None
    """None while there is no watermark: then nothing expires by event time."""

    def behind(self, ms: int) -> TableClock:
        """The clock of a table whose event time is so far behind the pipeline's.

        >>> TableClock(9, 100).behind(40).watermark_ms
        60
        """
        if not ms or self.watermark_ms is None:
            return self
        return TableClock(self.processing_ms, self.watermark_ms - ms)

    def now(self, clock: ClockName) -> int | None:
        """The time of one of the clocks, if it has any."""
        return self.processing_ms if clock == "processing" else self.watermark_ms


class Expired(NamedTuple):
    """Rows of which some value has expired."""

    values: list[pa.Array]
    """The value columns, with null for what has expired and for its expiry."""
    dead: Mask
    """Rows that are gone: a value has expired, and now all are null."""


def expire(
    schema: TableSchema, values: Sequence[pa.Array], clock: TableClock | None
) -> Expired | None:
    """Apply a clock to the value columns of some rows; None if nothing has expired.

    >>> from holdfast.state.schema import Column
    >>> n, until = Column(2, "n", pa.int64(), 3, "processing"), Column(3, "n.expires", pa.int64())
    >>> schema = TableSchema("t", (Column(1, "k", pa.string()),), (n, until))
    >>> rows = expire(schema, [pa.array([7, 8, 9]), pa.array([50, 51, None])], TableClock(50))
    >>> rows.values[0].to_pylist(), rows.dead.tolist()
    ([None, 8, 9], [True, False, False])
    """
    if clock is None:
        return None
    masks = _expired_by_column(schema, values, clock)
    if not masks:
        return None
    left = [
        _without(array, masks[place]) if place in masks else array
        for place, array in enumerate(values)
    ]
    dead = np.logical_or.reduce(list(masks.values()))
    for array in left:
        dead &= array.is_null().to_numpy(zero_copy_only=False)
    return Expired(left, dead)


def _expired_by_column(
    schema: TableSchema, values: Sequence[pa.Array], clock: TableClock
) -> dict[int, Mask]:
    places = {column.id: place for place, column in enumerate(schema.values)}
    masks: dict[int, Mask] = {}
    for place, column in enumerate(schema.values):
        if column.expires is None or column.clock is None:
            continue
        now = clock.now(column.clock)
        times = places[column.expires]
        if now is None:
            continue
        over = _at_or_before(values[times], now)
        if over.any():
            for each in (place, times):
                masks[each] = masks[each] | over if each in masks else over
    return masks


def _at_or_before(times: pa.Array, now: int) -> Mask:
    if not times.null_count:
        passed: Mask = times.to_numpy() <= now
        return passed
    known: Mask = pc.less_equal(times, now).fill_null(False).to_numpy(zero_copy_only=False)
    return known


def _without(array: pa.Array, gone: Mask) -> pa.Array:
    """The same values with null for those gone; taking by null indices does it for any type."""
    return array.take(pa.array(np.arange(len(array)), mask=gone))
