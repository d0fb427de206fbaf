"""Logs in which entries are damaged or missing: what is said, and what a driver goes back to."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, StagedOutput, entry_name
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.log_state import list_entries
from holdfast.errors import CorruptionError, FencedError
from tests.checkpoint.log_support import FlakyStorage, check_log, checkpoint_fields, flip, open_log

_names = itertools.count()


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage(f"log-damage-{next(_names)}")


@pytest.mark.parametrize("damaged", [2, 3])
def test_a_damaged_entry_is_named_with_the_newest_whole_checkpoint(
    storage: FlakyStorage, damaged: int
) -> None:
    log = open_log(storage)
    for epoch in range(2):
        log.append_checkpoint(**checkpoint_fields(epoch))
    open_log(storage)
    flip(storage, damaged)
    with pytest.raises(CorruptionError) as caught:
        read_log(storage)
    assert f"log entry {damaged} (log/{damaged:020}.json" in str(caught.value)
    whole = {2: "entry 1 (epoch 0)", 3: "entry 2 (epoch 1)"}[damaged]
    assert whole in str(caught.value.hint)


def test_a_damaged_log_can_be_claimed_on_purpose_and_is_readable_from_then_on(
    storage: FlakyStorage,
) -> None:
    log = open_log(storage)
    for epoch in range(4):
        log.append_checkpoint(**checkpoint_fields(epoch))
    log.append_collect((0, 1), ())
    log.append_checkpoint(**checkpoint_fields(4))
    for number in (5, 6):
        flip(storage, number)
    with pytest.raises(CorruptionError):
        open_log(storage)
    assert list_entries(storage) == [0, 1, 2, 3, 4, 5, 6]
    again = open_log(storage, "again", damaged_ok=True)
    newest = again.find_checkpoint()
    assert newest is not None
    assert newest.epoch == 3
    assert read_log(storage).last_checkpoint == newest
    again.append_checkpoint(**checkpoint_fields(5))
    assert [c.epoch for c in read_log(storage).checkpoints()][:2] == [5, 3]


@pytest.mark.parametrize(("doomed", "whole"), [((0, 2, 3), 1), ((0, 1, 2, 3), None)])
def test_a_checkpoint_that_is_about_to_be_deleted_is_not_the_newest_whole_one(
    storage: FlakyStorage, doomed: tuple[int, ...], whole: int | None
) -> None:
    log = open_log(storage)
    for epoch in range(4):
        log.append_checkpoint(**checkpoint_fields(epoch))
    log.append_collect(doomed, ())
    flip(storage, 4)
    hint = "no checkpoint in it is whole" if whole is None else "start from entry 1 "
    option = "" if whole is None else "from_entry=1"
    with pytest.raises(CorruptionError) as caught:
        read_log(storage)
    assert hint in str(caught.value.hint)
    assert str(caught.value.hint).endswith(option)
    newest = read_log(storage, damaged_ok=True).last_checkpoint
    assert (newest and newest.number) == whole


def test_an_entry_that_was_put_where_one_is_missing_is_not_what_a_damaged_log_goes_back_to(
    storage: FlakyStorage,
) -> None:
    """A driver that slept since another claimed finds its number free, and is fenced too late."""
    owed = {"sink-0": (StagedOutput(1, 0, "staged/0-1-0-a", 1),)}
    old = open_log(storage, "old")
    old.append_checkpoint(**checkpoint_fields(1, pending=owed))
    second = open_log(storage, "second")
    second.append_collect((), (), pending={})
    for driver in ("third", "fourth"):
        open_log(storage, driver)
    late: dict[int, Callable[[], object]] = {
        2: lambda: old.append_checkpoint(**checkpoint_fields(2, pending=owed)),
        4: lambda: second.append_collect((), (), pending=owed),
    }
    for number, write in late.items():
        storage.delete([entry_name(number)])
        with pytest.raises(FencedError):
            write()
    assert list_entries(storage) == list(range(6))
    flip(storage, open_log(storage, "fifth").claim_number)
    state = read_log(storage, damaged_ok=True)
    assert state.last_checkpoint is not None
    assert state.last_checkpoint.number == 1
    assert not any(state.pending.values())


@pytest.mark.parametrize("damaged", [(2,), (1, 2), (2, 3)])
def test_an_epoch_of_an_entry_that_cannot_be_read_is_never_used_again(
    storage: FlakyStorage, damaged: tuple[int, ...]
) -> None:
    log = open_log(storage)
    for epoch in (10, 2_000, EPOCHS_PER_ENTRY + 2_000):
        log.append_checkpoint(**checkpoint_fields(epoch))
    open_log(storage)
    flip(storage, *(number for number in damaged if number != 3))
    storage.delete([entry_name(3)] if 3 in damaged else [])
    state = read_log(storage, damaged_ok=True)
    assert state.last_epoch >= EPOCHS_PER_ENTRY + 2_000
    flip(storage, 4)
    assert read_log(storage, damaged_ok=True).last_epoch >= EPOCHS_PER_ENTRY + 2_000
    # Also when the damaged ones are gone and others follow.
    again = open_log(storage, "again", damaged_ok=True)
    used = again.state().last_epoch
    assert used >= EPOCHS_PER_ENTRY + 2_000
    assert read_log(storage).last_epoch == used
    last = again.append_checkpoint(**checkpoint_fields(used + EPOCHS_PER_ENTRY))
    flip(storage, last.number)
    assert read_log(storage, damaged_ok=True).last_epoch >= used + EPOCHS_PER_ENTRY


def test_entries_that_cannot_be_read_are_left_by_a_claim_on_purpose(storage: FlakyStorage) -> None:
    log = open_log(storage)
    for epoch in range(3):
        log.append_checkpoint(**checkpoint_fields(epoch))
    flip(storage, 2, 3)
    again = open_log(storage, "again", damaged_ok=True)
    assert not {2, 3} & set(again.state().numbers)
    assert {2, 3} <= set(read_log(storage).left_over)
    check_log(storage)


def test_a_missing_entry_is_named(storage: FlakyStorage) -> None:
    log = open_log(storage)
    for epoch in range(3):
        log.append_checkpoint(**checkpoint_fields(epoch))
    storage.delete([entry_name(2)])
    with pytest.raises(CorruptionError, match=r"log/0*2\.json is missing.*start from entry 3"):
        read_log(storage)


def test_an_entry_under_another_number_is_damage(storage: FlakyStorage) -> None:
    log = open_log(storage)
    log.append_checkpoint(**checkpoint_fields(0))
    storage.put(entry_name(2), storage.get(entry_name(1)))
    with pytest.raises(CorruptionError, match=r"log entry 2 .* is a copy of entry 1"):
        read_log(storage)
