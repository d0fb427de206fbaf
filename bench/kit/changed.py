"""The bytes that checkpoints must store at least: every changed row once, compressed.

Computed from the input alone, so that whatever Holdfast stores beyond what changed shows in the
ratio: for each checkpoint the keys of its epochs, each with its count and sum so far, sorted by
hash and encoded as a stored run is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from bench.kit.data import Dataset, epoch_amounts, epoch_ids, words

__all__ = ["ChangedRows", "changed_bytes", "spark_hashes"]

# Spark's xxhash64 of a string is xxh64 of its bytes with this seed.
_SPARK_SEED = 42
_CHUNK = 1 << 17


def spark_hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """The key hash of each string, as the JVM computes it."""
    hashes = np.empty(len(keys), np.uint64)
    for begin in range(0, len(keys), _CHUNK):
        part = keys.slice(begin, _CHUNK).cast(pa.binary()).to_pylist()
        hashes[begin : begin + len(part)] = [
            xxhash.xxh64_intdigest(key, _SPARK_SEED) for key in part
        ]
    return hashes


class ChangedRows:
    """Counts and sums per key, and which keys changed since they were last asked for."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._words = words(np.arange(dataset.keys))
        self._hashes = spark_hashes(self._words)
        self._order = np.argsort(self._hashes)
        self._counts: npt.NDArray[np.int64] = np.zeros(dataset.keys, np.int64)
        self._sums: npt.NDArray[np.float64] = np.zeros(dataset.keys, np.float64)
        self._touched = np.zeros(dataset.keys, np.bool_)

    def add(self, epoch: int) -> None:
        """Fold an epoch in."""
        ids = epoch_ids(self._dataset, epoch)
        amounts = epoch_amounts(self._dataset, epoch, len(ids))
        self._counts += np.bincount(ids, minlength=self._dataset.keys)
        self._sums += np.bincount(ids, amounts, minlength=self._dataset.keys)
        self._touched[ids] = True

    def take(self) -> pa.Table:
        """The rows that changed since the last call, sorted by hash."""
        ids = self._order[self._touched[self._order]]
        self._touched[:] = False
        return pa.table(
            {
                "hash": self._hashes[ids],
                "word": self._words.take(pa.array(ids)),
                "n": self._counts[ids],
                "total": self._sums[ids],
            }
        )


def changed_bytes(dataset: Dataset, checkpoints: Sequence[int]) -> int:
    """Compressed bytes of the rows that changed up to each of these epochs, one after another."""
    from holdfast.state.schema import Column, TableSchema
    from holdfast.state.stored import encode_stored

    keys = (Column(1, "word", pa.string()),)
    values = (Column(2, "n", pa.int64()), Column(3, "total", pa.float64()))
    schema = TableSchema("bench.changed", keys, values).arrow
    state = ChangedRows(dataset)
    size = begun = 0
    for epoch in checkpoints:
        for number in range(begun, epoch + 1):
            state.add(number)
        begun = epoch + 1
        table = pa.Table.from_arrays(state.take().columns, schema=schema)
        data, _ = encode_stored(iter([table]), schema)
        size += len(data)
    return size
