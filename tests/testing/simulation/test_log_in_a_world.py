"""Drivers that race for a log, in worlds in which everything goes wrong."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast import runtime
from holdfast.checkpoint.log import Log, LogMovedError, read_log
from holdfast.errors import CorruptionError, FencedError, StorageError
from holdfast.testing.simulation import SimulatedStore, World, simulating


def drive(world: World, store: SimulatedStore, after_s: float) -> None:
    """Claim the log and write to it, until another driver has claimed it."""
    runtime.sleep(after_s)
    log = None
    while log is None:
        try:
            log = Log.claim(
                store.client(), "p", runtime.whoami(), now_ms=runtime.now_ms, nonce=runtime.new_id
            )
        except (StorageError, CorruptionError):
            runtime.sleep(1)
    for _ in range(20):
        try:
            log.append_collect((), ())
        except FencedError:
            world.tell("is fenced")
            return
        except (StorageError, LogMovedError):
            runtime.sleep(1)


@pytest.mark.parametrize("seed", range(40))
def test_a_log_is_written_by_one_driver_after_the_other(seed: int) -> None:
    with simulating(World(seed)) as world:
        store = SimulatedStore(world)
        faults = world.random("scenario")
        for i in range(4):
            process = world.process(f"driver-{i}")
            process.spawn(partial(drive, world, store, faults.uniform(0, 60)), "main")
            world.later(faults.uniform(0, 300), process.pause)
            world.later(faults.uniform(300, 600), process.resume)
            if faults.random() < 0.3:
                world.at_step(faults.randint(1, 200), process.kill)
        world.run(most_steps=100_000)
        store.faults.off()
        state = read_log(store.client())
        claims = [state.entry(number).claim for number in state.numbers]
    assert claims == sorted(claims)
    assert list(state.numbers) == list(range(len(claims)))
