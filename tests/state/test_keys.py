"""Sorting and grouping by key: every key type, nulls and NaN, and hashes that collide."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.state import columns
from holdfast.state.keys import SortedRows, keys_equal, merge_sorted, sort_rows
from tests.state.model import (
    KEY_VALUES,
    Hash,
    hash_column,
    hashes,
    key_columns,
    key_types,
    keys_of,
    plain_key,
)


def rows_table(
    types: list[pa.DataType], keys: list[tuple[Any, ...]], hash_of: Hash, first: int = 0
) -> pa.Table:
    arrays = [hash_column(keys, hash_of), *key_columns(types, keys)]
    names = ["h", *(f"k{i}" for i in range(len(types)))]
    order = pa.array(range(first, first + len(keys)), pa.int64())
    return pa.Table.from_arrays([*arrays, order], names=[*names, "order"])


def groups_of(rows: SortedRows) -> list[tuple[int, tuple[Any, ...], list[int]]]:
    """Per group its hash, its key and the input positions of its rows; checks that it is one."""
    ends = [*rows.starts.tolist(), rows.table.num_rows][1:]
    result = []
    for start, end in zip(rows.starts.tolist(), ends, strict=True):
        part = rows.table.slice(start, end - start).to_pydict()
        key_names = [name for name in part if name.startswith("k")]
        keys = {plain_key(key) for key in zip(*(part[name] for name in key_names), strict=True)}
        assert len(keys) == 1
        assert len(set(part["h"])) == 1
        result.append((part["h"][0], keys.pop(), part["order"]))
    return result


def expected_groups(keys: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[int]]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(plain_key(key), []).append(position)
    return groups


@given(st.data(), key_types, hashes)
def test_rows_of_a_key_become_neighbours_in_input_order(
    data: st.DataObject, types: list[pa.DataType], hash_of: Hash
) -> None:
    keys = data.draw(st.lists(keys_of(types), max_size=40))
    rows = sort_rows(rows_table(types, keys, hash_of), len(types))
    groups = groups_of(rows)
    assert {key: positions for _, key, positions in groups} == expected_groups(keys)
    assert len(groups) == len(expected_groups(keys))
    assert [h for h, _, _ in groups] == sorted(h for h, _, _ in groups)


@given(st.data(), key_types, hashes)
def test_rows_of_a_key_go_by_a_column_of_theirs(
    data: st.DataObject, types: list[pa.DataType], hash_of: Hash
) -> None:
    keys = data.draw(st.lists(keys_of(types), max_size=40))
    table = rows_table(types, keys, hash_of)
    shuffled = table.take(pa.array(data.draw(st.permutations(range(len(keys)))), pa.int64()))
    split = data.draw(st.integers(0, len(keys)))
    halves = [shuffled.slice(0, split), shuffled.slice(split)]
    parts = [sort_rows(half.combine_chunks(), len(types)) for half in halves]
    expected = expected_groups(keys)
    for rows in (sort_rows(shuffled, len(types), "order"), merge_sorted(parts, "order")):
        assert {key: order for _, key, order in groups_of(rows)} == expected


@given(st.data(), key_types, hashes)
def test_the_order_of_keys_does_not_depend_on_the_order_of_rows(
    data: st.DataObject, types: list[pa.DataType], hash_of: Hash
) -> None:
    keys = data.draw(st.lists(keys_of(types), max_size=30))
    shuffled = data.draw(st.permutations(keys))
    one = groups_of(sort_rows(rows_table(types, keys, hash_of), len(types)))
    other = groups_of(sort_rows(rows_table(types, shuffled, hash_of), len(types)))
    assert [(h, key) for h, key, _ in one] == [(h, key) for h, key, _ in other]


@given(st.data(), key_types, hashes)
def test_merging_sorted_parts_equals_sorting_the_whole(
    data: st.DataObject, types: list[pa.DataType], hash_of: Hash
) -> None:
    parts = data.draw(st.lists(st.lists(keys_of(types), max_size=15), min_size=1, max_size=4))
    whole = [key for part in parts for key in part]
    tables, first = [], 0
    for part in parts:
        tables.append(rows_table(types, part, hash_of, first))
        first += len(part)
    merged = merge_sorted([sort_rows(table, len(types)) for table in tables])
    expected = sort_rows(rows_table(types, whole, hash_of), len(types))
    assert groups_of(merged) == groups_of(expected)
    assert all(column.num_chunks == 1 for column in merged.table.columns)


@given(st.data(), key_types)
def test_keys_are_equal_as_python_says_of_their_bits(
    data: st.DataObject, types: list[pa.DataType]
) -> None:
    pairs = data.draw(st.lists(st.tuples(keys_of(types), keys_of(types)), max_size=40))
    names = [f"k{i}" for i in range(len(types))]
    a = pa.Table.from_arrays(key_columns(types, [a for a, _ in pairs]), names=names)
    b = pa.Table.from_arrays(key_columns(types, [b for _, b in pairs]), names=names)
    assert keys_equal(a, b).tolist() == [plain_key(x) == plain_key(y) for x, y in pairs]


def test_nans_of_different_bits_are_one_key() -> None:
    odd_nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0]
    values = pa.array([math.nan, 1.0, odd_nan])
    table = pa.table({"h": pa.array([5, 5, 5], pa.uint64()), "k": values, "n": [0, 1, 2]})
    rows = sort_rows(table, keys=1)
    numbers = np.split(rows.table["n"].to_numpy(), rows.starts[1:])
    assert sorted(group.tolist() for group in numbers) == [[0, 2], [1]]
    assert keys_equal(table.select(["k"]).slice(0, 1), table.select(["k"]).slice(2, 1)).all()


@pytest.mark.parametrize("bits", [64, 24, 12, 2])
def test_many_rows_with_hashes_of_few_bits(bits: int) -> None:
    """Enough rows for the fast paths, with and without ties in the bits that give way."""
    random = np.random.default_rng(bits)
    keys = random.integers(0, 3000, 20_000)
    spread = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    weak = (spread >> np.uint64(64 - bits)) << np.uint64(random.integers(0, 65 - bits))
    words = [f"word-{k:>{3 + 20 * (k % 2)}}" if k % 7 else None for k in keys.tolist()]
    numbers = pa.array(np.arange(20_000))
    table = pa.table({"h": weak, "k": words, "kk": keys, "n": numbers})
    rows = sort_rows(table, keys=2)
    result = rows.table.to_pydict()
    order = result["n"]
    assert sorted(order) == list(range(20_000))
    assert result["k"] == [words[i] for i in order]
    assert result["kk"] == keys[order].tolist()
    assert result["h"] == sorted(weak.tolist())
    starts = rows.starts.tolist()
    assert len(starts) == len(set(keys.tolist()))
    for start, end in zip(starts, [*starts[1:], 20_000], strict=True):
        assert len(set(result["kk"][start:end])) == 1
        assert order[start:end] == sorted(order[start:end])


@given(st.data(), st.sampled_from(list(KEY_VALUES)), st.booleans(), st.integers(0, 5))
def test_take_is_arrows_take(
    data: st.DataObject, kind: pa.DataType, ascending: bool, offset: int
) -> None:
    values = data.draw(st.lists(st.sampled_from(KEY_VALUES[kind]), min_size=10, max_size=50))
    array = pa.array(values, kind).slice(offset)
    seed = data.draw(st.integers(0, 2**32))
    indices = np.random.default_rng(seed).integers(0, len(array), 5000)
    taken = columns.take(array, indices, ascending=ascending)
    taken.validate(full=True)
    expected = array.take(pa.array(indices))
    if not pa.types.is_floating(kind) and not pa.types.is_nested(kind):  # those may hold NaN
        assert taken.equals(expected)
    assert columns.equal(taken, expected).all()


@pytest.mark.parametrize("kind", list(KEY_VALUES), ids=str)
@pytest.mark.parametrize("swaps", [0, 1, 7])
def test_rows_nearly_in_order_are_taken_in_stretches(kind: pa.DataType, swaps: int) -> None:
    random = np.random.default_rng(swaps)
    values = [KEY_VALUES[kind][i] for i in random.integers(0, len(KEY_VALUES[kind]), 9003)]
    array = pa.array(values, kind).slice(3)
    indices = np.arange(9000)
    for place in random.integers(0, 8999, swaps):
        indices[[place, place + 1]] = indices[[place + 1, place]]
    for some in (indices, indices[100:], np.repeat(indices, 2)):
        taken = columns.take(array, some)
        taken.validate(full=True)
        assert columns.equal(taken, array.take(pa.array(some))).all()


def test_text_past_arrows_limit_is_refused_with_a_hint() -> None:
    nothing = np.zeros(2**31 - 1, np.uint8)  # never touched, so never in memory
    offsets = pa.py_buffer(np.array([0, 2**31 - 1], np.int32))
    huge = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(nothing)])
    with pytest.raises(InputError, match="smaller epochs"):
        columns.concat([huge, huge], pa.string())


def test_no_rows_have_no_groups() -> None:
    table = pa.table({"h": pa.array([], pa.uint64()), "k": pa.array([], pa.string())})
    rows = sort_rows(table, keys=1)
    assert rows.table.num_rows == 0
    assert rows.starts.tolist() == []
