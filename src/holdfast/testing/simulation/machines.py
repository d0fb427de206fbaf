"""The hosts of a simulated cluster: their disks, the executors on them, and what is known of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from holdfast.placement.planner import Host
from holdfast.storage import Storage
from holdfast.tasks.here import Here
from holdfast.testing.simulation.processes import Process
from holdfast.testing.simulation.world import World

__all__ = ["Executor", "Machine", "Machines"]

_SLOTS = 2


@dataclass(eq=False)
class Executor:
    """A process on a host that runs tasks."""

    name: str
    process: Process
    here: Here
    seen: bool = True
    """Whether the driver knows it, and thinks that it lives."""
    watchers: list[Callable[[], None]] = field(default_factory=list)
    """Told when the driver learns that it is gone."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.alive


@dataclass(eq=False)
class Machine:
    """A host: its disk stays when its processes go, until the host itself is lost."""

    name: str
    disk: Path
    alive: bool = True
    executor: Executor | None = None
    lost: bool = False
    """Whether the driver has been told that the host itself is gone."""


class Machines:
    """All hosts of a world."""

    def __init__(self, world: World, root: Path, storage: Storage, draw: Random) -> None:
        self._world = world
        self._root = root
        self._storage = storage
        self._draw = draw
        self._numbers = 0
        self.all: dict[str, Machine] = {}

    def add(self, name: str) -> Machine:
        """A host that has just come, with an executor; also one that was lost, with an empty disk."""
        self._numbers += 1
        disk = self._root / f"{name}-{self._numbers}"
        disk.mkdir(parents=True)
        machine = self.all[name] = Machine(name, disk)
        self.start_executor(machine)
        return machine

    def start_executor(self, machine: Machine) -> None:
        """An executor joins."""
        if not machine.alive or (machine.executor is not None and machine.executor.seen):
            return
        process = self._world.process(f"executor-{machine.name}")
        here = Here(machine.name, machine.disk, self._storage)
        machine.executor = Executor(f"{machine.name}:{process.pid}", process, here)
        self._world.tell(f"executor {machine.executor.name} joins")

    def executors(self) -> list[Executor]:
        """Those that the driver knows."""
        found = [machine.executor for machine in self.all.values()]
        return [executor for executor in found if executor is not None and executor.seen]

    def hosts(self) -> tuple[Host, ...]:
        """The hosts that have one."""
        names = sorted({executor.here.host for executor in self.executors()})
        return tuple(Host(name, _SLOTS) for name in names)

    def kill_executor(self, machine: Machine, *, again_s: float | None) -> None:
        """Its executor dies, and another is started if the host lives."""
        executor = machine.executor
        if executor is None or not executor.alive:
            return
        self._world.later(self._draw.uniform(0.0, 3.0), lambda: self._unseen(executor))
        if again_s is not None:
            self._world.later(3.0 + again_s, lambda: self.start_executor(machine))
        # Last: one that is killed by what it does itself does nothing more.
        executor.process.kill()

    def kill_host(self, machine: Machine) -> None:
        """The host goes with all it has."""
        machine.alive = False
        self.kill_executor(machine, again_s=None)
        self._world.later(3.5, lambda: setattr(machine, "lost", True))

    def cut_off(self, machine: Machine) -> None:
        """The driver loses sight of the host; what runs there goes on, and nobody hears of it."""
        executor = machine.executor
        if executor is not None and executor.alive:
            machine.lost = True
            self._unseen(executor)

    def rejoin(self, machine: Machine, *, itself: bool = False) -> None:
        """The host is seen again: its old executor is told to end, and a new one comes.

        ``itself``: it is the old one that comes back, with whatever it still does.
        """
        executor = machine.executor
        machine.lost = not machine.alive
        if executor is not None and executor.alive and not executor.seen:
            if itself:
                executor.seen = True
                self._world.tell(f"executor {executor.name} is seen again")
                return
            executor.process.kill()
        self.start_executor(machine)

    def of(self, process: Process) -> Machine | None:
        """The host of an executor's process."""
        found = (m for m in self.all.values() if m.executor and m.executor.process is process)
        return next(found, None)

    def _unseen(self, executor: Executor) -> None:
        if executor.seen:
            executor.seen = False
            self._world.tell(f"executor {executor.name} is gone")
            watchers, executor.watchers = executor.watchers, []
            for told in watchers:
                told()
