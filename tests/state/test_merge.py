"""Merging runs: sorted, unique, newest wins, in bounded pieces."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state import local, merge
from holdfast.state.blocks import OpenRun
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.local import LocalRun, write_local
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.schema import TOMBSTONE
from tests.state.model import (
    SCHEMA,
    WITH_TOMBSTONES,
    Hash,
    Key,
    Row,
    hashes,
    many_rows,
    state_rows,
    state_table,
    strong_hash,
)

Segments = list[tuple[OpenRun, HashRange]]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BLOCK_ROWS", 100)


def write(folder: Path, table: pa.Table) -> LocalRun:
    path = folder / f"{len(list(folder.iterdir()))}.arrow"
    write_local(path, table.schema, [table])
    return LocalRun.open(path)


def check_sorted(pieces: list[pa.Table]) -> None:
    values = [piece.column(0).to_numpy() for piece in pieces]
    assert all((v[1:] >= v[:-1]).all() for v in values)
    assert all(a[-1] < b[0] for a, b in itertools.pairwise(values))


@given(hashes, st.data(), st.booleans(), st.sampled_from([1, 3, 1000]))
def test_a_merge_is_what_a_dict_says(
    tmp_path_factory: pytest.TempPathFactory,
    hash_of: Hash,
    data: st.DataObject,
    drop: bool,
    piece_rows: int,
) -> None:
    keys = st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.sampled_from([0, 1, None]))
    values = st.tuples(st.integers(0, 9), st.none(), st.sampled_from([None, "x"]))
    rows = st.dictionaries(keys, st.one_of(st.none(), values), max_size=12)
    runs = data.draw(st.lists(rows, max_size=4))
    folder = tmp_path_factory.mktemp("runs")
    segments: Segments = [
        (write(folder, state_table(run, hash_of)), FULL_RANGE) for run in reversed(runs)
    ]
    expected: dict[Key, Row | None] = {}
    for run in runs:
        expected |= run
    pieces = list(
        merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=drop, piece_rows=piece_rows)
    )
    check_sorted(pieces)
    schema = merged_schema(SCHEMA, segments, drop_tombstones=drop)
    assert all(piece.schema.equals(schema, check_metadata=True) for piece in pieces)
    assert state_rows(pieces) == {k: row for k, row in expected.items() if row is not None}
    kept = expected if not drop else {k: r for k, r in expected.items() if r is not None}
    assert sum(piece.num_rows for piece in pieces) == len(kept)


def test_the_result_can_be_written_as_a_run(tmp_path: Path) -> None:
    newer, older = many_rows(700), many_rows(1000)
    segments: Segments = [(write(tmp_path, t), FULL_RANGE) for t in (newer, older)]
    pieces = merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=False, piece_rows=150)
    info = write_local(tmp_path / "merged", SCHEMA.arrow, pieces)
    assert (info.rows, info.tombstones) == (1000, 0)
    merged = LocalRun.open(tmp_path / "merged")
    merged.verify()
    assert state_rows(merged.block(i) for i in range(len(merged.blocks))) == state_rows([older])


def test_pieces_are_bounded_whatever_the_sizes_of_the_runs(tmp_path: Path) -> None:
    sizes = [5000, 40, 900, 2000]
    segments: Segments = [
        (write(tmp_path, many_rows(size, seed=i)), FULL_RANGE) for i, size in enumerate(sizes)
    ]
    pieces = list(merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=True, piece_rows=500))
    assert sum(piece.num_rows for piece in pieces) == sum(sizes)
    # At most the rows asked for, and what a block of each run may add.
    assert max(piece.num_rows for piece in pieces) <= 500 + 100 * len(sizes)
    check_sorted(pieces)


def test_large_rows_make_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "PIECE_BYTES", 50_000)
    rows: dict[Key, Row | None] = {(f"w{i}", 0): (i, 0.0, "x" * 1000) for i in range(1000)}
    segments: Segments = [(write(tmp_path, state_table(rows)), FULL_RANGE)] * 2
    pieces = list(merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=True))
    assert max(piece.nbytes for piece in pieces) <= 50_000 + 3 * 110_000
    assert state_rows(pieces) == rows


def test_rows_that_only_one_run_has_pass_through_uncopied(tmp_path: Path) -> None:
    run = write(tmp_path, many_rows(300))
    pieces = list(merge_runs(SCHEMA, [(run, FULL_RANGE)], FULL_RANGE, drop_tombstones=True))
    addresses = {piece.column("n").chunk(0).buffers()[1].address for piece in pieces}
    mapped = {run.block(i).column(3).buffers()[1].address for i in range(len(run.blocks))}
    assert addresses == mapped


def test_only_the_range_asked_for_is_merged(tmp_path: Path) -> None:
    left = partition_range(0, 2)
    newer, older = many_rows(400, seed=1), many_rows(400, seed=2)
    segments: Segments = [
        (write(tmp_path, newer), FULL_RANGE),
        (write(tmp_path, older), partition_range(0, 4)),
    ]
    merged = state_rows(merge_runs(SCHEMA, segments, left, drop_tombstones=True))
    expected = {k: r for k, r in state_rows([newer]).items() if strong_hash(k) <= left.last}
    quarter = partition_range(0, 4)
    expected |= {k: r for k, r in state_rows([older]).items() if strong_hash(k) <= quarter.last}
    assert merged == expected


def test_a_tombstone_column_appears_only_if_there_are_tombstones(tmp_path: Path) -> None:
    live = write(tmp_path, many_rows(10))
    no_more = many_rows(10).append_column(WITH_TOMBSTONES.field(TOMBSTONE), [[False] * 10])
    marked = write(tmp_path, no_more)
    dead = write(tmp_path, state_table({("a", 1): None}))
    assert (
        merged_schema(SCHEMA, [(live, FULL_RANGE), (marked, FULL_RANGE)], drop_tombstones=False)
        == SCHEMA.arrow
    )
    both: Segments = [(dead, FULL_RANGE), (live, FULL_RANGE)]
    assert merged_schema(SCHEMA, both, drop_tombstones=False) == WITH_TOMBSTONES
    assert merged_schema(SCHEMA, both, drop_tombstones=True) == SCHEMA.arrow
    kept = pa.concat_tables(merge_runs(SCHEMA, both, FULL_RANGE, drop_tombstones=False))
    assert kept.num_rows == 11
    assert np.sum(kept.column(TOMBSTONE).to_numpy()) == 1
