"""Spans of time, and what they become when those of one key that overlap or touch are merged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.state.columns import Indices

__all__ = ["Merged", "merge_spans", "sort_spans"]

_MOST = 2**63


class Merged(NamedTuple):
    """Spans in an order in which those that are merged are neighbours."""

    order: Indices | None
    """The spans' indices by (group, start), stable; None if they are in that order already."""
    firsts: Indices
    """Where in that order each merged span begins."""


def merge_spans(groups: Indices, starts: Indices, ends: Indices) -> Merged:
    """Merge the spans of each group that overlap or touch, and those that this joins.

    Spans that touch are merged because Spark and Flink do so: rows exactly a gap apart are of one
    session.

    >>> merged = merge_spans(np.array([0, 0, 0]), np.array([20, 0, 5]), np.array([25, 10, 20]))
    >>> merged.order.tolist(), merged.firsts.tolist()
    ([1, 2, 0], [0])
    """
    order = sort_spans(groups, starts)
    if order is not None:
        groups, starts, ends = groups[order], starts[order], ends[order]
    apart = np.ones(len(groups), np.bool_)
    reach = _running_greatest(groups, ends)
    apart[1:] = (groups[1:] != groups[:-1]) | (starts[1:] > reach[:-1])
    return Merged(order, np.flatnonzero(apart))


def sort_spans(groups: Indices, starts: Indices) -> Indices | None:
    """The stable order by (group, start); None if that is the order already.

    >>> sort_spans(np.array([1, 0, 0]), np.array([5, 9, 7])).tolist()
    [2, 1, 0]
    """
    if len(groups) < 2:
        return None
    same = groups[1:] == groups[:-1]
    if ((groups[1:] > groups[:-1]) | (same & (starts[1:] >= starts[:-1]))).all():
        return None
    packed = _packed(groups, starts)
    if packed is None:
        return np.lexsort((starts, groups))
    return np.argsort(packed, kind="stable")


def _packed(groups: Indices, values: Indices) -> Indices | None:
    """One number for each pair, in the order of the pairs; None if that needs more than 64 bits."""
    least = int(values.min())
    width = int(values.max()) - least + 1
    if (int(groups.max()) + 1) * width >= _MOST:
        return None
    return groups * width + (values - least)


def _running_greatest(groups: Indices, values: Indices) -> Indices:
    """For each row the greatest value so far in its group; rows are ordered by group."""
    same = groups[1:] == groups[:-1]
    if not (same & (values[1:] < values[:-1])).any():
        return values
    # Later groups must not see what earlier ones have reached: so each begins above them.
    packed = _packed(groups, values)
    if packed is not None:
        least = int(values.min())
        width = int(values.max()) - least + 1
        return np.maximum.accumulate(packed) - groups * width + least
    distinct, ranks = np.unique(values, return_inverse=True)
    reached = np.maximum.accumulate(groups * len(distinct) + ranks) - groups * len(distinct)
    greatest: Indices = distinct[reached]
    return greatest
