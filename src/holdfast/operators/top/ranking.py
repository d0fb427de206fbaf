"""Which rows of each key are its first n: stored rows and new ones in one order.

Rows live in numbered places under their key. A row keeps its place until another takes it, so an
epoch writes only the rows that came in: one that moves from rank 1 to rank 2 is not written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.aggregates.order import sortable
from holdfast.state.columns import Indices

__all__ = ["Ranked", "SortColumn", "TopRows", "rank_rows", "ranks_within"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SortColumn:
    """Values to sort by, and in which direction; nulls count as less than any value.

    >>> column = SortColumn(pa.array([2, None, 3]), descending=True)
    >>> rank_rows(np.zeros(3, np.int64), [column]).order.tolist()
    [2, 0, 1]
    """

    values: pa.Array
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows in order, group after group."""

    order: Indices
    """The rows' indices in that order."""
    ids: Indices
    """The group of each, in that order."""
    ranks: Indices
    """The place of each within its group, from 0, in that order."""


def rank_rows(ids: Indices, columns: Sequence[SortColumn]) -> Ranked:
    """Sort rows by group, then by columns; rows that are equal in all keep their order."""
    keys, directions = [pa.array(ids)], ["ascending"]
    for column in columns:
        direction = "descending" if column.descending else "ascending"
        if column.values.null_count:  # Left to itself, Arrow sorts nulls to the end.
            keys.append(column.values.is_valid())
            directions.append(direction)
        keys.append(sortable(column.values))
        directions.append(direction)
    names = [str(i) for i in range(len(keys))]
    found = pc.sort_indices(
        pa.Table.from_arrays(keys, names=names),
        sort_keys=list(zip(names, directions, strict=True)),
    )
    order = np.asarray(found).astype(np.int64)
    ordered = ids[order]
    return Ranked(order, ordered, ranks_within(ordered))


def ranks_within(ids: Indices) -> Indices:
    """The place of each row within its group, from 0; rows of a group are neighbours.

    >>> ranks_within(np.array([3, 3, 8, 9, 9])).tolist()
    [0, 1, 0, 0, 1]
    """
    count = len(ids)
    first = np.ones(count, np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    starts = np.flatnonzero(first)
    ranks: Indices = np.arange(count) - np.repeat(starts, np.diff(starts, append=count))
    return ranks


@dataclass(frozen=True)
class TopRows:
    """What becomes of the rows of some keys: which stay, leave and come in.

    ``old`` are places among the stored rows, ``new`` places among the new ones; both in order.
    """

    n: int
    keys: int
    """How many keys there are."""
    old: Indices
    old_ids: Indices
    """The key of each stored row."""
    old_ranks: Indices
    """Its rank now, from 0; n or more: it left."""
    new: Indices
    new_ids: Indices
    new_ranks: Indices

    @classmethod
    def of(cls, n: int, keys: int, stored: int, ranked: Ranked) -> TopRows:
        """From the order of all rows, the first ``stored`` of which are the stored ones."""
        is_old = ranked.order < stored
        comes = ~is_old & (ranked.ranks < n)
        return cls(
            n, keys,
            ranked.order[is_old], ranked.ids[is_old], ranked.ranks[is_old],
            ranked.order[comes] - stored, ranked.ids[comes], ranked.ranks[comes],
        )  # fmt: skip

    @property
    def leaves(self) -> Mask:
        """Which stored rows left."""
        return self.old_ranks >= self.n

    @cached_property
    def ranks_before(self) -> Indices:
        """The rank of each stored row before."""
        return ranks_within(self.old_ids)

    @cached_property
    def sizes(self) -> Indices:
        """How many stored rows each key has."""
        return np.bincount(self.old_ids, minlength=self.keys)

    def places(self, used: Indices) -> Indices:
        """Where the new rows go: to places of rows that left, then to those after the last.

        ``used`` are the places of the stored rows, in order. A key's rows always have the places
        from 0 up to their number, for a row only leaves when another comes.
        """
        gone = self.leaves
        left = np.bincount(self.old_ids[gone], minlength=self.keys)
        offsets = np.cumsum(left) - left
        nth = ranks_within(self.new_ids)
        takes_over = nth < left[self.new_ids]
        places: Indices = self.sizes[self.new_ids] + nth - left[self.new_ids]
        places[takes_over] = used[gone][(offsets[self.new_ids] + nth)[takes_over]]
        return places
