"""Calls that are repeated beside themselves, with attempts that end when the test lets them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from holdfast.storage.bounded import Progress, bounded
from holdfast.storage.hedged import hedged

SOON_S = 0.001
NEVER_S = 3600.0


class Attempts:
    """Numbers the attempts from 1 and runs ``act(number, progress)`` in each."""

    def __init__(self, act: Callable[[int, Progress], int]) -> None:
        self.made = 0
        self.given_up = threading.Semaphore(0)
        self.release = threading.Event()
        self._act = act
        self._lock = threading.Lock()

    def __call__(self, progress: Progress) -> int:
        with self._lock:
            self.made += 1
            number = self.made
        try:
            return self._act(number, progress)
        except TimeoutError:
            self.given_up.release()
            raise

    def hang(self, progress: Progress) -> None:
        """Come back when the test says so, and then find out whether anybody waits."""
        self.release.wait()
        progress.moved()


def no_error_is_final(_: BaseException) -> bool:
    return False


def test_an_attempt_that_is_done_soon_is_the_only_one() -> None:
    attempts = Attempts(lambda number, _: number)
    assert hedged(attempts, Progress(), NEVER_S, no_error_is_final) == 1
    assert attempts.made == 1


def test_the_first_to_be_done_counts_and_the_others_are_given_up() -> None:
    def act(number: int, progress: Progress) -> int:
        if number != 3:
            attempts.hang(progress)
        return number

    attempts = Attempts(act)
    assert hedged(attempts, Progress(), SOON_S, no_error_is_final) == 3
    attempts.release.set()
    for _ in range(2):
        assert attempts.given_up.acquire(timeout=60)


def test_an_older_attempt_may_win() -> None:
    def act(number: int, progress: Progress) -> int:
        if number == 2:
            attempts.release.set()
            second_over.wait()
        else:
            attempts.release.wait()
        return number

    second_over = threading.Event()
    attempts = Attempts(act)
    assert hedged(attempts, Progress(), SOON_S, no_error_is_final) != 2
    second_over.set()


def test_what_moves_is_not_repeated() -> None:
    """The clock stands still, as it does for an attempt that has just moved whenever one looks."""
    looks = itertools.count()

    def clock() -> float:
        if next(looks) == 50:
            attempts.release.set()
        return 7.0

    def act(number: int, _: Progress) -> int:
        attempts.release.wait()
        return number

    attempts = Attempts(act)
    assert hedged(attempts, Progress(clock=clock), SOON_S, no_error_is_final) == 1
    assert attempts.made == 1


def test_another_starts_at_once_when_all_have_failed() -> None:
    def act(number: int, _: Progress) -> int:
        if number < 4:
            raise OSError(f"failure {number}")
        return number

    assert hedged(Attempts(act), Progress(), NEVER_S, no_error_is_final) == 4


def test_a_failure_beside_an_attempt_that_moves_starts_no_other() -> None:
    """The clock lets a second start and then stands still."""
    now = itertools.chain([0.0, 0.0], itertools.repeat(1.0))
    looks = itertools.count()

    def clock() -> float:
        if next(looks) == 50:
            attempts.release.set()
        return next(now)

    def act(number: int, _: Progress) -> int:
        if number == 2:
            raise OSError("failure")
        attempts.release.wait()
        return number

    attempts = Attempts(act)
    assert hedged(attempts, Progress(clock=clock), SOON_S, no_error_is_final) == 1
    assert attempts.made == 2


def test_when_all_fail_the_last_error_is_raised_after_six() -> None:
    def act(number: int, _: Progress) -> int:
        raise OSError(f"failure {number}")

    attempts = Attempts(act)
    with pytest.raises(OSError, match="failure 6"):
        hedged(attempts, Progress(), NEVER_S, no_error_is_final)
    assert attempts.made == 6


def test_a_final_error_is_raised_though_others_are_under_way() -> None:
    def act(number: int, progress: Progress) -> int:
        if number == 1:
            attempts.hang(progress)
        raise PermissionError(f"failure {number}")

    attempts = Attempts(act)
    with pytest.raises(PermissionError, match="failure"):
        hedged(attempts, Progress(), SOON_S, lambda error: isinstance(error, PermissionError))
    attempts.release.set()
    assert attempts.given_up.acquire(timeout=60)


def test_of_more_than_six_the_oldest_is_given_up() -> None:
    def act(number: int, progress: Progress) -> int:
        if number == 1:
            eighth.wait()
            progress.moved()
        elif number == 8:
            eighth.set()
            assert attempts.given_up.acquire(timeout=60)  # the first, for the seventh
            return number
        attempts.hang(progress)
        return number

    eighth = threading.Event()
    attempts = Attempts(act)
    assert hedged(attempts, Progress(), 0.01, no_error_is_final) == 8
    attempts.release.set()


def test_when_nothing_gets_further_all_are_given_up() -> None:
    """An attempt that only gets as far as those before it is no progress."""

    def act(number: int, progress: Progress) -> int:
        progress.moved()
        attempts.hang(progress)
        return number

    attempts = Attempts(act)
    with pytest.raises(TimeoutError, match="no answer"):
        bounded(lambda whole: hedged(attempts, whole, SOON_S, no_error_is_final), stall_s=0.2)
    attempts.release.set()
    for _ in range(attempts.made):
        assert attempts.given_up.acquire(timeout=60)


def test_a_part_moves_the_whole_when_it_is_ahead_of_all_others() -> None:
    now = 0.0
    whole = Progress(clock=lambda: now)
    first, second = whole.part(), whole.part()
    now = 1.0
    first.moved()
    now = 3.0
    second.moved()
    assert (whole.idle_s(), first.idle_s(), second.idle_s()) == (2.0, 2.0, 0.0)
    second.moved()
    assert whole.idle_s() == 0.0
    whole.give_up()
    for part in (first, second):
        with pytest.raises(TimeoutError):
            part.moved()
