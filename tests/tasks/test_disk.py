"""What a host's disk has is found out by looking, and put in order."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.state.hashing import FULL_RANGE
from holdfast.state.local import write_local
from holdfast.state.run import Run
from holdfast.storage import MemoryStorage
from holdfast.tasks.disk import (
    decode_runs,
    fetch_runs,
    leave_mark,
    probe,
    remove_marks,
    see_marks,
    survey,
    tidy,
)
from holdfast.tiers.opener import local_path
from holdfast.tiers.stored_copy import copy_path, write_copy
from holdfast.tiers.storing import store_run

ROWS = pa.table(
    {"hash": pa.array([1, 2], pa.uint64()), "word": ["a", "b"]},
    schema=pa.schema([pa.field("hash", pa.uint64(), nullable=False), ("word", pa.string())]),
)


def run_of(folder: Path, name: str) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    info = write_local(local_path(folder, name), ROWS.schema, [ROWS])
    return Run(name, "words.sums", FULL_RANGE, 7, 7, info.rows, local=info.form)


def test_what_earlier_claims_have_is_taken_over_and_the_rest_goes(tmp_path: Path) -> None:
    kept = run_of(tmp_path / "3", "3-1-0-a")
    run_of(tmp_path / "3", "3-2-0-b")
    bad = run_of(tmp_path / "1", "1-9-0-c")
    local_path(tmp_path / "1", bad.name).write_bytes(b"nonsense")
    newer = run_of(tmp_path / "8", "8-0-0-d")
    found = survey(tmp_path, 5, {run.name: run for run in (kept, bad, newer)})
    assert (found.runs, found.error) == ((kept.name,), "")
    assert [path.name for path in (tmp_path / "5").iterdir()] == [f"{kept.name}.run"]
    # A driver with a higher claim may be at work there.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5", "8"]


def stored_run(storage: MemoryStorage, name: str, claim_folder: Path) -> Run:
    """A run of which the folder has a copy of the stored form only."""
    run = store_run(storage, run_of(claim_folder, name), [ROWS], ROWS.schema)
    local_path(claim_folder, name).unlink()
    write_copy(run, storage, copy_path(claim_folder, name))
    return run


def test_copies_of_stored_runs_are_taken_over_as_well(tmp_path: Path) -> None:
    storage = MemoryStorage("ck")
    kept, bad = (stored_run(storage, name, tmp_path / "3") for name in ("3-1-0-a", "3-1-0-b"))
    copy_path(tmp_path / "3", bad.name).write_bytes(b"nonsense")
    found = survey(tmp_path, 5, {run.name: run for run in (kept, bad)})
    assert (found.runs, found.error) == ((kept.name,), "")
    assert [path.name for path in (tmp_path / "5").iterdir()] == [f"{kept.name}.parquet"]


def test_runs_are_fetched_as_they_are_and_decoded_some_at_a_time(tmp_path: Path) -> None:
    storage = MemoryStorage("ck")
    runs = [stored_run(storage, f"3-{n}-0-a", tmp_path / "written") for n in range(3)]
    folder = tmp_path / "here"
    assert fetch_runs(folder, storage, runs, 3).runs == tuple(run.name for run in runs)
    assert all(copy_path(folder, run.name).exists() for run in runs)
    empty = MemoryStorage("empty")
    decoded = []
    while some := decode_runs(folder, empty, runs, 3, most_bytes=1).runs:
        decoded.append(some)
    assert decoded == [(run.name,) for run in runs]
    assert sorted(path.name for path in folder.glob("3-*") if path.suffix != ".lock") == [
        f"{run.name}.run" for run in runs
    ]


def test_a_run_that_cannot_be_fetched_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    storage = MemoryStorage("ck")
    good, gone = (stored_run(storage, name, tmp_path / "3") for name in ("3-1-0-a", "3-1-0-b"))
    assert gone.stored is not None
    storage.delete([gone.stored.object])
    found = fetch_runs(tmp_path / "here", storage, [gone, good], 3)
    assert found.runs == (good.name,)
    assert gone.name in found.error


def test_a_folder_that_is_not_there_yet_is_tried_and_not_made(tmp_path: Path) -> None:
    assert probe(tmp_path / "not" / "yet").error == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("in the way")
    assert "Not a directory" in probe(tmp_path / "local").error
    assert "local" in survey(tmp_path / "local", 1, {}).error


@pytest.mark.parametrize(
    "left",
    [
        "0-1-0-x.run",
        "0-1-0-x.run.123-4.tmp",
        "0-1-0-x.lock",
        "0-1-0-live.parquet.123-xx.tmp",  # half a copy of a run that lives
    ],
)
def test_what_failed_attempts_left_goes_after_a_while(tmp_path: Path, left: str) -> None:
    live = run_of(tmp_path, "0-1-0-live")
    old, young = tmp_path / left, tmp_path / left.replace("-x", "-y", 1)
    for path in (old, young):
        path.touch()
    for path in (old, local_path(tmp_path, live.name)):
        os.utime(path, (1, 1))
    tidy(tmp_path, frozenset({live.name}))
    assert not old.exists()
    assert young.exists()
    assert local_path(tmp_path, live.name).exists()


def test_marks_are_seen_and_removed(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    assert see_marks(marks) == []
    assert leave_mark(marks, "1")
    leave_mark(marks, "0")
    assert see_marks(marks) == ["0", "1"]
    remove_marks(marks)
    assert list(tmp_path.iterdir()) == []


def test_a_mark_that_can_not_be_left_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not leave_mark(tmp_path / "file" / "marks", "0")
    assert see_marks(tmp_path / "file" / "marks") == []
