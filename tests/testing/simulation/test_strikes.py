from __future__ import annotations

import pytest

from holdfast import failpoints, runtime
from holdfast.failpoints import failpoint
from holdfast.testing.simulation import Process, SimulatedStore, World, simulating


def passing(process: Process, times: int = 5) -> list[object]:
    """A thread passes a point several times; how far it comes."""
    come: list[object] = []

    def work() -> None:
        for i in range(times):
            try:
                failpoint("log.before_create")
                come.append(i)
            except OSError as error:
                come.append(error.strerror)
            runtime.sleep(1)

    process.spawn(work, "main")
    return come


def test_a_kill_strikes_at_the_nth_passage() -> None:
    with simulating(World(1)) as world:
        process = world.process("a")
        come = passing(process)
        world.points.strike("log.before_create", "kill", at=3)
        world.run()
    assert come == [0, 1]
    assert not process.alive
    assert world.points.passages["log.before_create"] == 3


def test_a_process_is_paused_for_a_while() -> None:
    with simulating(World(1)) as world:
        come, others = passing(world.process("a")), passing(world.process("b"))
        world.points.strike("log.*", "pause", at=2, process=world.processes[0], for_s=60)
        world.run(within_s=30)
        assert (come, others) == ([0], [0, 1, 2, 3, 4])
        world.run()
    assert come == [0, 1, 2, 3, 4]


def test_an_error_strikes_once() -> None:
    with simulating(World(1)) as world:
        come = passing(world.process("a"))
        world.points.strike("log.before_create", "fail", at=2)
        world.points.strike("log.before_create", "full", at=4)
        world.run()
    assert [str(item) for item in come] == [
        "0",
        "Input/output error (simulated, at log.before_create)",
        "2",
        "No space left on device (simulated, at log.before_create)",
        "4",
    ]


def test_a_function_strikes_in_the_thread_that_passes() -> None:
    with simulating(World(1)) as world:
        passing(world.process("a"))
        world.points.strike("log.before_create", lambda: world.tell("struck"))
        world.run()
        with pytest.raises(ValueError, match="nothing that can strike"):
            world.points.strike("log.before_create", "shout")
    assert any(line.endswith("a/main: struck") for line in world.trace())


def test_calls_of_storage_are_points_too() -> None:
    with simulating(World(1)) as world:
        store = SimulatedStore(world)
        store.faults.off()
        process = world.process("a")
        process.spawn(lambda: store.client().put("a", b"x"), "main")
        world.points.strike("storage.put.answered", "kill")
        world.run()
        assert not process.alive
        assert "a" in store.objects


def test_a_kill_may_come_before_any_step() -> None:
    ends = set()
    for step in range(2, 12):
        with simulating(World(1)) as world:
            process = world.process("a")
            come = passing(process)
            world.at_step(step, process.kill)
            world.run()
            assert not process.alive
            ends.add(len(come))
    assert len(ends) > 3


def test_armed_points_strike_in_a_world_too() -> None:
    with simulating(World(1)) as world:
        failpoints.arm("log.before_create", "fail", at=2)
        try:
            come = passing(world.process("a"), times=3)
            world.run()
        finally:
            failpoints.disarm()
    assert come == [0, "Input/output error (failpoint)", 2]


def test_outside_a_world_nobody_watches() -> None:
    with simulating(World(1)) as world:
        failpoint("test.set_up")
        assert world.points.passages["test.set_up"] == 1
    failpoint("test.set_up")
    assert world.points.passages["test.set_up"] == 1
