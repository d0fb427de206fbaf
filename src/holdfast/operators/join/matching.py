"""Finding pairs: for each row of the left side the stretch of right rows that match it.

Nothing is multiplied out before the bounds of time have been applied: rows of the right side are
sorted by key and time, so the matches of a left row are neighbours, and two searches find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.operators.columns import Bits
from holdfast.state.columns import Indices

__all__ = ["Micros", "Stretches", "find_stretches", "order_by_time", "stable_order"]

Micros = npt.NDArray[np.int64]

# Pairs are put out in tables of about this many rows.
_PIECE_PAIRS = 1 << 20
_BITS = 62


class Stretches(NamedTuple):
    """For each left row the right rows from ``starts`` up to (not including) ``ends``.

    >>> found = Stretches(np.array([0, 1]), np.array([2, 1]))
    >>> found.matched.tolist(), found.covered(3).tolist()
    ([True, False], [True, True, False])
    >>> [(left.tolist(), right.tolist()) for left, right in found.pairs()]
    [([0, 0], [0, 1])]
    """

    starts: Indices
    ends: Indices

    @property
    def matched(self) -> Bits:
        """Which left rows have a match."""
        return self.ends > self.starts

    def covered(self, count: int) -> Bits:
        """Which of the ``count`` right rows have a match."""
        some = self.matched
        steps = np.bincount(self.starts[some], minlength=count + 1)
        steps -= np.bincount(self.ends[some], minlength=count + 1)
        result: Bits = steps.cumsum()[:count] > 0
        return result

    def pairs(self) -> Iterator[tuple[Indices, Indices]]:
        """The pairs, left row by left row, in pieces of bounded size (but for one row's pairs)."""
        sums = (self.ends - self.starts).cumsum()
        total = int(sums[-1]) if len(sums) else 0
        if not total:
            return
        inner = sums.searchsorted(np.arange(_PIECE_PAIRS, total, _PIECE_PAIRS))
        cuts = np.unique(np.concatenate(([0], inner, [len(sums)]))).tolist()
        for first, last in pairwise(cuts):
            starts, ends = self.starts[first:last], self.ends[first:last]
            counts = ends - starts
            left = np.repeat(np.arange(first, last), counts)
            right = np.repeat(starts - counts.cumsum() + counts, counts)
            right += np.arange(len(right))
            if len(left):
                yield left, right


def order_by_time(groups: Indices, micros: Micros, tags: Micros) -> Indices | None:
    """The order of rows by (group, time, tag), if they are not in it; groups are ascending."""
    same = groups[1:] == groups[:-1]
    later, equal = micros[1:] > micros[:-1], micros[1:] == micros[:-1]
    in_turn = tags[1:] >= tags[:-1]
    if (~same | later | (equal & in_turn)).all():
        return None
    if not (~same | in_turn).all():
        return np.lexsort((tags, micros, groups))
    # Rows of a key come in the order of their tags as a rule: one stable sort is enough.
    return stable_order(groups, micros)


def stable_order(groups: Indices, micros: Micros) -> Indices:
    """The order of rows by (group, time); rows that are alike in both stay in theirs."""
    bits = _time_bits(groups, micros) if len(groups) else None
    if bits is None:
        return np.lexsort((micros, groups))
    # Stretches that are sorted already are merged, in linear time.
    return np.argsort((groups << bits) | (micros - micros.min()), kind="stable")


def find_stretches(
    left: tuple[Indices, Micros], right: tuple[Indices, Micros], lower: int, upper: int
) -> Stretches:
    """Where the right rows lie that are of a left row's group and between its bounds.

    Both sides are given as groups and times; right rows are sorted by them.
    """
    groups, micros = left
    if not len(groups) or not len(right[0]):
        nowhere = np.zeros(len(groups), np.int64)
        return Stretches(nowhere, nowhere)
    bits = _time_bits(*right)
    if bits is None or int(groups.max()).bit_length() + bits > _BITS:
        return _by_rank(left, right, lower, upper)
    first = int(right[1].min())
    last = int(right[1].max()) - first
    places = (right[0] << bits) | (right[1] - first)
    lows, highs = micros + (lower - first), micros + (upper - first)
    nothing = (lows > last) | (highs < 0)
    base = groups << bits
    starts = places.searchsorted(base | lows.clip(0, last), side="left")
    ends = places.searchsorted(base | highs.clip(0, last), side="right")
    ends[nothing] = starts[nothing]
    return Stretches(starts, ends)


def _by_rank(
    left: tuple[Indices, Micros], right: tuple[Indices, Micros], lower: int, upper: int
) -> Stretches:
    """The same for times so far apart that group and time don't fit into one number."""
    distinct = np.unique(right[1])
    width = len(distinct) + 1
    places = right[0] * width + distinct.searchsorted(right[1])
    base = left[0] * width
    lows = distinct.searchsorted(left[1] + lower, side="left")
    highs = distinct.searchsorted(left[1] + upper, side="right")
    return Stretches(places.searchsorted(base + lows), places.searchsorted(base + highs))


def _time_bits(groups: Indices, micros: Micros) -> int | None:
    """How many bits times need, if they fit into one number with their group."""
    span = int(micros.max()) - int(micros.min())
    bits = span.bit_length()
    return bits if bits + int(groups.max()).bit_length() <= _BITS else None
