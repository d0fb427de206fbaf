"""Reductions over groups of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.operators.columns import Bits, NDArray

__all__ = ["GroupOverflow", "RowGroups"]

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
class RowGroups:
    """Rows in groups, and behind them, for some of the groups, one more row each (their state).

    Group i has the rows from ``starts[i]`` up to the next start. Row ``rows + j`` belongs to group
    ``extra[j]``; those ascend.

    >>> groups = RowGroups(np.array([0, 2]), 3, extra=np.array([1]))
    >>> groups.sum_floats(np.array([1.0, 2.0, 5.0, 100.0])).tolist()
    [3.0, 105.0]
    """

    starts: Indices
    rows: int
    extra: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.starts)

    @property
    def total(self) -> int:
        """How many rows there are, with those behind."""
        return self.rows + len(self.extra)

    @cached_property
    def largest(self) -> int:
        """No group has more rows than this."""
        sizes = np.diff(self.starts, append=self.rows)
        return int(sizes.max(initial=0)) + bool(len(self.extra))

    @cached_property
    def ids(self) -> Indices:
        """The group of each row."""
        marks = np.zeros(self.rows, np.int64)
        marks[self.starts[1:]] = 1
        ids = np.cumsum(marks, out=marks)
        return np.concatenate((ids, self.extra)) if len(self.extra) else ids

    @cached_property
    def order(self) -> Indices | None:
        """The rows' indices by group; None if they are in that order already."""
        if not len(self.extra):
            return None
        # Extra rows ascend as the groups do, so their places follow without a sort.
        places = self.starts[self.extra] + np.arange(len(self.extra))
        others = np.ones(self.total, np.bool_)
        others[places] = False
        order = np.empty(self.total, np.int64)
        order[places] = np.arange(self.rows, self.total)
        order[others] = np.arange(self.rows)
        return order

    def any(self, flags: Bits | None) -> Bits | None:
        """Which groups have a row with the flag set; None (all of them) for None."""
        return None if flags is None else self.reduce(np.logical_or, flags)

    def reduce(self, function: np.ufunc, values: NDArray) -> NDArray:
        """Fold each group's values with a ufunc such as ``np.minimum``."""
        if not self.count:
            return values
        with np.errstate(all="ignore"):  # NaN and infinity are values like others
            result: NDArray = function.reduceat(values[: self.rows], self.starts)
            if len(self.extra):
                result[self.extra] = function(result[self.extra], values[self.rows :])
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
