"""A world in one process: its seed decides who goes on when, what time it is, and what breaks.

The very code of a driver runs as cooperative threads of simulated processes, with the clock, locks,
ids and storage of a :class:`World` in place of real ones. The same seed gives the same course of
events, so what went wrong once can be looked at again.

>>> from holdfast import runtime
>>> with simulating(World(1)) as world:
...     first, second = world.process("first"), world.process("second")
...     def live():
...         runtime.sleep(3600)
...         world.tell(f"{runtime.whoami()} woke up")
...     sleepers = [process.spawn(live, "main") for process in (first, second)]
...     first.kill()
...     world.run()
True
>>> world.trace()[-1].split(": ")[1]
'second:2 woke up'
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import failpoints
from holdfast.runtime import running_on
from holdfast.storage import serve
from holdfast.testing.simulation.errors import Stuck, WorldError
from holdfast.testing.simulation.faults import Fault, Faults, Rates
from holdfast.testing.simulation.processes import Process, SimulatedThread
from holdfast.testing.simulation.runtime import SimulatedRuntime
from holdfast.testing.simulation.storage import SimulatedStorage
from holdfast.testing.simulation.store import Change, SimulatedStore
from holdfast.testing.simulation.world import Crash, World

__all__ = [
    "Change",
    "Crash",
    "Fault",
    "Faults",
    "Process",
    "Rates",
    "SimulatedRuntime",
    "SimulatedStorage",
    "SimulatedStore",
    "SimulatedThread",
    "Stuck",
    "World",
    "WorldError",
    "simulating",
]


@contextmanager
def simulating(world: World) -> Iterator[World]:
    """Everything in this process runs in the world until the block ends, which closes the world.

    ``WorldError`` in the end if threads ended in errors that nobody caught and nobody has taken out
    of ``world.crashes``.
    """
    with running_on(SimulatedRuntime(world)), serve("simulated", world.open):
        failpoints.watch(world.pause_point)
        try:
            yield world
        finally:
            world.close()
            failpoints.watch(None)
    if world.crashes:
        raise WorldError("\n".join(map(str, world.crashes)))
