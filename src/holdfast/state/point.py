"""Looking up a single key: without the arrays that a look-up of many is made of.

Reading an entry of a large map is one such look-up per access, so what it costs is what counts:
rows are found by bisection and given as slices of the run's own memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.state.columns import equal, hash_values
from holdfast.state.search import SearchPart, guess_place

__all__ = ["RowPlace", "find_one"]

# Keys share a hash by accident only: two or three are compared one by one, more by a real search.
_FEW_KEYS = 8


class RowPlace(NamedTuple):
    """Where a row lies in a run."""

    batch: pa.RecordBatch
    row: int


def find_one(part: SearchPart, value: int, keys: Sequence[pa.Array]) -> RowPlace | None:
    """The row that has this hash and these keys (arrays of one value), or the first of them."""
    index = bisect_left(part.bounds, value)
    if (
        index == len(part.bounds)
        or int(part.firsts[index]) > value
        or int(part.lasts[index]) < value
    ):
        return None
    batch = part.run.block(index)
    hashes = hash_values(batch)
    wanted = np.uint64(value)
    row = guess_place(hashes, value, wanted)
    block_keys = part.layout.key_arrays(batch)[: len(keys)]
    for place in range(row, min(row + _FEW_KEYS, len(hashes))):
        if hashes[place] != wanted:
            return None
        if _same(block_keys, place, keys):
            return RowPlace(batch, place)
    for hit in part.search(np.array([value], np.uint64), keys, np.zeros(1, np.int64)):
        return RowPlace(hit.batch, int(hit.rows[0]))
    return None


def _same(block_keys: Sequence[pa.Array], place: int, keys: Sequence[pa.Array]) -> bool:
    for ours, key in zip(block_keys, keys, strict=True):
        value = ours.slice(place, 1)
        # Equal bytes are equal keys. NaN differs from itself here, but not as a key.
        if not value.equals(key) and not equal(value, key)[0]:
            return False
    return True
