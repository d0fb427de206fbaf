"""Rows of timed tables as plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.state.keys import sort_rows
from holdfast.state.schema import KEY_HASH, TableSchema, order_to_time, time_to_order
from tests.state.model import Hash, strong_hash


class Timer(NamedTuple):
    """Look at this user at this time."""

    time: int
    user: str | None


def timer_table(
    schema: TableSchema, timers: Iterable[Timer], hash_of: Hash = strong_hash
) -> pa.Table:
    """Sorted rows."""
    rows = list(timers)
    columns = [
        pa.array(time_to_order(np.array([t.time for t in rows], np.int64))),
        pa.array([hash_of((t.user,)) for t in rows], pa.uint64()),
        pa.array([t.user for t in rows], pa.string()),
    ]
    return sort_rows(pa.Table.from_arrays(columns, schema=schema.arrow), schema.sort_columns).table


def timer_rows(table: pa.Table) -> list[Timer]:
    """Rows in order; checks that they are sorted and that none comes twice."""
    times = order_to_time(table.column(0).to_numpy()).tolist()
    users = table.column("user").to_pylist()
    hashes = table.column(KEY_HASH).to_pylist()
    pairs = list(zip(times, hashes, strict=True))
    assert pairs == sorted(pairs)
    timers = [Timer(time, user) for time, user in zip(times, users, strict=True)]
    assert len(set(timers)) == len(timers)
    return timers
