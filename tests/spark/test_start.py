"""Where a start, or a recovery of what was started, continues."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.checkpoint.coordinator import Coordinator, Storer
from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, LAST_EPOCH, StagedOutput, entry_name
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.retention import Retention
from holdfast.driver.start import (
    Own,
    _checked_epoch,
    _may_be_damaged,
    _scratch_folder,
    _take_over,
    _where_to_continue,
    check_still_own,
)
from holdfast.errors import CorruptionError, FencedError, StorageError
from holdfast.state.version import Version
from holdfast.storage import MemoryStorage, ObjectInfo
from holdfast.storage.base import Buffer
from tests.checkpoint.log_support import checkpoint_fields, open_log


@pytest.mark.parametrize(
    ("from_entry", "recovers", "own", "expected"),
    [
        (None, False, None, False),
        (1, False, None, True),
        (1, True, None, True),
        (1, True, "whole", False),
        (1, True, "damaged", False),
    ],
)
def test_a_recovery_does_not_read_around_what_the_pipeline_itself_has_written(
    from_entry: int | None, recovers: bool, own: str | None, expected: bool
) -> None:
    storage = MemoryStorage(f"start-{from_entry}-{recovers}-{own}")
    open_log(storage).append_checkpoint(**checkpoint_fields(0))
    log = open_log(storage, "asked to start from an entry")
    if own is not None:
        number = log.append_checkpoint(**checkpoint_fields(1)).number
        if own == "damaged":
            storage.put(entry_name(number), b"damaged")
    options: Any = SimpleNamespace(from_entry=from_entry)
    since = log.claim_number if recovers else None
    assert _may_be_damaged(options, storage, since) is expected


def test_what_a_start_was_told_holds_until_the_pipelines_own_first_checkpoint() -> None:
    storage = MemoryStorage("start-told")
    open_log(storage).append_checkpoint(**checkpoint_fields(0))
    first = read_log(storage).last_checkpoint
    assert first is not None
    open_log(storage).append_checkpoint(**checkpoint_fields(1))
    log = open_log(storage, "told to start from the first")
    options: Any = SimpleNamespace(from_entry=first.number, drop_state=["old"])

    for since in (None, log.claim_number):
        entry, dropped = _where_to_continue(options, read_log(storage), since)
        assert entry is not None
        assert (entry.number, dropped) == (first.number, ["old"])
    own = log.append_checkpoint(**checkpoint_fields(2)).number
    entry, dropped = _where_to_continue(options, read_log(storage), log.claim_number)
    assert entry is not None
    assert (entry.number, dropped) == (own, ())


def test_who_claims_anew_takes_over_from_nobody_but_himself() -> None:
    storage = MemoryStorage("start-own")
    first = open_log(storage, "recovers")
    check_still_own(read_log(storage), Own())
    check_still_own(read_log(storage), Own([first.claim_number]))
    again = open_log(storage, "recovers")
    check_still_own(read_log(storage), Own([first.claim_number, again.claim_number]))
    with pytest.raises(FencedError, match="of another driver"):
        check_still_own(read_log(storage), Own([first.claim_number]))


@pytest.mark.parametrize("fails", ["reply", "listing"])
def test_an_own_claim_whose_writing_failed_is_not_taken_for_another_drivers(fails: str) -> None:
    class Shaky(MemoryStorage):
        failing = False

        def put_if_absent(self, name: str, data: Buffer) -> bool:
            # Carried out after the reply, or after whoever asked had given up.
            created = super().put_if_absent(name, data)
            self.failing = True
            if fails == "reply":
                raise StorageError("timed out")
            return created

        def get(self, name: str) -> bytes:
            if self.failing and fails == "reply":
                raise StorageError("timed out")
            return super().get(name)

        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            if self.failing and fails == "listing":
                raise StorageError("timed out")
            return super().list(prefix)

    storage = MemoryStorage(f"start-shaky-{fails}")
    mine = Own()
    mine.claims.append(open_log(storage, "recovers", nonce=mine.nonce).claim_number)
    with pytest.raises(StorageError, match="timed out"):
        open_log(Shaky(f"start-shaky-{fails}"), "recovers", nonce=mine.nonce)
    assert read_log(storage).last_number == 1
    check_still_own(read_log(storage), mine)
    open_log(storage, "another")
    with pytest.raises(FencedError, match="of another driver"):
        check_still_own(read_log(storage), mine)


def test_a_pin_that_cannot_be_read_keeps_nobody_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage("start-pin")
    storage.put("runs/0-nobodys", b"state")
    open_log(storage).append_collect((), ["runs/0-nobodys"])
    storage.put("pins/somebody", b"damaged")

    def take_over() -> None:
        valid: Any = SimpleNamespace(storage=storage, state=read_log(storage))
        log, ledger, storer = open_log(storage), Ledger(Version(-1)), cast(Storer, None)
        coordinator = Coordinator(
            log, storage, ledger, storer, {}, (), {}, Retention(), now_ms=lambda: 1
        )
        _take_over(valid, coordinator, {})

    take_over()
    assert "pin pins/somebody" in caplog.text
    assert storage.exists("runs/0-nobodys")
    storage.delete(["pins/somebody"])
    take_over()
    assert not storage.exists("runs/0-nobodys")


def test_what_a_start_publishes_is_recorded_at_once() -> None:
    storage = MemoryStorage("start-owed")
    owed = {"sink-0": (StagedOutput(0, 0, "staged/0-0-0-a", 1),)}
    open_log(storage).append_checkpoint(**checkpoint_fields(0, pending=owed, staged=owed))
    state, taken = read_log(storage), []

    class Sink:
        repeats_show = True

        def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
            taken.append((staged, maybe_repeated))

        def sweep(self, keep: Sequence[StagedOutput]) -> None:
            assert not keep

    valid: Any = SimpleNamespace(storage=storage, state=state)
    sinks: Any = {"sink-0": Sink()}
    log, ledger, storer = open_log(storage), Ledger(Version(0)), cast(Storer, None)
    coordinator = Coordinator(
        log, storage, ledger, storer, sinks, (), {}, Retention(), now_ms=lambda: 1
    )
    _take_over(valid, coordinator, sinks)
    assert taken == [(owed["sink-0"], True)]
    # Killed now, the next start delivers nothing again.
    assert not any(read_log(storage).pending.values())


def test_a_start_does_not_use_numbers_that_state_can_not_hold() -> None:
    storage = MemoryStorage("start-numbers")
    open_log(storage, "first").append_checkpoint(**checkpoint_fields(3))
    state = read_log(storage)
    assert _checked_epoch(state) == state.last_epoch
    with pytest.raises(CorruptionError, match="too many entries of the log can't be read"):
        _checked_epoch(replace(state, last_epoch=LAST_EPOCH - EPOCHS_PER_ENTRY))


_KILLED = """
import os, signal, sys, tempfile
tempfile.tempdir = sys.argv[1]
from holdfast.driver.start import _scratch_folder
scratch = _scratch_folder()
scratch.__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_scratch_of_killed_drivers_goes_and_that_of_living_ones_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    (killed,) = tmp_path.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _scratch_folder() as first, _scratch_folder() as second:
        assert not killed.exists()
        assert {first, second} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_scratch_is_not_swept_by_way_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    (tmp_path / "holdfast-scratch-link").symlink_to(tmp_path / "home")
    (tmp_path / "holdfast-scratch-file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _scratch_folder():
        assert (tmp_path / "home" / "letter").exists()
