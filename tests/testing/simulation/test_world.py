from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import runtime
from holdfast.testing.simulation import Process, Stuck, World, WorldError, simulating
from tests.testing.simulation import courses


def test_the_same_seed_gives_the_same_course() -> None:
    assert courses.course(3) == courses.course(3)
    assert courses.course(3) != courses.course(4)


def test_the_course_does_not_depend_on_how_strings_are_hashed() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-m", courses.__name__, "5"],
            cwd=Path(__file__).parents[3], env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert said == {f"{courses.course(5)}\n"}


def test_time_jumps_to_what_happens_next() -> None:
    with simulating(World(1)) as world:
        began = world.now
        world.process("a").spawn(lambda: runtime.sleep(86_400), "sleeper")
        assert not world.run(within_s=3600)
        assert world.now == pytest.approx(began + 3600)
        assert world.run()
        assert world.now == pytest.approx(began + 86_400, abs=0.01)


def test_a_predicate_ends_a_run() -> None:
    with simulating(World(1)) as world:
        done: list[int] = []

        def work() -> None:
            for i in range(100):
                runtime.sleep(1)
                done.append(i)

        world.process("a").spawn(work, "main")
        assert world.run(lambda: len(done) == 7)
        assert len(done) == 7
        assert not world.run(lambda: len(done) == 50, within_s=5)
        assert world.run(world.now + 2)


def test_a_run_until_a_time_gets_there_though_nothing_happens() -> None:
    with simulating(World(1)) as world:
        assert world.run(world.now + 60)
        event = runtime.event()
        world.process("a").spawn(event.wait, "main")
        assert world.run(world.now + 60)
        assert world.now == pytest.approx(1120)


def test_who_is_stuck_says_where() -> None:
    with simulating(World(1)) as world:
        process = world.process("driver")
        first, second, event = runtime.lock(), runtime.lock(), runtime.event()

        def embrace(one: runtime.Lock, other: runtime.Lock) -> None:
            with one:
                runtime.sleep(1)
                with other:
                    pass

        process.spawn(lambda: embrace(first, second), "left")
        process.spawn(lambda: embrace(second, first), "right")
        process.spawn(event.wait, "third")
        world.process("gone").kill()
        with pytest.raises(Stuck) as stuck:
            world.run(most_steps=10_000)
    said = str(stuck.value)
    assert "driver/left waits for a lock that driver/right has" in said
    assert "driver/third waits for an event" in said
    assert "in embrace: with other:" in said
    assert "gone is dead" in said


def test_too_many_steps_are_told() -> None:
    with simulating(World(1)) as world:

        def spin() -> None:
            while True:
                runtime.sleep(0)

        world.process("a").spawn(spin, "main")
        with pytest.raises(Stuck, match="100 steps were not enough"):
            world.run(most_steps=100)


def test_a_killed_process_does_nothing_any_more() -> None:
    with simulating(World(1)) as world:
        process, other = world.process("a"), world.process("b")
        done: list[str] = []

        def work() -> None:
            try:
                with runtime.lock():
                    done.append("begun")
                    runtime.sleep(10)
                    done.append("slept")
            finally:
                done.append("after its end" if world.closed else "before")
                world.tell("cleans up")
                done.append("told")

        def kill() -> None:
            runtime.sleep(5)
            process.kill()

        process.spawn(work, "main")
        other.spawn(kill, "killer")
        world.run()
        assert done == ["begun"]
        told = world.trace()
    assert done == ["begun", "after its end"]
    assert world.trace() == told


def test_who_kills_his_own_process_does_not_return() -> None:
    with simulating(World(1)) as world:
        done: list[str] = []
        process = world.process("a")

        def work() -> None:
            process.kill()
            done.append("returned")

        process.spawn(work, "main")
        world.run()
        assert not process.alive
    assert not done


def test_a_paused_process_finds_its_timeouts_expired() -> None:
    with simulating(World(1)) as world:
        process, event, found = world.process("a", 0), runtime.event(), []

        def wait() -> None:
            began = runtime.monotonic()
            found.append((event.wait(5), runtime.monotonic() - began))

        process.spawn(wait, "main")
        world.later(1, process.pause)
        world.later(60, process.resume)
        world.run()
    ((came, after_s),) = found
    assert not came
    assert after_s == pytest.approx(60, abs=0.01)


def test_wall_clocks_are_a_process_own() -> None:
    with simulating(World(1)) as world:
        one, other = world.process("one", 0), world.process("other", 250)
        told: dict[str, int] = {}

        def tell(process: Process) -> None:
            told[process.name] = runtime.now_ms()

        one.spawn(lambda: tell(one), "main")
        other.spawn(lambda: tell(other), "main")
        world.run()
        assert told["other"] - told["one"] in (249, 250, 251)
        one.jump(-5000)
        assert one.now_ms() < told["one"] - 4000


def test_what_nobody_caught_is_told() -> None:
    world = World(1)

    def live() -> None:
        with simulating(world):
            world.process("a").spawn(lambda: int("oh"), "main")
            world.run()

    with pytest.raises(WorldError, match=r"a/main ended in an error(?s:.*)ValueError: .*oh"):
        live()
    (crash,) = world.crashes
    assert isinstance(crash.error, ValueError)
