"""Timed tables: what is due is read alone, once, by whoever owns the key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.errors import CorruptionError
from holdfast.state import local
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.local import LocalRun, write_local
from holdfast.state.memory import MemoryRun
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.schema import Column, TableSchema
from holdfast.state.view import TableView
from tests.state.model import SCHEMA as PLAIN
from tests.state.model import many_rows
from tests.state.timers import Timer, timer_rows, timer_table

SCHEMA = TableSchema("process.due.event", (Column(1, "user", pa.string()),), (), timed="event")


def view_of(*runs: LocalRun | MemoryRun, clock: TableClock | None = None) -> TableView:
    return TableView(SCHEMA, [(run, FULL_RANGE) for run in runs], clock)


def many_timers(count: int) -> list[Timer]:
    return [Timer(10 * i, f"user-{i % 50}") for i in range(count)]


def written(folder: Path, timers: list[Timer]) -> LocalRun:
    write_local(folder / "run", SCHEMA.arrow, [timer_table(SCHEMA, timers)])
    return LocalRun.open(folder / "run")


def test_only_the_blocks_of_due_times_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BLOCK_ROWS", 100)
    run = written(tmp_path, many_timers(2000))
    run.verify()
    run = LocalRun.open(tmp_path / "run")
    found = timer_rows(view_of(run).due(4995, 5100))
    assert [timer.time for timer in found] == list(range(5000, 5101, 10))
    assert [i for i, batch in enumerate(run._batches) if batch is not None] == [5]
    assert view_of(run).first_time(17_001) == 17_010
    assert [i for i, batch in enumerate(run._batches) if batch is not None] == [5, 17]


def test_each_partition_gets_its_own_keys() -> None:
    timers = many_timers(300)
    run = MemoryRun("new", timer_table(SCHEMA, timers))
    shares = [
        timer_rows(TableView(SCHEMA, [(run, partition_range(p, 3))]).due(None, 10**6))
        for p in range(3)
    ]
    assert all(shares)
    assert sorted(timer for share in shares for timer in share) == sorted(timers)
    firsts = [TableView(SCHEMA, [(run, partition_range(p, 3))]).first_time(0) for p in range(3)]
    assert firsts == [min(t.time for t in share if t.time > 0) for share in shares]


def test_equal_rows_of_several_runs_come_once() -> None:
    newer = MemoryRun("newer", timer_table(SCHEMA, [Timer(5, "a"), Timer(7, "b")]))
    older = MemoryRun("older", timer_table(SCHEMA, [Timer(5, "a"), Timer(5, None), Timer(9, "b")]))
    view = view_of(newer, older)
    assert set(timer_rows(view.due(None, 8))) == {Timer(5, "a"), Timer(5, None), Timer(7, "b")}
    assert view.due(5, 6).num_rows == 0
    assert view.due(9, 5).num_rows == 0
    assert view.due(None, 8).schema.equals(SCHEMA.arrow, check_metadata=True)
    assert view.count() == 4


def test_a_merge_drops_what_the_clock_has_passed() -> None:
    run = MemoryRun("run", timer_table(SCHEMA, many_timers(10)))
    segments = [(run, FULL_RANGE)]
    clock = TableClock(10**9, 50)
    assert merged_schema(SCHEMA, segments, drop_tombstones=False, clock=clock) == SCHEMA.arrow
    kept = merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=False, clock=clock)
    assert [t.time for piece in kept for t in timer_rows(piece)] == [60, 70, 80, 90]
    no_watermark = TableClock(10**9)
    kept = merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=False, clock=no_watermark)
    assert sum(piece.num_rows for piece in kept) == 10
    everything = TableClock(0, 2**63 - 1)
    kept = merge_runs(SCHEMA, segments, FULL_RANGE, drop_tombstones=True, clock=everything)
    assert list(kept) == []
    assert view_of(run, clock=everything).count() == 0
    assert view_of(run).first_time(2**63 - 1) is None


def test_a_run_without_key_hashes_is_no_timed_run() -> None:
    with pytest.raises(CorruptionError, match="plain"):
        view_of(MemoryRun("plain", many_rows(3)))
    with pytest.raises(CorruptionError, match="timed"):
        TableView(PLAIN, [(MemoryRun("timed", timer_table(SCHEMA, [])), FULL_RANGE)])
