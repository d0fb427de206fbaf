"""Timed tables: rows in the order of their times, of which a partition reads only what is due."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from holdfast.state.blocks import Block, OpenRun
from holdfast.state.columns import hash_values
from holdfast.state.hashing import Hashes, HashRange
from holdfast.state.schema import order_to_time, orders_after

__all__ = ["first_time"]


def first_time(segments: Sequence[tuple[OpenRun, HashRange]], after_ms: int | None) -> int | None:
    """The earliest time after this one of rows whose key hash lies in the segments' ranges."""
    times = orders_after(after_ms)
    if times is None:
        return None
    best: int | None = None
    for run, span in segments:
        best = _first_order(run, span, times.first, best)
    return None if best is None else int(order_to_time(np.array([best], np.uint64))[0])


def _first_order(run: OpenRun, span: HashRange, first: int, best: int | None) -> int | None:
    blocks = run.blocks
    for index in range(bisect_left(blocks, first, key=_last), len(blocks)):
        if best is not None and blocks[index].first >= best:
            return best
        batch = run.block(index)
        orders = hash_values(batch)
        start = int(orders.searchsorted(np.uint64(first)))
        keys: Hashes = batch.column(1).to_numpy()[start:]
        inside = (keys >= np.uint64(span.first)) & (keys <= np.uint64(span.last))
        place = int(inside.argmax()) if len(inside) else 0
        if len(inside) and inside[place]:
            found = int(orders[start + place])
            return found if best is None else min(found, best)
    return best


def _last(block: Block) -> int:
    return block.last
