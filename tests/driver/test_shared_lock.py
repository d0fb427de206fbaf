"""Many share it, one has it alone."""

from __future__ import annotations

import threading

import pytest

from holdfast.driver.shared_lock import SharedLock


def test_one_waits_for_all_who_share_and_nobody_shares_with_it() -> None:
    lock = SharedLock()
    seen: list[str] = []
    alone_in, alone_out = threading.Event(), threading.Event()

    def alone() -> None:
        with lock.alone():
            seen.append("alone")
            alone_in.set()
            alone_out.wait(30)
            seen.append("no longer")

    def shared() -> None:
        with lock.shared():
            seen.append("shared")

    first = threading.Thread(target=alone)
    with lock.shared():
        first.start()
        # Others may still share it while somebody waits to have it alone.
        with lock.shared():
            assert not alone_in.is_set()
        seen.append("all out")
    assert alone_in.wait(30)
    second = threading.Thread(target=shared)
    second.start()
    alone_out.set()
    first.join(30)
    second.join(30)
    assert seen == ["all out", "alone", "no longer", "shared"]


def test_it_is_given_back_after_an_error() -> None:
    lock = SharedLock()
    taken = threading.Event()

    def alone() -> None:
        with lock.alone():
            taken.set()

    for hold in (lock.shared, lock.alone):
        with pytest.raises(ValueError, match="inside"), hold():
            raise ValueError("inside")
        other = threading.Thread(target=alone, daemon=True)
        other.start()
        other.join(30)
        assert taken.is_set()
        taken.clear()


def test_those_who_share_it_are_hurried_until_it_is_free() -> None:
    lock = SharedLock()
    shared, hurried, calls = threading.Event(), threading.Event(), [0]

    def share() -> None:
        with lock.shared():
            shared.set()
            assert hurried.wait(30)

    def hurry() -> None:
        calls[0] += 1
        if calls[0] == 3:  # As if what holds it could not be hurried before.
            hurried.set()

    other = threading.Thread(target=share)
    other.start()
    assert shared.wait(30)
    with lock.alone(hurry):
        assert hurried.is_set()
        before = calls[0]
    other.join(30)
    with lock.alone(hurry):
        assert calls[0] == before
