"""The coordinator: what it deletes beside a running epoch, and what the log knows of sinks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.checkpoint.coordinator import Coordinator, StoreResult
from holdfast.checkpoint.entry import EpochRecord, StagedOutput, entry_name
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import Log, read_log
from holdfast.checkpoint.retention import Retention, list_collectable
from holdfast.errors import StorageError
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.run import LocalForm, Run, StoredForm
from holdfast.state.version import Change, Version
from holdfast.storage import LocalStorage, MemoryStorage, ObjectInfo, Storage
from tests.checkpoint.log_support import check_log, open_log

TABLE = "op.broadcast"
_names = itertools.count()


class NothingToStore:
    """Every run was stored by the task that made it."""

    def store(self, version: Version, clock: TableClock | None) -> StoreResult:
        del version, clock
        return StoreResult(())


@dataclass
class Told:
    """A sink that remembers what it was told."""

    repeats_show: bool = True
    committed: list[int] = field(default_factory=list)
    fails: bool = False

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        del staged

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        del maybe_repeated
        if self.fails:
            raise StorageError("the sink is down")
        self.committed += [output.epoch for output in staged]


@dataclass
class Driver:
    """A pipeline whose tasks store their runs and their output themselves."""

    storage: Storage
    sink: Told = field(default_factory=Told)
    keep_last: int = 10

    def __post_init__(self) -> None:
        self.log: Log = open_log(self.storage, f"driver-{next(_names)}")
        state = read_log(self.storage)
        newest = state.last_checkpoint
        self.ledger = Ledger(newest.version() if newest else Version(-1))
        self.ledger.restore_pending(state.pending)
        self.coordinator = Coordinator(
            log=self.log,
            storage=self.storage,
            ledger=self.ledger,
            storer=NothingToStore(),
            sinks={"sink": self.sink},
            schemas=(),
            program={},
            retention=Retention(self.keep_last),
            now_ms=lambda: 1,
        )
        self.coordinator.publish(restored=True)
        self.coordinator.record_acknowledged()

    def task(self, epoch: int) -> tuple[Run, StagedOutput]:
        """What a task does before anybody knows of it."""
        stem = f"{self.log.claim_number}-{epoch}-0-{next(_names)}"
        self.storage.put(f"runs/{stem}.parquet", b"state")
        self.storage.put(f"staged/{stem}.arrows", b"output")
        form = StoredForm(f"runs/{stem}.parquet", 5, "00", 1)
        run = Run(stem, TABLE, FULL_RANGE, epoch, epoch, 1, stored=form)
        return run, StagedOutput(epoch, 0, f"staged/{stem}.arrows", 1, 6)

    def record(self, run: Run, output: StagedOutput) -> None:
        self.ledger.record_epoch(
            EpochRecord(run.last_epoch, 1, 1),
            [Change(TABLE, FULL_RANGE, (), run)],
            {"sink": [output]},
            {"metadata": b"m"},
            1,
        )

    def epoch(self, number: int) -> None:
        with self.ledger.epoch():
            self.record(*self.task(number))

    def objects(self) -> set[str]:
        return set(list_collectable(self.storage))


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(f"coordinator-{next(_names)}")


def test_what_tasks_of_the_running_epoch_have_stored_is_not_collected(
    storage: MemoryStorage,
) -> None:
    driver = Driver(storage)
    driver.epoch(0)
    with driver.ledger.epoch():
        fresh = driver.task(1)
        # Lists the storage and collects: nobody has reported the run yet.
        driver.coordinator.checkpoint()
        driver.record(*fresh)
    entry = driver.coordinator.checkpoint()
    assert entry is not None
    assert entry.epoch == 1
    check_log(storage)


def test_what_a_failed_attempt_has_stored_goes_when_its_epoch_is_over(
    storage: MemoryStorage,
) -> None:
    driver = Driver(storage)
    driver.epoch(0)
    with driver.ledger.epoch():
        run, output = driver.task(1)
        driver.coordinator.checkpoint()
        assert output.name in driver.objects()
        driver.record(*driver.task(1))
    driver.coordinator.checkpoint()
    assert run.stored is not None
    assert not {run.stored.object, output.name} & driver.objects()
    check_log(storage)


def test_at_the_end_what_killed_processes_left_is_gone(tmp_path: Path) -> None:
    driver = Driver(LocalStorage(tmp_path))
    driver.epoch(0)
    entry = driver.coordinator.checkpoint()
    assert entry is not None
    driver.task(1)
    upload, trial = tmp_path / ".tmp" / "half", tmp_path / "log" / "probe-killed"
    for path in (upload, trial):
        path.write_bytes(b"state")
        os.utime(path, (0, 0))
    driver.coordinator.end()
    assert driver.objects() == entry.objects()
    assert not upload.exists()
    assert not trial.exists()


def test_what_a_background_job_has_stored_is_not_collected(storage: MemoryStorage) -> None:
    driver = Driver(storage)
    driver.epoch(0)
    driver.epoch(1)
    with driver.ledger.writing():
        name = f"runs/{driver.log.claim_number}-1-merged.parquet"
        storage.put(name, b"merged")
        driver.coordinator.checkpoint()
        assert name in driver.objects()
        run = Run("0-merged", TABLE, FULL_RANGE, 0, 1, 1, stored=StoredForm(name, 6, "00", 1))
        inputs = tuple(s.run.name for s in driver.ledger.version.segments(TABLE, FULL_RANGE))
        driver.ledger.install([Change(TABLE, FULL_RANGE, inputs, run)])
    driver.epoch(2)
    driver.coordinator.checkpoint()
    assert name in driver.objects()
    check_log(storage)


def test_a_clean_end_leaves_nothing_owed(storage: MemoryStorage) -> None:
    driver = Driver(storage, Told(repeats_show=False))
    driver.epoch(0)
    driver.coordinator.checkpoint()
    assert read_log(storage).pending["sink"] != ()
    driver.coordinator.end()
    assert read_log(storage).pending == {}
    assert Driver(storage).sink.committed == []


def test_what_was_acknowledged_before_a_kill_is_not_delivered_again(storage: MemoryStorage) -> None:
    driver = Driver(storage)
    driver.epoch(0)
    driver.epoch(1)
    driver.coordinator.checkpoint()
    assert driver.sink.committed == [0, 1]
    # Killed here. The next driver is killed before its first checkpoint.
    for _ in range(2):
        assert Driver(storage).sink.committed == []


def test_what_a_start_delivers_is_recorded_before_its_first_checkpoint(
    storage: MemoryStorage,
) -> None:
    driver = Driver(storage, Told(fails=True))
    driver.epoch(0)
    driver.coordinator.checkpoint()
    assert Driver(storage).sink.committed == [0]
    assert Driver(storage).sink.committed == []


def test_what_is_taken_without_a_new_epoch_is_recorded(storage: MemoryStorage) -> None:
    driver = Driver(storage)
    driver.sink.fails = True
    driver.epoch(0)
    driver.coordinator.checkpoint()
    driver.sink.fails = False
    assert driver.coordinator.checkpoint() is None
    assert driver.sink.committed == [0]
    assert not any(read_log(storage).pending.values())


def test_a_sink_that_failed_is_still_owed_what_it_did_not_take(storage: MemoryStorage) -> None:
    driver = Driver(storage)
    driver.epoch(0)
    driver.coordinator.checkpoint()
    driver.sink.fails = True
    driver.epoch(1)
    driver.coordinator.checkpoint()
    driver.coordinator.end()
    assert Driver(storage).sink.committed == [1]


def test_what_is_to_be_stored_stays_though_the_epoch_in_hand_merges_it(
    storage: MemoryStorage,
) -> None:
    driver = Driver(storage)
    fresh = Run("0-0-fresh", TABLE, FULL_RANGE, 0, 0, 1, local=LocalForm(5, "00"))
    merged = Run("0-1-merged", TABLE, FULL_RANGE, 0, 1, 1, local=LocalForm(5, "00"))
    _, output = driver.task(0)
    driver.record(fresh, output)
    seen: list[set[str]] = []

    class Late:
        """A job that comes to its work when the epoch beside it has just ended."""

        def store(self, version: Version, clock: TableClock | None) -> StoreResult:
            del version, clock
            change = Change(TABLE, FULL_RANGE, (fresh.name,), merged)
            driver.ledger.record_epoch(EpochRecord(1, 1, 1), [change], {}, {"metadata": b"m"}, 1)
            epoch.close()
            seen.append(driver.ledger.live_runs())
            with driver.ledger.busy([fresh.name]):
                pass
            seen.append(driver.ledger.live_runs())
            return StoreResult((), StorageError("not now"))

    with ExitStack() as epoch:
        epoch.enter_context(driver.ledger.epoch())
        driver.coordinator.storer = Late()
        driver.coordinator.checkpoint()
    assert seen == [{fresh.name, merged.name}] * 2
    assert driver.ledger.live_runs() == {merged.name}


@pytest.mark.parametrize("lost", ["damaged", "missing"])
@pytest.mark.parametrize("fails", [True, False])
def test_what_is_owed_by_an_entry_that_was_left_is_kept_until_it_is_taken(
    storage: MemoryStorage, lost: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = Driver(storage, Told(repeats_show=False))
    first.epoch(0)
    first.coordinator.checkpoint()
    first.sink.fails = True
    first.epoch(1)
    newest = first.coordinator.checkpoint()
    first.coordinator.end()
    first.log.append_collect((), ())
    assert newest is not None
    if lost == "damaged":
        storage.put(entry_name(newest.number), b"damaged")
    else:
        storage.delete([entry_name(newest.number)])
    open_log(storage, "starts from an older entry", damaged_ok=True)
    second = Driver(storage, Told(repeats_show=False, fails=fails))
    second.coordinator.checkpoint()
    second.coordinator.end()
    owed = read_log(storage).pending.get("sink", ())
    assert [output.epoch for output in owed] == ([1] if fails else [])
    assert {output.name for output in owed} <= second.objects()
    assert "could not be collected" not in caplog.text
    check_log(storage)


def test_what_a_collect_says_is_owed_stays_as_long_as_it_counts(storage: MemoryStorage) -> None:
    first = Driver(storage)
    first.epoch(0)
    first.coordinator.checkpoint()
    first.sink.fails = True
    first.epoch(1)
    newest = first.coordinator.checkpoint()
    assert newest is not None
    told = first.log.append_collect((), ())
    storage.delete([entry_name(newest.number)])
    open_log(storage, "starts from an older entry", damaged_ok=True)
    second = Driver(storage)
    second.coordinator.end()
    # Whatever is behind it is damaged: then it is the last that says what is owed.
    for number in second.log.state().numbers:
        if number > told.number:
            storage.put(entry_name(number), b"damaged")
    owed = read_log(storage, damaged_ok=True).pending["sink"]
    assert [output.epoch for output in owed] == [1]
    assert {output.name for output in owed} <= second.objects()


def test_nothing_is_collected_while_a_retained_entry_cannot_be_read(
    storage: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    first = Driver(storage, keep_last=3)
    for number in range(3):
        first.epoch(number)
        first.coordinator.checkpoint()
    damaged = next(entry for entry in first.log.checkpoints() if entry.epoch == 1)
    before = damaged.objects()
    whole = storage.get(entry_name(damaged.number))
    storage.put(entry_name(damaged.number), b"damaged")
    second = Driver(storage, keep_last=3)
    second.epoch(3)
    second.coordinator.checkpoint()
    assert f"log entry {damaged.number} can't be read" in caplog.text
    storage.put(entry_name(damaged.number), whole)
    assert before <= second.objects()
    check_log(storage)


class Unlisted(MemoryStorage):
    """A storage that can't list a folder for a while."""

    failing = ""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        if self.failing and prefix.startswith(self.failing):
            raise StorageError(f"{prefix} can't be listed now")
        return super().list(prefix)


def test_a_look_at_the_fence_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(Unlisted(f"unlisted-{next(_names)}"))
    driver.epoch(0)

    def fails() -> None:
        raise StorageError("log/ can't be listed now")

    with monkeypatch.context() as patch:
        patch.setattr(driver.log, "check_not_fenced", fails)
        driver.coordinator.checkpoint()
        assert "can't be listed now" in str(driver.coordinator.publish_error)
    driver.coordinator.checkpoint()
    assert driver.coordinator.publish_error is None
    assert driver.sink.committed == [0]


def test_a_collection_that_cannot_be_planned_does_not_keep_acknowledgements_out_of_the_log() -> (
    None
):
    storage = Unlisted(f"unlisted-{next(_names)}")
    driver = Driver(storage)
    driver.epoch(0)
    storage.failing = "pins/"
    driver.coordinator.checkpoint()
    driver.coordinator.end()
    storage.failing = ""
    assert Driver(storage).sink.committed == []
