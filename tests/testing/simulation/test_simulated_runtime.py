"""What only a world has: processes, an outside, and an end."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from holdfast import runtime
from holdfast.testing.simulation import SimulatedRuntime, Stuck, World, simulating
from tests.testing.simulation.small_programs import elsewhere, error_of, started


def test_the_lock_of_a_file_is_free_when_its_process_is_killed(tmp_path: Path) -> None:
    with simulating(World(1)) as world:
        one, other, third = (world.process(name) for name in ("one", "other", "third"))

        def have() -> None:
            with runtime.file_lock(tmp_path / "lock"):
                world.tell("has it")
                runtime.sleep(100)

        one.spawn(have, "main")
        world.run(within_s=1)
        other.spawn(have, "main")
        third.spawn(have, "main")
        world.run(within_s=1)
        other.kill()
        one.kill()
        world.run()
    assert [line.split()[1] for line in world.trace() if "has it" in line] == [
        "one/main:",
        "third/main:",
    ]


def test_a_thread_belongs_to_the_process_of_who_starts_it() -> None:
    with simulating(World(1)) as world:
        process = world.process("driver")
        found: list[str] = []

        def work() -> None:
            started(lambda: found.append(runtime.whoami())).join()
            found.extend(runtime.each(lambda _: runtime.whoami(), [1, 2], at_once=2))

        process.spawn(work, "main")
        world.process("other").spawn(lambda: runtime.sleep(1), "main")
        world.run()
    assert found == ["driver:1"] * 3


def test_the_next_life_of_a_process_is_another() -> None:
    with simulating(World(1)) as world:
        found: list[str] = []
        for _ in range(2):
            process = world.process("driver")
            process.spawn(lambda: found.append(runtime.whoami()), "main")
            world.run()
            process.kill()
    assert found == ["driver:1", "driver:2"]
    assert "driver#2 is killed" in world.trace()[-1]


def test_nobody_learns_of_the_end_of_a_thread_whose_process_was_killed() -> None:
    with simulating(World(1)) as world:
        one, other = world.process("one"), world.process("other")
        sleeper = one.spawn(lambda: runtime.sleep(10), "sleeper")
        joiner = other.spawn(sleeper.join, "joiner")
        patient = other.spawn(lambda: sleeper.join(100), "patient")
        world.run(within_s=1)
        one.kill()
        assert not sleeper.is_alive()
        world.run(world.now + 1000)
        assert patient.ended
        assert not joiner.ended


def test_who_sets_a_world_up_can_do_all_but_wait(tmp_path: Path) -> None:
    with simulating(World(1)) as world:
        lock, event, condition = runtime.lock(), runtime.event(), runtime.condition()
        with lock, runtime.rlock(), condition, runtime.file_lock(tmp_path / "lock"):
            condition.notify_all()
            assert not lock.acquire(blocking=False)
            assert not lock.acquire(timeout=0)
            for act in (
                lock.acquire,
                lambda: lock.acquire(timeout=1),
                condition.wait,
                event.wait,
                lambda: event.wait(1),
                lambda: runtime.sleep(1),
            ):
                assert "World.run" in error_of(act)
        assert not event.wait(0)
        event.set()
        assert event.wait()
        assert runtime.each(str, [1, 2], at_once=2) == ["1", "2"]
        assert list(runtime.ahead(str, [1, 2, 3], at_once=2)) == ["1", "2", "3"]
        assert elsewhere(lambda: 7) == 7
        assert runtime.current_thread() is threading.current_thread()
        runtime.sleep(0)
        thread = started(lambda: world.tell("runs when the world does"))
        assert "World.run" in error_of(thread.join)
        thread.join(0)
        world.run()
        assert not thread.is_alive()


def test_a_lock_held_outside_is_waited_for_inside() -> None:
    with simulating(World(1)) as world:
        lock = runtime.lock()
        lock.acquire()
        thread = world.process("a").spawn(lock.acquire, "main")
        assert world.run(world.now + 10)
        assert not thread.ended
        lock.release()
        world.run()
        assert thread.value is True


def test_a_closed_world_refuses() -> None:
    with simulating(World(1)) as world:
        own = SimulatedRuntime(world)
    for act in (own.monotonic, own.now_ms, own.new_id, lambda: own.sleep(0), world.run):
        assert "WorldError" in error_of(act)


def test_who_does_not_want_to_die_is_left_alone() -> None:
    with simulating(World(1)) as world:
        cries: list[int] = []

        def cling() -> None:
            while True:
                try:
                    runtime.sleep(1)
                except BaseException:
                    cries.append(1)

        world.process("a").spawn(cling, "main")
        world.run(within_s=3)
    assert len(cries) > 100


def test_an_interrupt_reaches_who_runs_the_world() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with simulating(World(1)) as world:
        world.process("a").spawn(interrupt, "main")
        with pytest.raises(KeyboardInterrupt):
            world.run()
        assert not world.crashes


def test_worlds_differ_in_who_is_woken() -> None:
    def have(world: World, lock: runtime.Lock) -> None:
        with lock:
            world.tell("has it")
            runtime.sleep(1)

    orders = set()
    for seed in range(20):
        with simulating(World(seed)) as world:
            lock, process = runtime.lock(), world.process("a")
            for name in "abc":
                process.spawn(partial(have, world, lock), name)
            world.run()
            orders.add("".join(line.split()[1] for line in world.trace()))
    assert len(orders) == 6


def test_a_thread_that_the_world_does_not_know_is_refused() -> None:
    with simulating(World(1)) as world:
        said: list[str] = []

        def work() -> None:
            stranger = threading.Thread(
                target=lambda: said.append(error_of(lambda: runtime.sleep(1)))
            )
            stranger.start()
            stranger.join()

        world.process("a").spawn(work, "main")
        world.run()
    assert "a thread that the world doesn't know waits" in said[0]


def test_who_is_dead_is_not_woken_in_place_of_who_lives() -> None:
    for seed in range(10):
        with simulating(World(seed)) as world:
            lock = runtime.lock()
            lock.acquire()
            processes = [world.process(name) for name in ("one", "other")]
            threads = [process.spawn(lock.acquire, "main") for process in processes]
            world.run(within_s=1)
            processes[0].kill()
            lock.release()
            world.run()
            assert [thread.ended for thread in threads] == [False, True]


def test_what_is_stuck_tells_of_threads_that_ended_in_errors() -> None:
    with simulating(World(1)) as world:
        world.process("a").spawn(lambda: int("oh"), "main")
        world.process("b").spawn(runtime.event().wait, "main")
        with pytest.raises(Stuck, match="a/main has ended in ValueError"):
            world.run()
        world.crashes.clear()


def test_nothing_is_started_in_a_dead_process() -> None:
    with simulating(World(1)) as world:
        process = world.process("a")
        process.kill()
        assert "a is dead" in error_of(lambda: process.spawn(list, "main"))
        assert "can't be killed" in error_of(world.home.kill)
