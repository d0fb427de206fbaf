"""Reductions over groups of neighbouring rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.operators.columns import Bits, NDArray

__all__ = ["GroupOverflow", "Groups"]

Indices = npt.NDArray[np.int64]
_EXACT_IN_DOUBLE = 2**53
_LOW = np.int64(0xFFFFFFFF)


class GroupOverflow(ArithmeticError):  # noqa: N818 - what happened, not a fault
    """A group's result doesn't fit its type; whoever knows the keys says whose."""

    def __init__(self, group: int, kind: object) -> None:
        super().__init__(f"group {group} exceeds {kind}")
        self.group = group
        self.kind = kind


@dataclass(frozen=True)
class Groups:
    """Groups of neighbouring rows: group i has the rows from ``starts[i]`` up to the next start.

    >>> groups = Groups(np.array([0, 2]), 3)
    >>> groups.sum_floats(np.array([1.0, 2.0, 5.0])).tolist()
    [3.0, 5.0]
    """

    starts: Indices
    rows: int

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.starts)

    @cached_property
    def sizes(self) -> Indices:
        """The number of rows of each group."""
        return np.diff(self.starts, append=self.rows)

    @cached_property
    def largest(self) -> int:
        """The number of rows of the largest group."""
        return int(self.sizes.max(initial=0))

    @cached_property
    def ids(self) -> Indices:
        """The group of each row."""
        marks = np.zeros(self.rows, np.int64)
        marks[self.starts[1:]] = 1
        return np.cumsum(marks)

    def any(self, flags: Bits | None) -> Bits | None:
        """Which groups have a row with the flag set; None (all of them) for None."""
        if flags is None:
            return None
        result: Bits = np.logical_or.reduceat(flags, self.starts) if self.count else flags
        return result

    def reduce(self, function: np.ufunc, values: NDArray) -> NDArray:
        """Fold each group's values with a ufunc such as ``np.minimum``."""
        if not self.count:
            return values
        with np.errstate(all="ignore"):  # NaN and infinity are values like others
            result: NDArray = function.reduceat(values, self.starts)
        return result

    def sum_floats(self, values: NDArray) -> npt.NDArray[np.float64]:
        """The sum of each group, added one after the other, never -0.0."""
        # bincount adds 5 times as fast as np.add.reduceat where groups are small.
        weights = values.astype(np.float64, copy=False)
        sums: NDArray = np.bincount(self.ids, weights=weights, minlength=self.count)
        return sums

    def sum_ints(self, values: NDArray, kind: object = "bigint") -> Indices:
        """The exact sum of each group; ``GroupOverflow`` if one exceeds 64 bits."""
        if not self.count:
            return np.empty(0, np.int64)
        bound = max(-int(values.min()), int(values.max())) * self.largest
        if bound < _EXACT_IN_DOUBLE:
            return self.sum_floats(values).astype(np.int64)
        values = values.astype(np.int64, copy=False)
        if bound < 2**63:
            return self.reduce(np.add, values)
        high = self.reduce(np.add, values >> 32)
        low = self.reduce(np.add, values & _LOW)
        high += low >> 32
        fits: Any = (high >= -(2**31)) & (high < 2**31)
        if not fits.all():
            raise GroupOverflow(int(np.argmin(fits)), kind)
        result: Indices = (high << 32) | (low & _LOW)
        return result
