"""Clear markers of a prefixed table, as a merge applies them.

A marker says that rows of its state key in *older* runs are gone; those of its own run are live. It
comes before all of its key's rows, so a merge that goes through hashes in order meets it in time. A
piece may end in the middle of a key's rows: markers of that key are passed on to the next piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.blocks import read_slice
from holdfast.state.columns import Indices, concat, hash_values, take, take_all
from holdfast.state.hashing import Hashes, HashRange, marker_hashes, prefix_range
from holdfast.state.keys import group_stretches
from holdfast.state.parts import MergePart, RunRows
from holdfast.state.schema import TableSchema

__all__ = ["Clears"]

_NONE = np.iinfo(np.int64).max


class Clears:
    """The markers that count for a piece of a merge."""

    def __init__(self, schema: TableSchema, parts: Sequence[MergePart], within: HashRange) -> None:
        self._kinds = [column.type for column in schema.keys[: schema.prefix]]
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._numbers: Indices = np.zeros(0, np.int64)
        self._keys = [pa.array([], kind) for kind in self._kinds]
        first = prefix_range(within.first).first
        if first != within.first:
            # The range begins behind the markers of its first key.
            place = HashRange(first, first)
            for part in parts:
                if part.range.overlaps(prefix_range(first)):
                    for batch in read_slice(part.run, place):
                        self.add([RunRows(part.number, part.layout, batch)])

    def add(self, sources: Sequence[RunRows]) -> bool:
        """Take in the markers among these rows; whether any marker may clear some of them."""
        found = [(self._hashes, self._numbers, self._keys)]
        for source in sources:
            if source.layout.tombstones(source.rows) is None:
                continue
            hashes = hash_values(source.rows)
            places = np.flatnonzero(marker_hashes(hashes) == hashes)
            if len(places):
                keys = source.layout.key_arrays(source.rows)[: len(self._kinds)]
                numbers = np.full(len(places), source.number)
                found.append((hashes[places], numbers, take_all(keys, places)))
        if len(found) > 1:
            self._hashes = np.concatenate([hashes for hashes, _, _ in found])
            self._numbers = np.concatenate([numbers for _, numbers, _ in found])
            self._keys = [
                concat([keys[i] for _, _, keys in found], kind)
                for i, kind in enumerate(self._kinds)
            ]
        oldest = max((source.number for source in sources), default=-1)
        return bool(len(self._numbers)) and int(self._numbers.min()) < oldest

    def cleared(
        self, hashes: Hashes, keys: Sequence[pa.Array], numbers: Indices
    ) -> npt.NDArray[np.bool_]:
        """Which of these rows (of runs with these numbers) a marker of a newer run clears."""
        prefixes = marker_hashes(hashes)
        places = np.flatnonzero(np.isin(prefixes, self._hashes))
        both = [
            concat([ours, take(key, places)], ours.type)
            for ours, key in zip(self._keys, keys, strict=False)
        ]
        groups = group_stretches(np.concatenate([self._hashes, prefixes[places]]), both)
        newest = np.concatenate([self._numbers, np.full(len(places), _NONE)])
        order = np.arange(len(newest)) if groups.order is None else groups.order
        # Of each state key: the newest run that has its marker.
        of_group = np.minimum.reduceat(newest[order], groups.starts)
        newest[order] = np.repeat(of_group, np.diff(groups.starts, append=len(order)))
        result = np.zeros(len(hashes), np.bool_)
        result[places] = numbers[places] > newest[len(self._hashes) :]
        return result

    def pass_on(self, piece: HashRange) -> None:
        """A piece is done: keep only markers of the key that it may have ended in."""
        last = prefix_range(piece.last)
        stay = self._hashes == np.uint64(last.first)
        if last.last == piece.last:
            stay[:] = False
        if not stay.all():
            places = np.flatnonzero(stay)
            self._hashes, self._numbers = self._hashes[places], self._numbers[places]
            self._keys = take_all(self._keys, places)
