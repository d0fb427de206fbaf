"""What a simulated storage keeps: shared by all processes of a world, and out of their reach."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from holdfast.storage import NotFoundError, ObjectInfo
from holdfast.testing.simulation.faults import Faults
from holdfast.testing.simulation.processes import Process, SimulatedThread

if TYPE_CHECKING:
    from holdfast.testing.simulation.storage import SimulatedStorage
    from holdfast.testing.simulation.world import World

__all__ = ["Change", "SimulatedStore", "flip_bits"]

_NEVER_REPLACED = ("log/", "runs/", "blobs/", "staged/")
_REPLICAS = 2


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was done to an object: ``put``, ``delete`` or ``damage``."""

    when: float
    process: str
    verb: str
    name: str
    data: bytes | None
    shown: int | None = None
    """Of what was deleted: see :meth:`SimulatedStore.shown`, when it was asked for."""
    late: bool = False
    """Whether who asked for it had been told that it failed."""


class SimulatedStore:
    """Objects, their history, and what goes wrong with them.

    >>> from holdfast.testing.simulation import World
    >>> store = SimulatedStore(World(1))
    >>> store.client().put("log/1", b"one")
    >>> [(change.process, change.verb, change.name) for change in store.history]
    [('outside', 'put', 'log/1')]
    """

    def __init__(self, world: World, name: str = "ck", hosts: Sequence[str] = ()) -> None:
        """``hosts`` are those that keep objects on their disks, if it is that kind of storage."""
        self.world = world
        self.name = name
        self.url = f"simulated://{name}"
        self.hosts = tuple(hosts)
        self.faults = Faults(world, name)
        self.objects: dict[str, tuple[bytes, float]] = {}
        """What is there: bytes, and when they were put (seconds since 1970)."""
        self.history: list[Change] = []
        self.damaged: dict[str, bytes] = {}
        """Objects whose bytes aren't what was put, and what was."""
        self.timeout_s = 30.0
        """After which a call that gets no answer fails."""
        self.delays = world.random(f"delays/{name}").random
        self.latency_s = (0.0005, 0.005, 0.05)[int(self.delays() * 3)]
        """How long a request, and an answer, are on their way, on average."""
        self.creates_once = True
        """Otherwise it takes create-if-absent for create, as some servers do."""
        self.is_late = False
        """Whether what is done at this moment is done late."""
        self._cut_off: set[Process] = set()
        self._shown: dict[SimulatedThread, int] = {}
        # Outside of all threads of the world, real ones may race: tests of storage do.
        self.mutex = threading.Lock()
        world.stores[name] = self

    def client(self, process: Process | None = None) -> SimulatedStorage:
        """The storage as a process sees it. In a thread of the world, it is always that thread's."""
        from holdfast.testing.simulation.storage import SimulatedStorage

        return SimulatedStorage(self, process or self.world.home)

    # Faults that aren't of a call

    def cut_off(self, process: Process) -> None:
        """Nothing that this process asks arrives any more, nor do answers."""
        self.world.tell(f"{process.label} is cut off from {self.url}")
        self._cut_off.add(process)

    def heal(self, process: Process) -> None:
        """It reaches storage again."""
        self.world.tell(f"{process.label} reaches {self.url} again")
        self._cut_off.discard(process)

    def reaches(self, process: Process) -> bool:
        """Whether it isn't cut off."""
        return process not in self._cut_off

    def damage(self, name: str | None = None, prefix: str = "") -> str | None:
        """Some bits of an object, this or any below a prefix, change for good; its name, if any."""
        if name is None:
            whole = [n for n, (data, _) in self.objects.items() if data and n not in self.damaged]
            below = sorted(n for n in whole if n.startswith(prefix))
            if not below:
                return None
            name = self.world.random("damage").choice(below)
        data, when = self.objects[name]
        wrong = flip_bits(data, self.world.random("damage"))
        self.damaged.setdefault(name, data)
        self.objects[name] = (wrong, when)
        self._note("outside", "damage", name, wrong)
        self.world.tell(f"{name} is damaged")
        return name

    def restore(self, name: str) -> None:
        """Somebody puts a copy in the place of an object that was damaged, if it is still there."""
        if name in self.damaged:
            self.objects[name] = (self.damaged.pop(name), self.objects[name][1])
            self.world.tell(f"{name} is restored")

    # What can be done to objects, at once

    def get(self, name: str) -> bytes:
        """The whole object."""
        found = self.objects.get(name)
        if found is None:
            raise NotFoundError(name)
        return found[0]

    def put(self, name: str, data: bytes, process: Process) -> None:
        """Create or replace an object."""
        there = self.objects.get(name)
        if there is not None and self.creates_once and name.startswith(_NEVER_REPLACED):
            before = self.damaged.get(name, there[0])
            if before != data:
                raise self.world.fail(
                    f"{process.label} replaces {name}, {len(before)} bytes, by {len(data)} others"
                )
        self.damaged.pop(name, None)
        self.objects[name] = (data, self.world.clock_ms() / 1000)
        self._note(process.label, "put", name, data)

    def put_if_absent(self, name: str, data: bytes, process: Process) -> bool:
        """Create an object; False if there is one."""
        if name in self.objects and self.creates_once:
            return False
        self.put(name, data, process)
        return True

    def delete(self, names: Sequence[str], process: Process, shown: int | None = None) -> None:
        """Delete objects."""
        for name in names:
            if self.objects.pop(name, None) is not None:
                self.damaged.pop(name, None)
                self._note(process.label, "delete", name, None, shown)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """What is there at this moment."""
        found = sorted(name for name in self.objects if name.startswith(prefix))
        return [
            ObjectInfo(name, len(self.objects[name][0]), self.objects[name][1]) for name in found
        ]

    def locations(self, name: str) -> tuple[str, ...]:
        """Who keeps an object."""
        self.get(name)
        first = crc32(name.encode())
        return tuple(
            self.hosts[(first + i) % len(self.hosts)]
            for i in range(min(_REPLICAS, len(self.hosts)))
        )

    # Who has looked at the log

    def asks(self, verb: str, name: str) -> None:
        """The thread that goes on now asks for something: what it was shown before is of before."""
        if not (verb == "get" and name.startswith("log/")):
            self._shown.pop(self.world.current, None)

    def answered(self, verb: str, name: str, answer: object) -> None:
        """Note what the thread that goes on now has been told last."""
        if verb == "list" and name == "log/" and type(answer) is list:
            found = [i.name[4:-5] for i in answer if i.name.endswith(".json")]
            number = max((int(each) for each in found if each.isdecimal()), default=-1)
            self._shown[self.world.current] = number

    def shown(self) -> int | None:
        """The number of the newest entry that the thread that goes on now has just been shown.

        None if it has asked for anything else since it looked at the log.
        """
        return self._shown.get(self.world.current)

    def _note(
        self, process: str, verb: str, name: str, data: bytes | None, shown: int | None = None
    ) -> None:
        now = self.world.now
        self.history.append(Change(now, process, verb, name, data, shown, self.is_late))


def flip_bits(data: bytes, random: random.Random) -> bytes:
    """The same with up to eight wrong bits."""
    wrong = bytearray(data)
    for bit in (
        {random.randrange(8 * len(data)) for _ in range(random.randint(1, 8))} if data else ()
    ):
        wrong[bit // 8] ^= 1 << bit % 8
    return bytes(wrong)
