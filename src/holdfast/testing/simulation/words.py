"""Random input: few keys, of which some come often, and times that mostly grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

__all__ = ["EVENT_ZERO_MS", "TIME", "key_of", "some", "table", "time_us"]

TIME = pa.timestamp("us", "UTC")
EVENT_ZERO_MS = 1_000_000
"""The event time at which the first micro-batch begins, about."""
_BATCH_MS = 1_000


def some(rng: Random) -> range:
    """The places of a micro-batch's rows: mostly a few, now and then none or many."""
    kind = rng.random()
    if kind < 0.12:
        return range(0)
    return range(rng.randrange(20, 31) if kind < 0.2 else rng.randrange(1, 21))


def key_of(rng: Random, keys: Sequence[Any]) -> Any:
    """One of some keys; the first ones come more often."""
    return keys[int(rng.random() ** 2 * len(keys))]


def time_us(rng: Random, batch: int) -> int:
    """When something in a micro-batch happened: now and then long before, or to the millisecond."""
    ms = EVENT_ZERO_MS + batch * _BATCH_MS + rng.randrange(1500)
    if rng.random() < 0.15:
        ms -= rng.randrange(8_000)
    return ms * 1000 + (rng.randrange(1000) if rng.random() < 0.5 else 0)


def table(columns: Mapping[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    """Columns by name, each with its type and values."""
    fields = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    return pa.Table.from_arrays([pa.array(v, k) for k, v in columns.values()], schema=fields)
