"""Key hashes, hash ranges and partitions.

A key hash is an unsigned 64-bit number (Spark's ``xxhash64`` of the key columns, computed in the
JVM). Partition p of P owns the hashes h with ``((h >>> 32) * P) >>> 32 == p``: one formula, written
here for NumPy and for Spark SQL, so a row's partition depends on nothing but its hash (invariant 8).

In a prefixed table the upper half of a row's hash is its state key's (the *prefix*), the lower half
tells the key's entries apart. A lower half of 0 is that of the key's *clear marker*.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "FULL_RANGE",
    "HashRange",
    "Hashes",
    "entry_hashes",
    "marker_hashes",
    "partition_of",
    "partition_range",
    "partition_sql",
    "prefix_range",
]

Hashes = npt.NDArray[np.uint64]
_MAX = 2**64 - 1
_LOW = 2**32 - 1


class HashRange(msgspec.Struct, frozen=True, order=True):
    """The hashes from ``first`` to ``last``, both included.

    >>> HashRange(0, 9).overlaps(HashRange(9, 20))
    True
    >>> HashRange(0, 9).intersect(HashRange(5, 20))
    HashRange(first=5, last=9)
    """

    first: int
    last: int

    @property
    def width(self) -> int:
        """How many hashes it has."""
        return self.last - self.first + 1

    def overlaps(self, other: HashRange) -> bool:
        """Whether any hash lies in both."""
        return self.first <= other.last and other.first <= self.last

    def covers(self, other: HashRange) -> bool:
        """Whether all of ``other`` lies in this range."""
        return self.first <= other.first and other.last <= self.last

    def intersect(self, other: HashRange) -> HashRange | None:
        """The hashes in both, or None."""
        if not self.overlaps(other):
            return None
        return HashRange(max(self.first, other.first), min(self.last, other.last))

    def subtract(self, other: HashRange) -> tuple[HashRange, ...]:
        """What is left of this range without ``other``: none, one or two ranges.

        >>> HashRange(0, 9).subtract(HashRange(3, 5))
        (HashRange(first=0, last=2), HashRange(first=6, last=9))
        """
        if not self.overlaps(other):
            return (self,)
        left = (HashRange(self.first, other.first - 1),) if self.first < other.first else ()
        right = (HashRange(other.last + 1, self.last),) if other.last < self.last else ()
        return left + right

    def split(self, pieces: int) -> tuple[HashRange, ...]:
        """Cut the range into (at most) ``pieces`` neighbouring ranges of nearly equal width.

        Cuts are at multiples of 2**32 only, so that all rows of a state key stay together.

        >>> HashRange(0, 2**34 - 1).split(2) == (HashRange(0, 2**33 - 1), HashRange(2**33, 2**34 - 1))
        True
        >>> HashRange(0, 9).split(2)
        (HashRange(first=0, last=9),)
        """
        prefix, prefixes = self.first >> 32, (self.last >> 32) - (self.first >> 32) + 1
        pieces = max(1, min(pieces, prefixes))
        inner = [(prefix + prefixes * i // pieces) << 32 for i in range(1, pieces)]
        cuts = [self.first, *inner, self.last + 1]
        return tuple(HashRange(a, b - 1) for a, b in pairwise(cuts))


FULL_RANGE = HashRange(0, _MAX)


def partition_range(partition: int, partitions: int) -> HashRange:
    """The hashes that partition ``partition`` of ``partitions`` owns.

    >>> partition_range(0, 1) == FULL_RANGE
    True
    """
    if not 0 <= partition < partitions <= 2**31:
        raise ValueError(f"no partition {partition} of {partitions}")
    first = -(-partition * 2**32 // partitions) << 32
    last = (-(-(partition + 1) * 2**32 // partitions) << 32) - 1
    return HashRange(first, last)


def prefix_range(hash: int) -> HashRange:  # noqa: A002
    """All hashes that rows of the state key with this hash can have in a prefixed table.

    >>> prefix_range(2**32 + 5) == HashRange(2**32, 2**33 - 1)
    True
    """
    first = hash & ~_LOW
    return HashRange(first, first | _LOW)


def entry_hashes(key_hashes: Hashes, low: npt.NDArray[np.uint32]) -> Hashes:
    """The hashes of entries in a prefixed table; ``low`` is what tells those of a key apart.

    >>> [hex(h) for h in entry_hashes(np.array([2**36 + 9, 7], np.uint64), np.array([5, 0], np.uint32))]
    ['0x1000000005', '0x1']
    """
    hashes: Hashes = marker_hashes(key_hashes) | np.maximum(low, np.uint32(1)).astype(np.uint64)
    return hashes


def marker_hashes(key_hashes: Hashes) -> Hashes:
    """The hashes of the keys' clear markers: lower than those of all their entries."""
    hashes: Hashes = key_hashes & np.uint64(_MAX ^ _LOW)
    return hashes


def partition_of(hashes: Hashes, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each hash.

    >>> partition_of(np.array([0, 2**63, 2**64 - 1], np.uint64), 4).tolist()
    [0, 2, 3]
    """
    thirty_two = np.uint64(32)
    products = (hashes >> thirty_two) * np.uint64(partitions)
    numbers: npt.NDArray[np.int32] = (products >> thirty_two).astype(np.int32)
    return numbers


def partition_sql(hash_column: str, partitions: int) -> str:
    """The same formula as a Spark SQL expression over a (signed) bigint column."""
    high = f"shiftrightunsigned(`{hash_column}`, 32)"
    return f"CAST(shiftrightunsigned({high} * {partitions}L, 32) AS INT)"
