from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import runtime
from holdfast.testing.simulation import World, simulating
from tests.testing.simulation.small_programs import Run

_SEEDS = range(12)


def in_a_world(seed: int, program: Callable[[], object]) -> object:
    with simulating(World(seed)) as world:
        thread = world.process("a").spawn(program, "main")
        world.run(lambda: thread.ended, most_steps=100_000)
        if thread.error is not None:
            world.crashes.clear()
            raise thread.error
        return thread.value


@pytest.fixture(params=["threading", *_SEEDS])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a program on real threads, or on simulated ones in one of several worlds."""
    if request.param == "threading":
        assert type(runtime._current) is runtime.Runtime
        return lambda program: program()
    return lambda program: in_a_world(request.param, program)
