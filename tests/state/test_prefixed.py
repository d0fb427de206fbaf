"""Prefixed tables: clearing reads nothing, one entry costs one entry, large keys stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.state import local
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, HashRange, prefix_range
from holdfast.state.local import LocalRun, write_local
from holdfast.state.memory import MemoryRun
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.schema import TOMBSTONE, Column, TableSchema
from holdfast.state.view import TableView
from tests.state.entries import (
    STRONG,
    Changes,
    Entry,
    Hashing,
    User,
    entries_of,
    entries_table,
    looked_up,
    scanned,
    users_query,
)

SCHEMA = TableSchema(
    "process.map.items",
    (Column(1, "user", pa.string()), Column(2, "map_key", pa.string())),
    (Column(3, "value", pa.int64(), 4, "processing"), Column(4, "expires", pa.int64())),
    prefix=1,
)
Write = Callable[[dict[User, Changes]], LocalRun]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.setattr(local, "BLOCK_ROWS", 100)
    numbers = itertools.count()

    def write(changes: dict[User, Changes]) -> LocalRun:
        table = entries_table(SCHEMA, changes)
        path = tmp_path / f"{next(numbers)}.run"
        write_local(path, table.schema, [table])
        return LocalRun.open(path)

    return write


def filled(count: int, value: int = 0) -> Changes:
    return Changes(False, {f"entry-{i}": Entry(value + i) for i in range(count)})


CLEARED = Changes(True, {})


def view_of(*runs: LocalRun | MemoryRun, clock: TableClock | None = None) -> TableView:
    return TableView(SCHEMA, [(run, FULL_RANGE) for run in runs], clock)


def opened(run: LocalRun) -> int:
    return sum(batch is not None for batch in run._batches)


def get(view: TableView, user: User, *names: str) -> dict[str, int]:
    table = entries_table(SCHEMA, {user: Changes(False, dict.fromkeys(names, Entry(0)))})
    found = view.lookup(table.column(0).to_numpy(), table.select(SCHEMA.key_names))
    return {name: entry.value for _, name, entry in entries_of(SCHEMA, [found.rows])}


def test_one_entry_of_a_large_map_is_read_alone(write: Write) -> None:
    run = write({"ann": filled(5000), "bob": filled(10)})
    view = view_of(run)
    assert get(view, "ann", "entry-4321") == {"entry-4321": 4321}
    assert opened(run) == 1
    assert get(view, "ann", "entry-1", "nothing", "entry-2") == {"entry-1": 1, "entry-2": 2}
    assert opened(run) <= 4


def test_a_cleared_map_is_not_read(write: Write) -> None:
    older = write({"ann": filled(500)})
    newer = write({"ann": Changes(True, {"entry-7": Entry(-7)})})
    view = view_of(newer, older)
    assert get(view, "ann", "entry-6") == {}
    assert get(view, "ann", "entry-6", "entry-7", "entry-8") == {"entry-7": -7}
    assert opened(older) == 0
    assert looked_up(view, ["ann"], STRONG)[0] == {"ann": [("entry-7", Entry(-7))]}
    assert scanned(view, "ann", STRONG) == [("entry-7", Entry(-7))]


def test_a_marker_clears_older_runs_only_and_only_its_own_key(write: Write) -> None:
    oldest = write({"ann": filled(3), "bob": filled(3)})
    marked = write({"ann": Changes(True, {"entry-1": Entry(11)})})
    newest = write({"ann": Changes(False, {"entry-2": Entry(22)})})
    view = view_of(newest, marked, oldest)
    assert get(view, "ann", "entry-0", "entry-1", "entry-2") == {"entry-1": 11, "entry-2": 22}
    found, _ = looked_up(view, ["ann", "bob", "cy"], STRONG)
    assert {user: dict(entries) for user, entries in found.items()} == {
        "ann": {"entry-1": Entry(11), "entry-2": Entry(22)},
        "bob": dict(filled(3).entries),
    }


@pytest.mark.parametrize("drop", [False, True])
def test_merging_a_cleared_map_larger_than_a_piece(write: Write, drop: bool) -> None:
    """Pieces end in the middle of the map: what the marker says goes on in the next."""
    older = write({"ann": filled(3000), "bob": filled(30)})
    newer = write({"ann": Changes(True, {"new": Entry(1)}), "cy": CLEARED})
    segments = [(newer, FULL_RANGE), (older, FULL_RANGE)]
    pieces = list(merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=drop, piece_rows=250))
    merged = pa.concat_tables(pieces)
    live = merged if drop else merged.filter(pa.compute.invert(merged[TOMBSTONE]))
    users = [user for user, _, _ in entries_of(SCHEMA, [live])]
    assert (users.count("ann"), users.count("bob"), users.count("cy")) == (1, 30, 0)
    assert merged.num_rows - live.num_rows == (0 if drop else 2)
    assert merged.schema == merged_schema(SCHEMA, segments, drop_tombstones=drop)


def test_a_map_with_many_entries_is_merged_and_scanned_in_bounded_pieces(write: Write) -> None:
    newer = write({"ann": filled(4000, value=10_000)})
    older = write({"ann": filled(5000), "bob": filled(50)})
    segments = [(newer, FULL_RANGE), (older, FULL_RANGE)]
    pieces = list(merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=True, piece_rows=400))
    assert max(piece.num_rows for piece in pieces) <= 400 + 2 * 100
    merged = {(u, n): e.value for u, n, e in entries_of(SCHEMA, pieces)}
    assert len(merged) == 5050
    assert merged["ann", "entry-3999"] == 13_999
    assert merged["ann", "entry-4000"] == 4000
    assert len(scanned(view_of(newer, older), "ann", STRONG)) == 5000


def test_a_range_that_begins_inside_a_map_knows_its_marker(write: Write) -> None:
    older, newer = write({"ann": filled(1000)}), write({"ann": CLEARED})
    ann = prefix_range(STRONG.user("ann"))
    half = HashRange(ann.first + 2**31, ann.last)
    assert len(list(view_of(older).scan(half))) > 0
    assert list(view_of(newer, older).scan(half)) == []


def test_large_keys_are_named_and_left_out(write: Write) -> None:
    run = write({"ann": filled(1000), "bob": filled(20), "cy": filled(3)})
    hashes, keys = users_query(SCHEMA, ["ann", "bob", "cy", "nobody"], STRONG)
    found = view_of(run).lookup_prefix(hashes, keys, 20)
    names = keys.column(0).to_pylist()
    assert [names[i] for i in found.large] == ["ann"]
    counts = {name: int(np.sum(found.query == i)) for i, name in enumerate(names)}
    assert counts == {"ann": 0, "bob": 20, "cy": 3, "nobody": 0}
    # What lies all in one block of a large key is not even opened.
    assert opened(run) <= 6


def test_keys_with_the_same_prefix_are_told_apart() -> None:
    hashing = Hashing(lambda user: (9 << 32) | len(user or ""), lambda name: 5)
    users: dict[User, Changes] = {"a": filled(3), "bb": filled(2, value=100), "ccc": filled(1)}
    older = MemoryRun("older", entries_table(SCHEMA, users, hashing))
    newer = MemoryRun("newer", entries_table(SCHEMA, {"a": CLEARED, "bb": CLEARED}, hashing))
    found, large = looked_up(view_of(older), ["a", "bb", "ccc", "dddd"], hashing)
    assert {user: dict(entries) for user, entries in found.items()} == {
        user: dict(change.entries) for user, change in users.items()
    }
    assert not large
    for cleared in (view_of(newer, older), merged_view(newer, older)):
        found, _ = looked_up(cleared, ["a", "bb", "ccc"], hashing)
        assert found == {"ccc": [("entry-0", Entry(0))]}
        assert scanned(cleared, "a", hashing) == []


def merged_view(*runs: MemoryRun) -> TableView:
    segments = [(run, FULL_RANGE) for run in runs]
    pieces = merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=False)
    return view_of(MemoryRun("merged", pa.concat_tables(pieces)))


def test_expired_entries_are_hidden_and_merged_away(write: Write) -> None:
    older = write({"ann": Changes(False, {"a": Entry(1), "b": Entry(2)})})
    newer = write({"ann": Changes(False, {"a": Entry(10, expires=50), "c": Entry(3, expires=51)})})
    before, at = TableClock(49), TableClock(50)
    assert get(view_of(newer, older, clock=before), "ann", "a", "b") == {"a": 10, "b": 2}
    # What has expired is gone: the older value does not show again.
    assert get(view_of(newer, older, clock=at), "ann", "a", "b") == {"b": 2}
    assert get(view_of(newer, older, clock=at), "ann", "a") == {}
    assert get(view_of(newer, older, clock=at), "ann", "c") == {"c": 3}
    assert view_of(newer, older, clock=at).count() == 2
    newer_alone = [(newer, FULL_RANGE)]
    kept = pa.concat_tables(
        merge_runs(SCHEMA, newer_alone, FULL_RANGE, drop_tombstones=False, clock=at)
    )
    assert sorted(zip(kept["map_key"].to_pylist(), kept[TOMBSTONE].to_pylist(), strict=True)) == [
        ("a", True),
        ("c", False),
    ]
    gone = merge_runs(SCHEMA, newer_alone, FULL_RANGE, drop_tombstones=True, clock=at)
    assert [name for _, name, _ in entries_of(SCHEMA, gone)] == ["c"]


def test_nothing_is_found_for_no_keys_and_in_no_runs(write: Write) -> None:
    hashes, keys = users_query(SCHEMA, [], STRONG)
    found = view_of(write({"ann": filled(3)})).lookup_prefix(hashes, keys, 10)
    assert (len(found.query), found.rows.num_rows, len(found.large)) == (0, 0, 0)
    assert looked_up(view_of(), ["ann"], STRONG) == ({}, set())
    assert scanned(view_of(), "ann", STRONG) == []
    assert looked_up(view_of(write({})), ["ann"], STRONG) == ({}, set())
