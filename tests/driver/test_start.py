"""What a start finishes before it begins, and the folder that it lends Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.checkpoint.coordinator import Coordinator, Storer
from holdfast.checkpoint.entry import StagedOutput
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.retention import Retention
from holdfast.driver.start import _scratch_folder, _take_over
from holdfast.state.version import Version
from holdfast.storage import MemoryStorage
from tests.checkpoint.log_support import checkpoint_fields, open_log


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
            log=log,
            storage=storage,
            ledger=ledger,
            storer=storer,
            sinks={},
            schemas=(),
            program={},
            retention=Retention(),
            now_ms=lambda: 1,
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
        log=log,
        storage=storage,
        ledger=ledger,
        storer=storer,
        sinks=sinks,
        schemas=(),
        program={},
        retention=Retention(),
        now_ms=lambda: 1,
    )
    _take_over(valid, coordinator, sinks)
    assert taken == [(owed["sink-0"], True)]
    # Killed now, the next start delivers nothing again.
    assert not any(read_log(storage).pending.values())


_KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.driver.start import _scratch_folder
scratch = _scratch_folder(Path(sys.argv[1]))
scratch.__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_scratch_of_killed_drivers_goes_and_that_of_living_ones_stays(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    (killed,) = tmp_path.iterdir()
    with _scratch_folder(tmp_path) as first, _scratch_folder(tmp_path) as second:
        assert not killed.exists()
        assert {first, second} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_scratch_is_not_swept_by_way_of_links(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    (tmp_path / "holdfast-scratch-link").symlink_to(tmp_path / "home")
    (tmp_path / "holdfast-scratch-file").touch()
    with _scratch_folder(tmp_path):
        assert (tmp_path / "home" / "letter").exists()
