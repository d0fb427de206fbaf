"""Two drivers, two processes, one directory: one is stopped or killed at every step.

A stopped driver wakes up only when the other has gone on so far that retention has removed the
number which the first found free. Then it must find out, and nothing it does may be visible.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.entry import Checkpoint, entry_name
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.log_state import list_entries
from holdfast.errors import FencedError
from holdfast.storage import LocalStorage
from tests.checkpoint.log_driver import Nursery, run
from tests.checkpoint.log_support import check_log, check_nothing_is_left_over

pytestmark = pytest.mark.slow

MANY = 1000

# At which passage of each point to act: in the claim, in the fifth round's checkpoint, when
# retention is in full swing, and in the collection that follows it.
CLAIM, CHECKPOINT, COLLECT = 1, 10, 11
POINTS = [
    *(("log.before_claim", 1), ("log.after_claim", 1)),
    *(
        (f"log.{step}", passage)
        for step in ("before_create", "after_create", "after_entry")
        for passage in (CLAIM, CHECKPOINT, COLLECT)
    ),
    *(
        (f"collect.{step}", passage)
        for step in ("before_entry", "after_entry", "after_objects")
        for passage in (1, 5)
    ),
    # Every round also writes two objects before its checkpoint.
    *(
        (f"storage.local.{step}", passage)
        for step in ("write", "before_link", "after_link")
        for passage in (CLAIM, CHECKPOINT + 9, CHECKPOINT + 10, COLLECT + 10)
    ),
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def contents(storage: LocalStorage) -> dict[str, bytes]:
    return {info.name: storage.get(info.name) for info in storage.list()}


def check_objects(storage: LocalStorage) -> None:
    for checkpoint in read_log(storage).checkpoints():
        for name in checkpoint.objects():
            assert storage.get(name) == name.encode()


def finish(storage: LocalStorage) -> None:
    """A last driver opens the directory, goes on, and leaves nothing that isn't needed."""
    before = read_log(storage).last_checkpoint
    run(storage, "last", rounds=3)
    after = read_log(storage).last_checkpoint
    assert isinstance(after, Checkpoint)
    assert after.epoch == (before.epoch if before is not None else -1) + 3
    check_log(storage)
    check_objects(storage)
    check_nothing_is_left_over(storage)


@pytest.mark.parametrize(("point", "passage"), POINTS)
def test_a_driver_that_sleeps_past_retention_is_fenced_and_does_nothing(
    tmp_path: Path, nursery: Nursery, point: str, passage: int
) -> None:
    storage = LocalStorage(tmp_path / "ck")
    errors = tmp_path / "errors"
    sleeper, status = nursery.start(
        root=str(storage.root), driver="sleeper", rounds=MANY,
        point=point, action="stop", at=passage, errors=str(errors),
    )  # fmt: skip
    assert os.WIFSTOPPED(status), f"{point} was not passed {passage} times: {status}"
    try:
        last = max(list_entries(storage), default=-1)

        other = run(storage, "other", rounds=6)
        counting = read_log(storage).numbers
        assert other.claim_number == last + 1
        assert not storage.exists(entry_name(other.claim_number))
        assert min(counting) > last + 1
        before = contents(storage)
    finally:
        os.kill(sleeper, signal.SIGCONT)
        _, status = nursery.end()
    assert os.waitstatus_to_exitcode(status) == FencedError.EXIT_CODE
    error = errors.read_text()
    for word in ("'sleeper'", "'orders'", str(storage.root), f"claim {other.claim_number}"):
        assert word in error

    after = contents(storage)
    assert {name: after.get(name) for name in before} == before, "it deleted or changed something"
    state = read_log(storage)
    assert state.numbers == counting, "it added an entry that counts"
    # At most a stray, where it had found the number free that became the other's claim.
    assert state.left_over in ((), (other.claim_number,))
    if point in ("log.before_claim", "log.before_create"):
        assert state.left_over, "the number was free, so it should have been written"
    check_log(storage)
    check_objects(storage)
    other.check_not_fenced()
    finish(storage)


@pytest.mark.parametrize(("point", "passage"), POINTS)
def test_after_a_kill_the_next_driver_goes_on(
    tmp_path: Path, nursery: Nursery, point: str, passage: int
) -> None:
    storage = LocalStorage(tmp_path / "ck")
    _, status = nursery.start(
        root=str(storage.root), driver="victim", rounds=MANY,
        point=point, action="kill", at=passage, errors=str(tmp_path / "errors"),
    )  # fmt: skip
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    check_log(storage)
    check_objects(storage)
    finish(storage)
    storage.sweep(0)
    assert not list((storage.root / ".tmp").iterdir())
