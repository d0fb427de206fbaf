from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.operators.aggregates.decimals import (
    _average,
    average_decimals,
    halves_of,
    sum_decimals,
)
from holdfast.operators.columns import make_array
from holdfast.operators.groups import GroupOverflow, RowGroups

KIND = pa.decimal128(38, 0)


def column(numbers: list[int]) -> pa.Array:
    return pa.array([Decimal(n) for n in numbers], KIND)


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1), st.data())
def test_sums_equal_pythons(numbers: list[int], data: st.DataObject) -> None:
    starts = data.draw(st.sets(st.integers(0, len(numbers) - 1))) | {0}
    cuts = [*sorted(starts), len(numbers)]
    sums = [sum(numbers[a:b]) for a, b in itertools.pairwise(cuts)]
    groups = RowGroups(np.array(sorted(starts)), len(numbers))
    bad = [i for i, total in enumerate(sums) if abs(total) >= 10**38]
    if bad:
        with pytest.raises(GroupOverflow) as error:
            sum_decimals(halves_of(column(numbers)), groups, KIND)
        assert error.value.group == bad[0]
    else:
        result = sum_decimals(halves_of(column(numbers)), groups, KIND)
        assert list(map(int, make_array(KIND, result).to_pylist())) == sums


@given(
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.integers(1, 2**63 - 1) | st.integers(1, 30),
    st.integers(0, 38),
)
def test_averages_equal_pythons_for_counts_of_any_size(total: int, count: int, scale: int) -> None:
    result_scale = min(38, scale + 4)
    kind = pa.decimal128(38, result_scale)
    sums = halves_of(column([total, 0]))
    counts = np.array([count, 1])
    expected = _average(total, count, scale, result_scale)
    if abs(expected) >= 10**38:
        with pytest.raises(GroupOverflow):
            average_decimals(sums, counts, scale, kind)
    else:
        result = make_array(KIND, average_decimals(sums, counts, scale, kind))
        assert list(map(int, result.to_pylist())) == [expected, 0]


def test_a_sliced_column_is_read_where_it_begins() -> None:
    assert halves_of(column([1, 2, 3]).slice(1, 1)).tolist() == [[2, 0]]
