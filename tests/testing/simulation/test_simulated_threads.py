"""The same small programs on real threads and on simulated ones come to the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast import runtime
from holdfast.errors import FencedError
from tests.testing.simulation.small_programs import Run, error_of, kind_of, started


def test_threads_are_started_and_joined(run: Run) -> None:
    def program() -> list[object]:
        go = runtime.event()
        thread = runtime.thread(go.wait, "another")
        found: list[object] = [thread.is_alive(), error_of(thread.join)]
        thread.start()
        found += [thread.is_alive(), error_of(thread.start)]
        thread.join(0.01)
        thread.join(-1)
        found.append(thread.is_alive())
        go.set()
        thread.join()
        thread.join()
        return [*found, thread.is_alive()]

    assert run(program) == [
        False,
        "RuntimeError: cannot join thread before it is started",
        True,
        "RuntimeError: threads can only be started once",
        True,
        False,
    ]


def test_no_thread_waits_for_its_own_end(run: Run) -> None:
    def program() -> str:
        found: list[str] = []
        thread = runtime.thread(lambda: found.append(error_of(thread.join)), "another")
        thread.start()
        thread.join()
        return found[0]

    assert run(program) == "RuntimeError: cannot join current thread"


def test_a_thread_knows_itself(run: Run) -> None:
    def program() -> list[bool]:
        found: list[object] = []
        thread = started(lambda: found.append(runtime.current_thread()))
        thread.join()
        mine = runtime.current_thread()
        return [found[0] is thread, mine is thread, mine is runtime.current_thread()]

    assert run(program) == [True, False, True]


def test_sleep_takes_its_time(run: Run) -> None:
    def program() -> list[object]:
        began = runtime.monotonic()
        runtime.sleep(0.01)
        slept = runtime.monotonic() - began >= 0.01
        return [slept, kind_of(lambda: runtime.sleep(-1))]

    assert run(program) == [True, "ValueError"]


def test_ids_are_nobody_elses(run: Run) -> None:
    def program() -> list[str]:
        return runtime.each(lambda _: runtime.new_id(), range(100), at_once=3)

    ids = run(program)
    assert isinstance(ids, list)
    assert len(set(ids)) == 100
    assert all(len(i) == 16 and int(i, 16) >= 0 for i in ids)


# What is called beside others


def test_each_answers_in_order_and_so_many_at_once(run: Run) -> None:
    def program() -> list[object]:
        lock, state = runtime.lock(), {"now": 0, "most": 0}

        def work(i: int) -> int:
            with lock:
                state["now"] += 1
                state["most"] = max(state["most"], state["now"])
            runtime.sleep(0.002)
            with lock:
                state["now"] -= 1
            return i * i

        return [runtime.each(work, range(10), at_once=3), state["most"] <= 3, state["now"]]

    assert run(program) == [[i * i for i in range(10)], True, 0]


def test_each_raises_what_the_first_item_raises(run: Run) -> None:
    def program() -> list[object]:
        late, finished = runtime.event(), []

        def work(i: int) -> None:
            if i == 1:
                late.wait()
                raise ValueError("the first in order")
            if i == 2:
                late.set()
                raise KeyError("the first in time")
            finished.append(i)

        return [error_of(lambda: runtime.each(work, range(3), at_once=3)), finished]

    assert run(program) == ["ValueError: the first in order", [0]]


def test_after_an_error_items_that_nobody_has_begun_are_left(run: Run) -> None:
    def program() -> list[object]:
        begun: list[int] = []

        def work(i: int) -> None:
            begun.append(i)
            runtime.sleep(0.005)
            raise ValueError(i)

        said = error_of(lambda: runtime.each(work, range(100), at_once=1))
        return [said, len(begun) < 100]

    assert run(program) == ["ValueError: 0", True]


def test_what_each_is_asked_is_checked(run: Run) -> None:
    def program() -> list[object]:
        nothing: list[int] = []
        return [
            kind_of(lambda: runtime.each(str, [1], at_once=0)),
            runtime.each(str, nothing, at_once=2),
            kind_of(lambda: runtime.each(str, _breaking(), at_once=2)),
        ]

    assert run(program) == ["ValueError", [], "KeyError"]


def _breaking() -> Iterator[int]:
    yield 1
    raise KeyError("no more")


def test_who_is_fenced_in_one_of_each_tells_who_asked(run: Run) -> None:
    def work(_: int) -> None:
        raise FencedError("another has taken over")

    assert run(lambda: error_of(lambda: runtime.each(work, [1], 1))) == (
        "FencedError: another has taken over"
    )


def test_ahead_takes_no_more_items_than_it_works_on(run: Run) -> None:
    def program() -> list[object]:
        taken: list[int] = []

        def items() -> Iterator[int]:
            for i in range(10):
                taken.append(i)
                yield i

        answers = runtime.ahead(lambda i: i * i, items(), at_once=2)
        found = [next(answers), len(taken), next(answers), len(taken)]
        return [*found, list(answers), len(taken)]

    assert run(program) == [0, 3, 1, 4, [i * i for i in range(2, 10)], 10]


def test_ahead_raises_where_the_item_comes(run: Run) -> None:
    def program() -> list[object]:
        def work(i: int) -> int:
            if i == 3:
                raise ValueError("three")
            return i

        found: list[object] = []
        found.append(error_of(lambda: found.extend(runtime.ahead(work, range(10), at_once=4))))
        return found

    assert run(program) == [0, 1, 2, "ValueError: three"]


def test_a_block_waits_for_what_was_called_beside_it(run: Run) -> None:
    def program() -> list[object]:
        found: list[object] = []

        def work() -> str:
            runtime.sleep(0.005)
            found.append("worked")
            return "answer"

        with runtime.beside(work) as answer:
            pass
        return [*found, answer.result(), answer.result()]

    assert run(program) == ["worked", "answer", "answer"]


def test_an_error_beside_is_its_results(run: Run) -> None:
    def program() -> list[object]:
        def work() -> None:
            raise ValueError("beside")

        with runtime.beside(work) as answer:
            pass
        return [error_of(answer.result)]

    assert run(program) == ["ValueError: beside"]


def test_a_block_that_fails_waits_all_the_same(run: Run) -> None:
    def program() -> list[object]:
        found: list[object] = []

        def fail() -> None:
            with runtime.beside(lambda: found.append("worked")):
                raise ValueError("block")

        return [error_of(fail), *found]

    assert run(program) == ["ValueError: block", "worked"]


def test_a_file_lock_excludes(run: Run, tmp_path: Path) -> None:
    def program() -> list[object]:
        found: list[object] = []

        def have(i: int) -> None:
            with runtime.file_lock(tmp_path / "lock"):
                found.append(i)
                runtime.sleep(0.001)
                found.append(i)

        runtime.each(have, range(4), at_once=4)
        return [found[i] == found[i + 1] for i in (0, 2, 4, 6)]

    assert run(program) == [True] * 4
    assert "FileNotFoundError" in str(run(lambda: error_of(lambda: _locked(tmp_path / "no" / "l"))))


def _locked(path: Path) -> None:
    with runtime.file_lock(path):
        pass
