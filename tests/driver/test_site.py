"""Local files: what nobody names goes, and what somebody may be about to name stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checkpoint.coordinator import Coordinator, StoreResult
from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.retention import Retention
from holdfast.driver.local_files import LocalFiles
from holdfast.driver.site import LocalSite
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.run import LocalForm, Run, StoredForm
from holdfast.state.version import Change, Version
from holdfast.storage import MemoryStorage
from holdfast.tiers.opener import local_path
from tests.checkpoint.log_support import open_log

TABLE = "op.groups"


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(tmp_path / "local", "p", "memory://local-files")
    files.open(0, None)
    return files


def written(files: LocalFiles, name: str, first: int, last: int, *, stored: bool = False) -> Run:
    local_path(files.folder, name).write_bytes(b"rows")
    form = StoredForm(f"runs/{name}", 4, "00", 1) if stored else None
    return Run(name, TABLE, FULL_RANGE, first, last, 1, local=LocalForm(4, "00"), stored=form)


def record(ledger: Ledger, output: Run, *inputs: str) -> None:
    change = Change(TABLE, FULL_RANGE, inputs, output)
    ledger.record_epoch(EpochRecord(output.last_epoch, 1, 1), [change], {}, {}, 1)


def on_disk(files: LocalFiles) -> set[str]:
    return {path.stem for path in files.folder.iterdir()}


def test_the_file_of_a_background_result_that_was_dropped_goes(files: LocalFiles) -> None:
    ledger, site = Ledger(Version(-1)), LocalSite(files)
    with ledger.epoch():
        record(ledger, written(files, "0-0-a", 0, 0))
    site.retire(ledger)
    with ledger.epoch():
        # A checkpoint stores what the epoch merges meanwhile.
        result = Change(TABLE, FULL_RANGE, ("0-0-a",), written(files, "0-0-s", 0, 0, stored=True))
        site.learn([result], {})
        ledger.install([result])
        record(ledger, written(files, "0-1-m", 0, 1), "0-0-a")
    site.retire(ledger)
    assert on_disk(files) == {"0-1-m"}


def test_what_a_failed_attempt_left_goes_when_nobody_can_be_writing_it(files: LocalFiles) -> None:
    ledger, site = Ledger(Version(-1)), LocalSite(files)
    with ledger.epoch():
        written(files, "0-0-failed", 0, 0)
        (files.folder / "spill-1234.tmp").write_bytes(b"rows")
        record(ledger, written(files, "0-0-a", 0, 0))
    with ledger.writing():
        # A background job's file, which it will report.
        merged = written(files, "0-0-s", 0, 0, stored=True)
        site.retire(ledger)
        assert on_disk(files) == {"0-0-failed", "spill-1234", "0-0-a", "0-0-s"}
        ledger.install([Change(TABLE, FULL_RANGE, ("0-0-a",), merged)])
    with ledger.epoch():
        record(ledger, written(files, "0-1-b", 1, 1))
    site.retire(ledger)
    assert on_disk(files) == {"0-0-s", "0-1-b"}


def test_what_a_killed_worker_was_fetching_goes_though_its_run_lives(files: LocalFiles) -> None:
    ledger, site = Ledger(Version(-1)), LocalSite(files)
    with ledger.epoch():
        (files.folder / "0-0-a.run.123-4.tmp").write_bytes(b"ro")
        record(ledger, written(files, "0-0-a", 0, 0))
    site.retire(ledger)
    assert on_disk(files) == {"0-0-a"}


def test_the_file_of_a_background_result_stays_until_it_is_installed(files: LocalFiles) -> None:
    ledger, site = Ledger(Version(-1)), LocalSite(files)
    with ledger.epoch():
        record(ledger, written(files, "0-0-a", 0, 0))
    result = Change(TABLE, FULL_RANGE, ("0-0-a",), written(files, "0-0-s", 0, 0, stored=True))
    with ledger.writing():
        ledger.expect([result])
        site.learn([result], {})
        # An epoch ends before the checkpoint's thread goes on.
        site.retire(ledger)
        ledger.install([result])
    site.retire(ledger)
    assert on_disk(files) == {"0-0-s"}


def test_what_a_checkpoint_is_writing_stays(files: LocalFiles) -> None:
    storage, ledger, site = MemoryStorage("site-writing"), Ledger(Version(-1)), LocalSite(files)

    class Storer:
        def store(self, version: Version, clock: TableClock | None) -> StoreResult:
            merged = written(files, "0-0-s", 0, 0, stored=True)
            # An epoch ends before anybody knows of the file.
            site.retire(ledger)
            return StoreResult((Change(TABLE, FULL_RANGE, ("0-0-a",), merged),))

    coordinator = Coordinator(
        log=open_log(storage),
        storage=storage,
        ledger=ledger,
        storer=Storer(),
        sinks={},
        schemas=(),
        program={},
        retention=Retention(),
        now_ms=lambda: 1,
    )
    with ledger.epoch():
        record(ledger, written(files, "0-0-a", 0, 0))
    assert coordinator.checkpoint() is not None
    assert "0-0-s" in on_disk(files)
