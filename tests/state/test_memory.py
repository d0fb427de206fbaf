"""Runs in memory are like any other."""

from __future__ import annotations

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.blocks import OpenRun, read_slice, verify_blocks
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.memory import MemoryRun
from holdfast.state.view import TableView
from tests.state.model import SCHEMA, Key, found_rows, many_rows, state_rows, state_table


def test_rows_in_memory_are_a_run() -> None:
    table = pa.concat_tables([many_rows(100).slice(0, 40), many_rows(100).slice(40)])
    run: OpenRun = MemoryRun("overlay", table)
    verify_blocks(run, CorruptionError)
    halves = [list(read_slice(run, partition_range(p, 2))) for p in range(2)]
    assert sum(batch.num_rows for half in halves for batch in half) == 100
    assert state_rows(batch for half in halves for batch in half) == state_rows([table])


def test_it_overlays_older_runs_and_may_be_empty() -> None:
    first: Key = ("word-1", 0)
    newest = MemoryRun("newest", state_table({first: None}))
    empty = MemoryRun("empty", SCHEMA.arrow.empty_table())
    oldest = MemoryRun("oldest", many_rows(3))
    assert (newest.totals.rows, newest.totals.tombstones, len(empty.blocks)) == (1, 1, 0)
    view = TableView(SCHEMA, [(run, FULL_RANGE) for run in (empty, newest, oldest)])
    assert set(found_rows(view, [("word-0", 0), first])) == {("word-0", 0)}
    assert view.count() == 2
