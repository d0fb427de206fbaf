"""Orders and stretches of rows against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.operators.join import matching
from holdfast.operators.join.matching import find_stretches, order_by_time

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.integers(0, 5)), max_size=14)
Rows = list[tuple[int, int, int]]


@given(given_rows=rows)
def test_rows_are_ordered_by_group_time_and_tag(given_rows: Rows) -> None:
    by_group = sorted(given_rows, key=lambda row: row[0])
    groups, micros, tags = np.array(by_group, np.int64).reshape(-1, 3).T
    order = order_by_time(groups, micros, tags)
    made = by_group if order is None else [by_group[i] for i in order]
    assert made == sorted(by_group)


@pytest.mark.parametrize("bits", [62, 1])
@given(left=rows, right=rows, lower=st.integers(-5, 5), width=st.integers(0, 6))
def test_stretches_hold_the_matches(
    bits: int, left: Rows, right: Rows, lower: int, width: int
) -> None:
    right = sorted(right)
    sides = [np.array(side, np.int64).reshape(-1, 3).T for side in (left, right)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_BITS", bits)
        found = find_stretches(
            (sides[0][0], sides[0][1]), (sides[1][0], sides[1][1]), lower, lower + width
        )
    expected = [
        (i, j)
        for i, x in enumerate(left)
        for j, y in enumerate(right)
        if x[0] == y[0] and lower <= y[1] - x[1] <= lower + width
    ]
    made = [pair for a, b in found.pairs() for pair in zip(a.tolist(), b.tolist(), strict=True)]
    assert made == expected
    assert np.flatnonzero(found.matched).tolist() == sorted({i for i, _ in expected})
    assert np.flatnonzero(found.covered(len(right))).tolist() == sorted({j for _, j in expected})
