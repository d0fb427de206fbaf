from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.checkpoint.entry import entry_name
from holdfast.checkpoint.log import Log, LogMovedError, read_log
from holdfast.checkpoint.log_state import list_entries
from holdfast.checkpoint.pins import pin, read_pins, unpin
from holdfast.checkpoint.retention import (
    CollectPlan,
    Retention,
    collect,
    finish_collection,
    list_collectable,
    plan_collection,
)
from holdfast.errors import ConfigurationError, FencedError, StorageError
from holdfast.failpoints import arm, disarm
from holdfast.storage import Storage
from tests.checkpoint.log_support import (
    FlakyStorage,
    check_log,
    check_nothing_is_left_over,
    checkpoint_fields,
    open_log,
)

_names = itertools.count()
TWO = Retention(keep_last=2)


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage(f"retention-{next(_names)}")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


def checkpoint(log: Log, epoch: int, *objects: str, **more: Any) -> int:
    """A checkpoint that names these objects of the claim; its number."""
    names = [name if "/" in name else f"runs/{log.claim_number}-{name}" for name in objects]
    for name in names:
        log.storage.put(name, b"x")
    return log.append_checkpoint(**checkpoint_fields(epoch, names, **more)).number


def plan(log: Log, retention: Retention = TWO, **more: Any) -> CollectPlan:
    options: dict[str, Any] = {"live_objects": (), "now_ms": 0, **more}
    return plan_collection(log.state(), retention, read_pins(log.storage), **options)


def collect_all(log: Log, retention: Retention = TWO) -> None:
    collect(log, log.storage, plan(log, retention, unnamed=list_collectable(log.storage)))


# Planning


def test_the_newest_checkpoints_stay_and_what_only_older_ones_name_goes(
    storage: FlakyStorage,
) -> None:
    log = open_log(storage)
    for epoch, objects in enumerate(("ab", "bc", "cd", "de")):
        checkpoint(log, epoch, *objects)
    found = plan(log)
    assert found == CollectPlan((0, 1, 2), ("runs/0-a", "runs/0-b"), last_number=4)


def test_the_only_checkpoint_stays_and_old_claims_alone_are_not_worth_an_entry(
    storage: FlakyStorage,
) -> None:
    for _ in range(5):
        log = open_log(storage)
        assert not plan(log, Retention(1))
    checkpoint(log, 0, "a")
    assert not plan(log, Retention(1))
    checkpoint(log, 1, "b")
    assert plan(log, Retention(1)).entries == (0, 1, 2, 3, 4, 5)


def test_young_checkpoints_stay_whatever_their_number(storage: FlakyStorage) -> None:
    times = iter([0, 1_000, 2_000, 3_000, 4_000, 5_000])
    log = open_log(storage, now_ms=lambda: next(times))
    for epoch in range(5):
        checkpoint(log, epoch, str(epoch))
    assert plan(log, Retention(1, keep_for_s=3.0), now_ms=6_000).entries == (0, 1, 2)
    assert plan(log, Retention(1, keep_for_s=3.001), now_ms=6_000).entries == (0, 1, 2)
    assert plan(log, Retention(1, keep_for_s=4.0), now_ms=6_000).entries == (0, 1)
    assert plan(log, Retention(4, keep_for_s=0.0), now_ms=6_000).entries == (0, 1)
    assert not plan(log, Retention(1, keep_for_s=100.0), now_ms=6_000)


def test_savepoints_stay_with_their_objects(storage: FlakyStorage) -> None:
    log = open_log(storage)
    checkpoint(log, 0, "a", "b")
    saved = checkpoint(log, 1, "b", "c", savepoint="before-the-change")
    for epoch in range(2, 6):
        checkpoint(log, epoch, str(epoch))
    found = plan(log)
    assert saved not in found.entries
    assert found.objects == ("runs/0-2", "runs/0-3", "runs/0-a")
    collect(log, storage, found)
    check_log(storage)
    assert [c.epoch for c in read_log(storage).checkpoints()] == [5, 4, 1]
    assert read_log(storage).last_collect is not None
    for epoch in range(6, 9):
        checkpoint(log, epoch, str(epoch))
    collect_all(log)
    assert [c.epoch for c in read_log(storage).checkpoints()] == [8, 7, 1]
    check_nothing_is_left_over(storage)


def test_a_savepoint_that_is_the_newest_checkpoint_does_not_push_others_out(
    storage: FlakyStorage,
) -> None:
    log = open_log(storage)
    for epoch in range(3):
        checkpoint(log, epoch)
    checkpoint(log, 3, savepoint="s")
    assert plan(log).entries == (0, 1)


def test_pinned_checkpoints_stay_until_they_are_released(storage: FlakyStorage) -> None:
    log = open_log(storage)
    first = checkpoint(log, 0, "a")
    pin(storage, first, "fork", pin_id="p", now_ms=0)
    for epoch in range(1, 5):
        checkpoint(log, epoch, str(epoch))
    collect_all(log)
    assert storage.exists("runs/0-a")
    assert [c.epoch for c in read_log(storage).checkpoints()] == [4, 3, 0]
    unpin(storage, "p")
    checkpoint(log, 5)
    collect_all(log)
    assert not storage.exists("runs/0-a")
    check_nothing_is_left_over(storage)


def test_what_the_driver_uses_or_writes_stays(storage: FlakyStorage) -> None:
    log = open_log(storage)
    for epoch, name in enumerate("abcdef"):
        checkpoint(log, epoch, name)
    live, in_flight = {"runs/0-a"}, {"runs/0-c", "staged/0-x"}
    storage.put("staged/0-x", b"")
    found = plan(log, live_objects=live, in_flight=in_flight, unnamed=["staged/0-x"])
    assert found.objects == ("runs/0-b", "runs/0-d")


def test_unnamed_objects_go_unless_their_claim_is_higher_or_unknown(storage: FlakyStorage) -> None:
    open_log(storage, "a")
    log = open_log(storage, "b")
    checkpoint(log, 0, "named")
    there = [
        *("runs/0-x", "runs/1-y.parquet", "blobs/0-b", "staged/e=1/0-s", "runs/1-named"),
        *("runs/2-higher", "runs/10-higher", "runs/other", "runs/-5", "keep/0-x", "runs/0x-1"),
    ]
    for name in there:
        if name != "runs/-5":
            storage.put(name, b"x")
    found = plan(log, unnamed=there)
    assert found.objects == ("blobs/0-b", "runs/0-x", "runs/1-y.parquet", "staged/e=1/0-s")
    assert set(list_collectable(storage)) == {n for n in there if n not in ("keep/0-x", "runs/-5")}


@pytest.mark.parametrize(
    "bad", [{"keep_last": 0}, {"keep_for_s": -1.0}, {"keep_for_s": float("nan")}]
)
def test_retention_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="keep_"):
        Retention(**bad)


# Collecting


def filled(storage: Storage) -> Log:
    log = open_log(storage)
    for epoch, name in enumerate("abcde"):
        checkpoint(log, epoch, name)
    return log


def test_objects_are_deleted_only_after_the_entry_that_names_them(storage: FlakyStorage) -> None:
    log = filled(storage)
    before = list_collectable(storage)
    seen: list[list[str]] = []
    arm("collect.before_entry", lambda: seen.append(list_collectable(storage)))
    arm("collect.after_entry", lambda: seen.append(list_collectable(storage)))
    arm("collect.after_objects", lambda: seen.append(list(map(str, list_entries(storage)))))
    entry = collect(log, storage, plan(log))
    assert seen == [before, before, ["0", "1", "2", "3", "4", "5", "6"]]
    assert entry.objects == ("runs/0-a", "runs/0-b", "runs/0-c")
    assert list_entries(storage) == [4, 5, 6]
    check_nothing_is_left_over(storage)


@pytest.mark.parametrize("point", ["collect.after_entry", "collect.after_objects"])
def test_a_deletion_that_failed_is_done_by_the_same_driver_later(
    storage: FlakyStorage, point: str
) -> None:
    log = filled(storage)
    arm(point, "fail")
    with pytest.raises(OSError, match="failpoint"):
        collect(log, storage, plan(log))
    disarm()
    checkpoint(log, 9, "f")
    assert "runs/0-a" in plan(log).objects
    collect(log, storage, plan(log))
    check_nothing_is_left_over(storage)


@pytest.mark.parametrize("point", ["collect.after_entry", "collect.after_objects"])
def test_a_deletion_that_was_cut_short_is_done_by_the_next_driver(
    storage: FlakyStorage, point: str
) -> None:
    log = filled(storage)
    arm(point, "fail")
    with pytest.raises(OSError, match="failpoint"):
        collect(log, storage, plan(log))
    disarm()
    again = open_log(storage, "again")
    finish_collection(again, storage)
    check_nothing_is_left_over(storage)
    assert list_entries(storage) == [4, 5, 6, 7]


def test_finishing_spares_what_a_later_entry_names_again(storage: FlakyStorage) -> None:
    log = filled(storage)
    collect(log, storage, plan(log))
    checkpoint(log, 9, "runs/0-a")  # against the rule that names are never used again
    again = open_log(storage, "again")
    finish_collection(again, storage)
    check_log(storage)


def test_finishing_with_nothing_to_do_does_nothing(storage: FlakyStorage) -> None:
    log = open_log(storage)
    finish_collection(log, storage)
    assert list_entries(storage) == [0]


def test_a_fenced_driver_deletes_nothing(storage: FlakyStorage) -> None:
    for point in ("collect.before_entry", "collect.after_entry", "collect.after_objects"):
        storage = FlakyStorage(f"retention-{next(_names)}")
        log = filled(storage)
        found = plan(log)
        left: list[str] = []

        def take_over(storage: FlakyStorage = storage, left: list[str] = left) -> None:
            open_log(storage, "other")
            left += [info.name for info in storage.list()]

        arm(point, take_over)
        with pytest.raises(FencedError):
            collect(log, storage, found)
        disarm()
        assert [info.name for info in storage.list()] == left
        check_log(storage)


def test_a_stray_entry_is_collected_with_what_only_it_names(storage: FlakyStorage) -> None:
    sleeper = open_log(storage, "sleeper")
    checkpoint(sleeper, 0, "shared")
    other = open_log(storage, "other")
    for epoch in range(1, 4):
        checkpoint(other, epoch, "runs/0-shared", f"{epoch}")
    collect_all(other)
    storage.put("runs/0-mine", b"x")
    with pytest.raises(FencedError):
        sleeper.append_checkpoint(
            **checkpoint_fields(1, ["runs/0-mine", "runs/0-shared"], savepoint="for-ever")
        )
    assert 2 in list_entries(storage)
    checkpoint(other, 4, "runs/0-shared")
    collect(other, storage, plan(other))
    assert 2 not in list_entries(storage)
    assert not storage.exists("runs/0-mine")
    assert storage.exists("runs/0-shared")
    check_nothing_is_left_over(storage)


def test_a_damaged_old_entry_does_not_stand_in_the_way(storage: FlakyStorage) -> None:
    log = filled(storage)
    storage.put(entry_name(2), b"damaged")
    again = open_log(storage, "again")
    checkpoint(again, 9, "z")
    collect_all(again)
    check_log(storage)
    check_nothing_is_left_over(storage)
    assert log.claim_number < again.claim_number


# A pin and a collection that meet


def test_a_pin_that_comes_after_the_plan_and_before_the_entry_is_respected(
    storage: FlakyStorage,
) -> None:
    log = filled(storage)
    found = plan(log)
    assert 1 in found.entries
    made = pin(storage, 1, "fork", pin_id="p", now_ms=0)
    collect(log, storage, found)
    assert made.entry in list_entries(storage)
    assert storage.exists("runs/0-a")
    assert not storage.exists("runs/0-b")
    # Nor is it lost later, by this driver or the next one.
    checkpoint(log, 8, "f")
    collect_all(log)
    again = open_log(storage, "again")
    finish_collection(again, storage)
    checkpoint(again, 9, "g")
    collect_all(again)
    check_log(storage)
    assert storage.exists("runs/0-a")
    unpin(storage, "p")
    checkpoint(again, 10, "h")
    collect_all(again)
    check_nothing_is_left_over(storage)


@pytest.mark.parametrize("point", ["collect.after_entry", "collect.after_objects"])
def test_a_pin_that_comes_after_the_entry_is_refused(storage: FlakyStorage, point: str) -> None:
    log = filled(storage)
    refused: list[ConfigurationError] = []

    def try_to_pin() -> None:
        with pytest.raises(ConfigurationError, match="entry 1") as caught:
            pin(storage, 1, "fork", pin_id="p", now_ms=0)
        refused.append(caught.value)

    arm(point, try_to_pin)
    collect(log, storage, plan(log))
    assert len(refused) == 1
    assert read_pins(storage) == {}


def test_a_pin_that_is_written_before_the_collectors_look_is_refused_or_respected(
    storage: FlakyStorage,
) -> None:
    """The collection runs between the pinner's write and its look."""
    log = filled(storage)

    def run_collection() -> None:
        collect(log, storage, plan(log))

    arm("pins.after_write", run_collection)
    pin(storage, 1, "fork", pin_id="p", now_ms=0)
    assert storage.exists("runs/0-a")
    check_log(storage)


def test_nothing_is_collected_while_a_pin_can_not_be_read(storage: FlakyStorage) -> None:
    log = filled(storage)
    found = plan(log)
    storage.put("pins/p", b"damaged")
    with pytest.raises(Exception, match="pins/p"):
        collect(log, storage, found)
    assert storage.exists("runs/0-a")
    storage.delete(["pins/p"])
    collect(log, storage, plan(log))
    assert not storage.exists("runs/0-a")


def test_a_collect_entry_whose_reply_was_late_is_finished_later(storage: FlakyStorage) -> None:
    log = filled(storage)
    storage.faults = ["late"]
    with pytest.raises(StorageError):
        collect(log, storage, plan(log))
    made = pin(storage, 1, "fork", pin_id="p", now_ms=0)
    storage.deliver()
    checkpoint(log, 9, "f")
    collect_all(log)
    check_log(storage)
    assert made.entry in list_entries(storage)
    assert storage.exists("runs/0-a")
    assert not storage.exists("runs/0-b")


@pytest.mark.parametrize("seen_by", ["collect", "check"])
def test_a_late_checkpoint_keeps_what_a_plan_without_it_would_delete(
    storage: FlakyStorage, seen_by: str
) -> None:
    log = filled(storage)
    storage.faults = ["late"]
    with pytest.raises(StorageError):
        checkpoint(log, 5, "f")
    found = plan(log, unnamed=list_collectable(storage))
    assert "runs/0-f" in found.objects
    storage.deliver()
    if seen_by == "check":
        log.check_not_fenced()
    with pytest.raises(LogMovedError):
        collect(log, storage, found)
    check_log(storage)
    collect_all(log)
    check_nothing_is_left_over(storage)
    newest = read_log(storage).last_checkpoint
    assert newest is not None
    assert newest.epoch == 5
