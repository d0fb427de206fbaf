from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from holdfast.checkpoint.entry import (
    FORMAT,
    Checkpoint,
    Claim,
    Collect,
    entry_name,
    place_digest,
    seal,
)
from holdfast.checkpoint.log import LogMovedError, read_log, tried_exclusive
from holdfast.checkpoint.log_state import list_entries
from holdfast.errors import (
    ConfigurationError,
    FencedError,
    FormatError,
    InternalError,
    StorageError,
)
from holdfast.storage import LocalStorage, MemoryStorage, NotFoundError
from holdfast.storage.base import Buffer
from tests.checkpoint.log_support import (
    FlakyStorage,
    check_log,
    checkpoint_fields,
    counting_nonces,
    flip,
    open_log,
)

_names = itertools.count()


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage(f"log-{next(_names)}")


def other_view(storage: MemoryStorage) -> MemoryStorage:
    """The same objects without the faults."""
    return MemoryStorage(storage.url.removeprefix("memory://"))


# Opening


def test_a_missing_directory_is_an_empty_log_and_reading_leaves_it_missing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "ck")
    state = read_log(storage)
    assert (state.last_number, state.pipeline, state.last_checkpoint) == (-1, None, None)
    assert state.find_checkpoint() is None
    assert list(state.checkpoints()) == []
    assert not (tmp_path / "ck").exists()


def test_a_claim_is_the_first_entry_and_goes_behind_the_last(storage: FlakyStorage) -> None:
    first = open_log(storage, "a")
    assert (first.claim_number, first.last_number) == (0, 0)
    first.append_checkpoint(**checkpoint_fields(0))
    second = open_log(storage, "b")
    assert (second.claim_number, second.last_number) == (2, 2)
    entry = second.entry(2)
    assert isinstance(entry, Claim)
    assert (entry.driver, entry.claim, entry.pipeline) == ("b", 2, "orders")
    check_log(storage)


def test_another_pipelines_directory_is_refused_and_left_alone(storage: FlakyStorage) -> None:
    open_log(storage, pipeline="orders")
    with pytest.raises(ConfigurationError, match=r"'orders'.*not of 'returns'"):
        open_log(storage, pipeline="returns")
    assert list_entries(storage) == [0]


def test_a_log_that_went_on_since_it_was_read_is_not_claimed(storage: FlakyStorage) -> None:
    state = read_log(storage)
    log = open_log(storage, "a", expect_last=state.last_number)
    log.append_checkpoint(**checkpoint_fields(0))
    with pytest.raises(LogMovedError, match="entry 1"):
        open_log(storage, "b", expect_last=0)
    assert list_entries(storage) == [0, 1]
    log.check_not_fenced()
    assert open_log(storage, "b", expect_last=1).claim_number == 2


def test_a_claim_that_loses_its_race_goes_behind_the_winner(storage: FlakyStorage) -> None:
    plain = other_view(storage)
    calls = itertools.count()
    # The log is empty when it is listed (call 0), and claimed by another before call 1, the claim.
    storage.before = lambda: open_log(plain, "winner") if next(calls) == 1 else None
    log = open_log(storage, "a")
    assert log.claim_number == 1
    log.check_not_fenced()
    check_log(storage)


def test_of_many_threads_that_claim_the_highest_one_owns_the_log(storage: FlakyStorage) -> None:
    start = threading.Barrier(8)

    def claim(i: int) -> tuple[int, bool]:
        start.wait()
        try:
            log = open_log(storage, f"d{i}")
            log.append_checkpoint(**checkpoint_fields(0))
        except FencedError:
            return i, False
        return i, True

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(claim, range(8)))
    check_log(storage)
    state = read_log(storage)
    claims = [e for n in state.numbers if isinstance(e := state.entry(n), Claim)]
    assert len(claims) == 8


# Reading


def test_a_newer_format_is_refused_by_name(storage: FlakyStorage) -> None:
    open_log(storage)
    storage.put(entry_name(1), seal(msgspec.json.encode({"format": FORMAT + 1})))
    with pytest.raises(FormatError, match=r"entry 1 .*upgrade"):
        read_log(storage)
    with pytest.raises(FormatError):
        open_log(storage)
    assert list_entries(storage) == [0, 1]


def test_foreign_objects_in_the_log_folder_are_passed_over(storage: FlakyStorage) -> None:
    open_log(storage)
    storage.put("log/README", b"hello")
    assert read_log(storage).numbers == (0,)
    assert open_log(storage).claim_number == 1


def test_opening_reads_no_more_than_the_end(storage: FlakyStorage) -> None:
    log = open_log(storage)
    for epoch in range(200):
        log.append_checkpoint(**checkpoint_fields(epoch))
    for _ in range(20):
        open_log(other_view(storage))
    calls = itertools.count()
    storage.before = lambda: next(calls)
    state = read_log(storage)
    assert state.last_checkpoint is not None
    assert state.last_checkpoint.epoch == 199
    assert next(calls) <= 3


def test_checkpoints_are_found_by_epoch_and_by_entry(storage: FlakyStorage) -> None:
    with pytest.raises(ConfigurationError, match=r"there is none yet: .* without from_entry="):
        read_log(storage).find_checkpoint(entry=3)
    log = open_log(storage)
    for epoch in (3, 5, 8):
        log.append_checkpoint(**checkpoint_fields(epoch))
    open_log(storage, "other")
    for source in (log, read_log(storage)):
        assert [c.epoch for c in source.checkpoints()] == [8, 5, 3]
        for found in (source.find_checkpoint(epoch=5), source.find_checkpoint(entry=2)):
            assert found is not None
            assert (found.number, found.epoch) == (2, 5)
        newest = source.find_checkpoint()
        assert newest is not None
        assert newest.epoch == 8
        with pytest.raises(ConfigurationError, match=r"epoch 4 .*3 \(epoch 8\), 2 \(epoch 5\)"):
            source.find_checkpoint(epoch=4)
        with pytest.raises(ConfigurationError, match="entry 0"):
            source.find_checkpoint(entry=0)
        with pytest.raises(NotFoundError):
            source.entry(99)


# Appending


def test_entries_say_who_wrote_them_and_point_back(storage: FlakyStorage) -> None:
    log = open_log(storage)
    checkpoint = log.append_checkpoint(**checkpoint_fields(0, ["runs/0-a"]))
    collect = log.append_collect([0], ["runs/0-gone"])
    last = log.append_checkpoint(**checkpoint_fields(1))
    assert isinstance(checkpoint, Checkpoint)
    assert isinstance(collect, Collect)
    assert (collect.first, collect.kept) == (1, ())
    assert (last.number, last.claim, last.last_checkpoint, last.last_collect) == (3, 0, 1, 2)
    assert len({checkpoint.nonce, collect.nonce, last.nonce}) == 3
    storage.delete([entry_name(0)])
    assert read_log(storage).last_entry == last
    assert log.state().numbers == read_log(storage).numbers == (1, 2, 3)


def test_the_newest_checkpoint_can_not_be_collected(storage: FlakyStorage) -> None:
    log = open_log(storage)
    with pytest.raises(InternalError):
        log.append_collect([0], [])
    log.append_checkpoint(**checkpoint_fields(0))
    with pytest.raises(InternalError):
        log.append_collect([1], [])
    assert list_entries(storage) == [0, 1]


def test_an_entry_that_could_not_be_read_back_is_never_written(storage: FlakyStorage) -> None:
    log = open_log(storage)
    with pytest.raises(InternalError, match="not well-formed"):
        log.append_checkpoint(**checkpoint_fields(0, state_rows="many"))
    assert list_entries(storage) == [0]
    log.append_checkpoint(**checkpoint_fields(0))
    check_log(storage)


@pytest.mark.parametrize("fault", ["lose", "repeat"])
def test_a_lost_reply_is_settled_by_reading_back(storage: FlakyStorage, fault: str) -> None:
    storage.faults = [fault]
    log = open_log(storage)
    assert log.claim_number == 0
    storage.faults = [fault]
    assert log.append_checkpoint(**checkpoint_fields(0)).number == 1
    storage.faults = [fault]
    assert log.append_collect([0], []).number == 2
    assert list_entries(storage) == [0, 1, 2]
    check_log(storage)


def test_a_failed_write_is_an_error_and_may_be_tried_again(storage: FlakyStorage) -> None:
    storage.faults = ["fail"]
    with pytest.raises(StorageError, match="tried again"):
        open_log(storage)
    assert list_entries(storage) == []
    log = open_log(storage)
    storage.faults = ["fail", "fail"]
    for _ in range(2):
        with pytest.raises(StorageError, match=r"could not be written.*no reply"):
            log.append_checkpoint(**checkpoint_fields(0))
    assert log.append_checkpoint(**checkpoint_fields(0)).number == 1
    check_log(storage)


@pytest.mark.parametrize("seen_by", ["append", "check"])
def test_an_own_entry_that_is_carried_out_late_is_taken_in(
    storage: FlakyStorage, seen_by: str
) -> None:
    log = open_log(storage)
    storage.faults = ["late"]
    with pytest.raises(StorageError):
        log.append_checkpoint(**checkpoint_fields(0))
    storage.deliver()
    if seen_by == "check":
        log.check_not_fenced()
        assert log.last_number == 1
    assert log.append_checkpoint(**checkpoint_fields(1)).number == 2
    assert [c.epoch for c in read_log(storage).checkpoints()] == [1, 0]
    assert log.state().numbers == (0, 1, 2)


def test_a_claim_that_is_carried_out_late_is_just_another_claim(storage: FlakyStorage) -> None:
    storage.faults = ["late"]
    with pytest.raises(StorageError):
        open_log(storage, "a")
    storage.deliver()
    log = open_log(storage, "a")
    assert log.claim_number == 1
    log.append_checkpoint(**checkpoint_fields(0))
    check_log(storage)


# Fencing


def test_a_higher_claim_fences_for_good_and_the_error_says_by_whom(storage: FlakyStorage) -> None:
    first = open_log(storage, "host-a")
    first.append_checkpoint(**checkpoint_fields(0))
    second = open_log(storage, "host-b")
    actions = (
        first.check_not_fenced,
        lambda: first.append_checkpoint(**checkpoint_fields(1)),
        lambda: first.append_collect([0], []),
    )
    for action in (*actions, *actions):
        with pytest.raises(FencedError) as caught:
            action()
        assert caught.value.code == FencedError.EXIT_CODE
        for word in ("'orders'", storage.url, "'host-a'", "claim 0", "entry 2", "'host-b'"):
            assert word in str(caught.value)
    second.check_not_fenced()
    assert list_entries(storage) == [0, 1, 2]


@pytest.mark.parametrize("fault", ["", "fail", "late", "lose", "repeat"])
@pytest.mark.parametrize("kind", ["checkpoint", "collect"])
def test_a_fenced_writer_is_fenced_whatever_the_storage_answers(
    storage: FlakyStorage, fault: str, kind: str
) -> None:
    first = open_log(storage, "a")
    first.append_checkpoint(**checkpoint_fields(0))
    open_log(other_view(storage), "b")
    storage.faults = [fault]
    append: dict[str, Callable[[], object]] = {
        "checkpoint": lambda: first.append_checkpoint(**checkpoint_fields(1)),
        "collect": lambda: first.append_collect([0], []),
    }
    with pytest.raises(FencedError):
        append[kind]()
    storage.deliver()
    assert list_entries(storage) == [0, 1, 2]


def go_on_past_retention(storage: MemoryStorage, beyond: int) -> None:
    """A driver that claims, checkpoints and deletes every entry up to ``beyond``."""
    log = open_log(storage, "b")
    last = log.append_checkpoint(**checkpoint_fields(50))
    while last.number <= beyond + 1:
        last = log.append_checkpoint(**checkpoint_fields(51))
    gone = [number for number in log.state().numbers if number < last.number]
    entry = log.append_collect(gone, [])
    storage.delete(entry_name(number) for number in gone)
    log.collected(entry.entries)


def test_a_number_that_is_free_because_of_retention_is_no_commit(storage: FlakyStorage) -> None:
    first = open_log(storage, "a")
    plain = other_view(storage)
    go_on_past_retention(plain, beyond=5)
    with pytest.raises(FencedError, match="claim 1"):
        first.append_checkpoint(**checkpoint_fields(1, savepoint="mine"))
    state = read_log(storage)
    assert 1 in list_entries(storage), "the test meant to leave a stray"
    assert 1 in state.left_over
    assert [c.epoch for c in state.checkpoints()] == [51]
    check_log(storage)
    with pytest.raises(FencedError):
        first.check_not_fenced()


def test_a_claim_that_slept_past_retention_is_fenced(storage: FlakyStorage) -> None:
    open_log(storage, "z")
    plain = other_view(storage)
    calls = itertools.count()

    def act() -> None:
        if next(calls) == 2:  # the log has been listed and its end read
            go_on_past_retention(plain, beyond=5)

    storage.before = act
    with pytest.raises(FencedError):
        open_log(storage, "a")
    storage.before = lambda: None
    assert read_log(storage).left_over == (1,)
    check_log(storage)


def test_a_fenced_driver_is_found_when_its_next_number_was_removed(storage: FlakyStorage) -> None:
    first = open_log(storage, "a")
    go_on_past_retention(other_view(storage), beyond=5)
    assert not storage.exists(entry_name(first.last_number + 1))
    with pytest.raises(FencedError):
        first.check_not_fenced()


def test_a_driver_fenced_between_creating_and_looking_does_not_commit(
    storage: FlakyStorage,
) -> None:
    first = open_log(storage, "a")
    calls = itertools.count()

    def act() -> None:
        if next(calls) == 1:  # the listing that follows the creation
            open_log(other_view(storage), "b")

    storage.before = act
    with pytest.raises(FencedError):
        first.append_checkpoint(**checkpoint_fields(0))
    # The other one found the entry and builds on it.
    assert [type(read_log(storage).entry(n)).__name__ for n in (0, 1, 2)] == [
        "Claim",
        "Checkpoint",
        "Claim",
    ]


@pytest.mark.parametrize("fault", ["", "fail", "lose"])
def test_a_driver_of_a_newer_format_fences_too(storage: FlakyStorage, fault: str) -> None:
    log = open_log(storage, "a")
    storage.put(entry_name(1), seal(msgspec.json.encode({"format": FORMAT + 1})))
    storage.faults = [fault]
    with pytest.raises(FencedError, match="entry 1"):
        log.append_checkpoint(**checkpoint_fields(0))
    with pytest.raises(FencedError, match="entry 1"):
        log.check_not_fenced()


@pytest.mark.parametrize("fault", ["", "fail", "lose"])
def test_a_driver_whose_claim_cannot_be_read_fences_too(storage: FlakyStorage, fault: str) -> None:
    log = open_log(storage, "a")
    open_log(other_view(storage), "b").append_checkpoint(**checkpoint_fields(0))
    flip(storage, 1)
    storage.faults = [fault]
    for _ in range(2):
        with pytest.raises(FencedError, match=r"entry 1 \(unreadable|entry 2, a checkpoint"):
            log.append_checkpoint(**checkpoint_fields(0))
        with pytest.raises(FencedError):
            log.check_not_fenced()


def test_an_entry_is_taken_in_when_only_the_listing_after_it_failed(storage: FlakyStorage) -> None:
    log = open_log(storage)
    calls = itertools.count()

    def act() -> None:
        if next(calls) == 1:
            raise StorageError("unreachable")

    storage.before = act
    with pytest.raises(StorageError, match="unreachable"):
        log.append_checkpoint(**checkpoint_fields(0))
    assert log.append_checkpoint(**checkpoint_fields(1)).number == 2
    check_log(storage)


def test_storage_that_can_not_be_listed_is_an_error_not_a_fence(storage: FlakyStorage) -> None:
    log = open_log(storage)

    def act() -> None:
        raise StorageError("unreachable")

    storage.before = act
    with pytest.raises(StorageError, match="unreachable"):
        log.check_not_fenced()
    storage.before = lambda: None
    log.check_not_fenced()


def test_one_log_can_be_used_from_many_threads(storage: FlakyStorage) -> None:
    log = open_log(storage, nonce=counting_nonces("t"))
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda i: log.append_checkpoint(**checkpoint_fields(i)), range(40)))
    assert sorted(e.number for e in entries) == list(range(1, 41))
    check_log(storage)


class Tried(MemoryStorage):
    """Counts trials of create-if-absent."""

    trials = 0

    def create(self, name: str, data: Buffer) -> bool:
        self.trials += 1
        return super().create(name, data)


def test_create_if_absent_is_tried_once_per_directory_before_the_claim() -> None:
    storage, elsewhere = Tried("tried-once"), Tried("tried-elsewhere")
    for expected in ("", place_digest(storage.url)):
        state = read_log(storage)
        assert (state.last_entry.exclusive if state.last_entry else "") == expected
        log = open_log(storage, exclusive=tried_exclusive(storage, state))
        log.append_checkpoint(**checkpoint_fields(0))
    assert storage.trials == 1
    for info in storage.list():
        elsewhere.put(info.name, storage.get(info.name))
    tried_exclusive(elsewhere, read_log(elsewhere))
    assert elsewhere.trials == 1, "the directory was copied: another storage may behave otherwise"


def test_a_directory_of_a_version_that_did_not_try_is_tried() -> None:
    storage = Tried("tried-never")
    open_log(storage).append_checkpoint(**checkpoint_fields(0))
    tried_exclusive(storage, read_log(storage))
    assert storage.trials == 1
