"""Hash ranges and partitions, above all at their bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.state.hashing import (
    FULL_RANGE,
    HashRange,
    entry_hashes,
    marker_hashes,
    partition_of,
    partition_range,
    partition_sql,
    prefix_range,
)

counts = st.one_of(st.integers(1, 300), st.integers(1, 2**31), st.sampled_from([1, 3, 2**31]))
bounds = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
ranges = bounds.map(lambda pair: HashRange(min(pair), max(pair)))
small_ranges = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(
    lambda pair: HashRange(min(pair), max(pair))
)


def partition(value: int, partitions: int) -> int:
    return int(partition_of(np.array([value], np.uint64), partitions)[0])


@given(counts, st.data())
@example(1, None)
@example(3, None)
@example(2**31, None)
def test_a_partition_owns_exactly_its_range(count: int, data: st.DataObject | None) -> None:
    drawn = [] if data is None else [data.draw(st.integers(0, count - 1))]
    for number in {0, count // 2, count - 1, *drawn}:
        owned = partition_range(number, count)
        assert partition(owned.first, count) == number
        assert partition(owned.last, count) == number
        if number > 0:
            assert partition(owned.first - 1, count) == number - 1
        if number < count - 1:
            assert partition(owned.last + 1, count) == number + 1


@pytest.mark.parametrize("count", [1, 2, 3, 7, 200, 1000])
def test_partitions_tile_the_whole_range(count: int) -> None:
    owned = [partition_range(number, count) for number in range(count)]
    assert owned[0].first == FULL_RANGE.first
    assert owned[-1].last == FULL_RANGE.last
    assert all(a.last + 1 == b.first for a, b in pairwise(owned))


@given(counts, st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_the_formula_is_that_of_the_design(count: int, values: list[int]) -> None:
    expected = [((value >> 32) * count) >> 32 for value in values]
    assert partition_of(np.array(values, np.uint64), count).tolist() == expected


@pytest.mark.parametrize(("number", "count"), [(-1, 4), (4, 4), (0, 0), (0, 2**31 + 1)])
def test_there_is_no_such_partition(number: int, count: int) -> None:
    with pytest.raises(ValueError, match="no partition"):
        partition_range(number, count)


def test_the_formula_in_sql_names_the_column_and_the_count() -> None:
    assert partition_sql("h", 8) == (
        "CAST(shiftrightunsigned(shiftrightunsigned(`h`, 32) * 8L, 32) AS INT)"
    )


def members(*spans: HashRange | None) -> list[int]:
    return sorted(h for s in spans if s is not None for h in range(s.first, s.last + 1))


@given(small_ranges, small_ranges)
def test_ranges_behave_like_sets_of_hashes(a: HashRange, b: HashRange) -> None:
    one, other = set(members(a)), set(members(b))
    assert a.overlaps(b) == bool(one & other)
    assert a.covers(b) == (other <= one)
    assert members(a.intersect(b)) == sorted(one & other)
    assert members(*a.subtract(b)) == sorted(one - other)


@given(ranges, st.integers(1, 50))
@example(HashRange(2**32 - 1, 2**32), 7)
@example(HashRange(5, 2**32 - 1), 7)
def test_split_pieces_tile_the_range_and_keep_prefixes_whole(whole: HashRange, pieces: int) -> None:
    parts = whole.split(pieces)
    assert len(parts) == min(pieces, (whole.last >> 32) - (whole.first >> 32) + 1)
    assert (parts[0].first, parts[-1].last) == (whole.first, whole.last)
    assert all(a.last + 1 == b.first and b.first % 2**32 == 0 for a, b in pairwise(parts))
    widths = [(part.last >> 32) - (part.first >> 32) for part in parts]
    assert max(widths) - min(widths) <= 1


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))),
    st.integers(1, 2**31),
)
def test_entries_of_a_key_stay_with_it_and_behind_its_marker(
    pairs: list[tuple[int, int]], count: int
) -> None:
    keys = np.array([key for key, _ in pairs], np.uint64)
    low = np.array([low for _, low in pairs], np.uint32)
    entries, markers = entry_hashes(keys, low), marker_hashes(keys)
    assert (markers < entries).all()
    for (key, lower), entry, marker in zip(pairs, entries.tolist(), markers.tolist(), strict=True):
        assert entry % 2**32 == max(lower, 1)
        assert prefix_range(key) == prefix_range(entry) == HashRange(marker, marker + 2**32 - 1)
        assert partition(key, count) == partition(entry, count) == partition(marker, count)
