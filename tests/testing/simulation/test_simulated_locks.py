"""The same small programs on real locks and on simulated ones come to the same."""

from __future__ import annotations

from functools import partial

from holdfast import runtime
from tests.testing.simulation.small_programs import Run, elsewhere, error_of, kind_of, started

# Locks


def test_a_lock_excludes(run: Run) -> None:
    def program() -> int:
        lock, counted = runtime.lock(), [0]

        def count() -> None:
            for _ in range(50):
                with lock:
                    before = counted[0]
                    runtime.sleep(0)
                    counted[0] = before + 1

        for thread in [started(count) for _ in range(4)]:
            thread.join()
        return counted[0]

    assert run(program) == 200


def test_a_lock_that_is_held_is_not_to_be_had(run: Run) -> None:
    def program() -> list[object]:
        lock = runtime.lock()
        with lock:
            return [
                lock.locked(),
                lock.acquire(blocking=False),
                lock.acquire(timeout=0),
                lock.acquire(timeout=0.01),
                elsewhere(lambda: lock.acquire(blocking=False)),
                elsewhere(lambda: lock.acquire(timeout=0.01)),
            ]

    assert run(program) == [True, False, False, False, False, False]


def test_a_lock_may_be_given_back_by_anybody(run: Run) -> None:
    def program() -> object:
        lock = runtime.lock()
        lock.acquire()
        waiting = started(lock.acquire)
        elsewhere(lock.release)
        waiting.join()
        return lock.locked()

    assert run(program) is True


def test_what_is_not_held_is_not_given_back(run: Run) -> None:
    def program() -> list[str]:
        lock, rlock = runtime.lock(), runtime.rlock()
        rlock.acquire()
        return [
            error_of(lock.release),
            error_of(runtime.rlock().release),
            str(elsewhere(lambda: error_of(rlock.release))),
        ]

    assert run(program) == [
        "RuntimeError: release unlocked lock",
        "RuntimeError: cannot release un-acquired lock",
        "RuntimeError: cannot release un-acquired lock",
    ]


def test_time_outs_are_checked(run: Run) -> None:
    def program() -> list[str]:
        return [
            kind_of(partial(lock.acquire, blocking, timeout))
            for lock in (runtime.lock(), runtime.rlock())
            for blocking, timeout in ((False, 1.0), (True, -2.0))
        ]

    assert run(program) == ["ValueError"] * 4


def test_whoever_waits_for_a_lock_gets_it_in_the_end(run: Run) -> None:
    def program() -> list[int]:
        lock, had = runtime.lock(), []

        def have(i: int) -> None:
            for _ in range(5):
                assert lock.acquire(timeout=1000)
                had.append(i)
                runtime.sleep(0)
                lock.release()

        threads = [started(lambda i=i: have(i)) for i in range(6)]  # type: ignore[misc]
        for thread in threads:
            thread.join()
        return sorted(had)

    assert run(program) == sorted(list(range(6)) * 5)


def test_an_rlock_is_its_owners_as_often_as_he_likes(run: Run) -> None:
    def program() -> list[object]:
        lock = runtime.rlock()
        found: list[object] = []

        def take_and_give_back() -> bool:
            had = lock.acquire(blocking=False)
            if had:
                lock.release()
            return had

        def look() -> None:
            found.append(elsewhere(take_and_give_back))

        with lock:
            assert lock.acquire()
            with lock:
                look()
            look()
            lock.release()
            look()
        look()
        return found

    assert run(program) == [False, False, False, True]


# Conditions


def test_a_condition_belongs_to_who_holds_it(run: Run) -> None:
    def program() -> list[str]:
        condition = runtime.condition()
        return [error_of(condition.wait), error_of(condition.notify_all)]

    assert run(program) == [
        "RuntimeError: cannot wait on un-acquired lock",
        "RuntimeError: cannot notify on un-acquired lock",
    ]


def test_who_waits_has_given_the_lock_away_and_has_it_again(run: Run) -> None:
    def program() -> list[object]:
        condition, come = runtime.condition(), runtime.event()
        found: list[object] = []

        def change() -> None:
            come.wait()
            with condition:
                found.append("changed")
                condition.notify_all()

        thread = started(change)
        with condition, condition:
            come.set()
            found.append(condition.wait())
            free = elsewhere(lambda: _is_free(condition, 0.02))
            found.append(free)
        thread.join()
        found.append(elsewhere(lambda: _is_free(condition, 60)))
        return found

    def _is_free(condition: runtime.Condition, within_s: float) -> bool:
        done = runtime.event()

        def take() -> None:
            with condition:
                done.set()

        started(take)
        return done.wait(within_s)

    assert run(program) == ["changed", True, False, True]


def test_a_condition_wakes_all(run: Run) -> None:
    def program() -> int:
        condition, state = runtime.condition(), {"waiting": 0, "open": 0, "woken": 0}

        def wait() -> None:
            with condition:
                state["waiting"] += 1
                condition.notify_all()
                condition.wait_for(lambda: state["open"])
                state["woken"] += 1

        threads = [started(wait) for _ in range(5)]
        with condition:
            condition.wait_for(lambda: state["waiting"] == 5)
            state["open"] = 1
            condition.notify_all()
        for thread in threads:
            thread.join()
        return state["woken"]

    assert run(program) == 5


def test_nobody_changes_something_unheard(run: Run) -> None:
    def program() -> list[int]:
        condition = runtime.condition()
        queue: list[int] = []
        taken: list[int] = []

        def take() -> None:
            for _ in range(25):
                with condition:
                    condition.wait_for(lambda: queue)
                    taken.append(queue.pop())

        threads = [started(take) for _ in range(2)]
        for i in range(50):
            with condition:
                queue.append(i)
                condition.notify_all()
        for thread in threads:
            thread.join()
        return sorted(taken)

    assert run(program) == list(range(50))


def test_a_condition_is_waited_for_so_long_at_most(run: Run) -> None:
    def program() -> list[object]:
        condition, began = runtime.condition(), runtime.monotonic()
        with condition:
            found = [
                condition.wait(0.01),
                condition.wait(0),
                condition.wait(-1),
                condition.wait_for(lambda: "", timeout=0.01),
                condition.wait_for(lambda: "now", timeout=0),
            ]
        return [*found, runtime.monotonic() - began >= 0.02]

    assert run(program) == [False, False, False, "", "now", True]


# Events


def test_an_event_wakes_all_and_stays(run: Run) -> None:
    def program() -> list[object]:
        event, found = runtime.event(), []
        threads = [started(lambda: found.append(event.wait())) for _ in range(3)]
        event.set()
        for thread in threads:
            thread.join()
        return [*found, event.is_set(), event.wait(), event.wait(0)]

    assert run(program) == [True] * 6


def test_an_event_that_is_cleared_has_not_happened(run: Run) -> None:
    def program() -> list[object]:
        event = runtime.event()
        event.set()
        event.clear()
        return [event.is_set(), event.wait(0), event.wait(-1), event.wait(0.01)]

    assert run(program) == [False] * 4
