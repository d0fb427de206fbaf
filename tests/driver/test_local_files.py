"""The local folder: whose it is, which files in it are trusted, and what goes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.checkpoint.log import read_log
from holdfast.driver.local_files import LocalFiles
from holdfast.driver.restore import prepare_runs
from holdfast.errors import ConfigurationError
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.local import LocalRun, write_local
from holdfast.state.run import Run
from holdfast.storage import MemoryStorage, Storage
from holdfast.tasks.disk import probe, survey
from holdfast.tiers.opener import local_path
from holdfast.tiers.storing import store_run
from tests.checkpoint.log_support import checkpoint_fields, open_log

SCHEMA = pa.schema([pa.field("hash", pa.uint64(), nullable=False), ("n", pa.int64())])


def rows(n: int) -> pa.Table:
    return pa.Table.from_arrays([pa.array([1], pa.uint64()), pa.array([n])], schema=SCHEMA)


def files_in(folder: Path) -> LocalFiles:
    return LocalFiles(folder, "p", "memory://ck")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_for_this_user_alone(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    files = files_in(tmp_path / "tmp" / "holdfast-7")
    files.check()
    files.open(0, None)
    assert {mode(path) for path in (files.root.parent, files.root, files.folder)} == {0o700}


def test_a_folder_that_an_earlier_version_made_readable_is_closed(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.root.mkdir(0o755)
    files.check()
    files.open(0, None)
    assert mode(files.root) == 0o700


def a_link(root: Path) -> None:
    (root.parent / "elsewhere").mkdir(0o700)
    root.symlink_to(root.parent / "elsewhere")


def open_to_all(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "why"), [(a_link, "symbolic link"), (open_to_all, "other users can write")]
)
def test_a_folder_that_others_may_have_filled_is_refused(
    tmp_path: Path, make: object, why: str
) -> None:
    files = files_in(tmp_path)
    assert callable(make)
    make(files.root)
    with pytest.raises(ConfigurationError, match=rf"can't be trusted.*{why}.*local_dir="):
        files.check()
    for found in (probe(files.root), survey(files.root, 1, {})):
        assert why in found.error
    assert list(files.root.iterdir()) == []


@pytest.mark.parametrize("made_first", ["holdfast-7", "holdfast-7/p"])
def test_a_folder_that_somebody_else_made_first_is_refused(
    tmp_path: Path, made_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    files = files_in(shared / "holdfast-7")
    theirs = shared / made_first.replace("/p", f"/{files.root.name}")
    theirs.mkdir(0o700, parents=True)
    files.check()
    someone = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone)
    if theirs.stat().st_uid == 0 and theirs != files.root:
        os.chown(theirs, someone + 1, -1)  # what root made is fine above the folder
    with pytest.raises(ConfigurationError, match=r"belongs to another user"):
        files.check()
    assert "belongs to another user" in probe(files.root).error


def written(files: LocalFiles, claim: int, storage: Storage) -> Run:
    """A run of a checkpoint, with its file in the folder of a claim."""
    folder = files.root / str(claim)
    folder.mkdir(0o700, parents=True)
    info = write_local(local_path(folder, f"{claim}-0-x"), SCHEMA, [rows(100)])
    run = Run(f"{claim}-0-x", "op.groups", FULL_RANGE, 0, 0, 1, local=info.form)
    run = store_run(storage, run, [rows(100)], SCHEMA)
    log = open_log(storage)
    log.append_checkpoint(**checkpoint_fields(0, runs=(run,)))
    return run


def value(path: Path) -> int:
    found: int = LocalRun.open(path).block(0).column(1)[0].as_py()
    return found


def test_a_file_with_as_many_rows_is_not_taken_for_the_run(tmp_path: Path) -> None:
    storage, files = MemoryStorage("forged"), files_in(tmp_path)
    run = written(files, 0, storage)
    write_local(local_path(files.root / "0", run.name), SCHEMA, [rows(999)])
    state = read_log(storage)
    assert state.last_checkpoint is not None
    folder = prepare_runs(state.last_checkpoint, state, storage, files)
    assert value(local_path(folder, run.name)) == 100
    files.discard(folder)
    assert survey(files.root, 5, {run.name: run}).runs == ()


def test_a_file_that_was_decoded_from_the_stored_form_is_taken_over(tmp_path: Path) -> None:
    storage, files = MemoryStorage("decoded"), files_in(tmp_path)
    run = written(files, 0, storage)
    local_path(files.root / "0", run.name).unlink()
    state = read_log(storage)
    assert state.last_checkpoint is not None
    files.open(1, prepare_runs(state.last_checkpoint, state, storage, files))
    assert run.stored is not None
    storage.delete([run.stored.object])
    folder = prepare_runs(state.last_checkpoint, state, storage, files)
    assert value(local_path(folder, run.name)) == 100
    assert survey(files.root, 5, {run.name: run}).runs == (run.name,)


def test_what_killed_starts_prepared_goes_and_what_a_start_prepares_now_stays(
    tmp_path: Path,
) -> None:
    files = files_in(tmp_path)
    (files.root / f"prepare-{0:032x}").mkdir(parents=True)
    (files.root / f"prepare-{0:032x}" / "0-0-x.run").touch()
    other = files_in(tmp_path)
    prepared = other.prepare()
    files.open(0, files.prepare())
    assert {path.name for path in files.root.iterdir()} == {"0", prepared.name}
    other.discard(prepared)
    assert [path.name for path in files.root.iterdir()] == ["0"]
