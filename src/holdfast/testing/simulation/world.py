"""A world: simulated processes, what they tell, and how it all ends."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet

from holdfast.errors import ConfigurationError
from holdfast.storage import Storage
from holdfast.testing.simulation.errors import Dead, WorldError
from holdfast.testing.simulation.processes import Process, SimulatedThread
from holdfast.testing.simulation.schedule import Schedule
from holdfast.testing.simulation.stacks import standing
from holdfast.testing.simulation.strikes import Points

if TYPE_CHECKING:
    from holdfast.testing.simulation.store import SimulatedStore

__all__ = ["Crash", "World"]

_BEGAN_MS = 1_750_000_000_000
_MOST_REFUSALS = 1000
# Threads that don't end though they are told so: to let go of one would have it told again.
_undead: list[greenlet] = []


@dataclass(frozen=True, slots=True)
class Crash:
    """A thread that ended in an error that nobody caught."""

    process: Process
    thread: str
    error: BaseException
    traceback: str

    def __str__(self) -> str:
        return f"{self.process.label}/{self.thread} ended in an error:\n{self.traceback}"


class World(Schedule):
    """Processes that share a seed and a virtual time.

    >>> world = World(7)
    >>> process = world.process("driver")
    >>> threads = [process.spawn(lambda: world.tell("here"), name) for name in "ab"]
    >>> world.run()
    True
    >>> sorted(line.split()[1] for line in world.trace())
    ['driver/a:', 'driver/b:']
    >>> world.close()
    """

    def __init__(
        self, seed: int | str, *, began_ms: int = _BEGAN_MS, step_s: float | None = None
    ) -> None:
        """``step_s``, which otherwise the seed decides, passes with every step of a thread."""
        super().__init__(seed, step_s)
        self._clocks = self.random("clocks")
        self._began_ms = began_ms
        self._trace: list[tuple[float, SimulatedThread, str]] = []
        self.crashes: list[Crash] = []
        self.processes: list[Process] = []
        self.when_killed: list[Callable[[Process], None]] = []
        """Told of every process that is killed: what the kernel or another machine does then."""
        self.points = Points(self)
        self.stores: dict[str, SimulatedStore] = {}
        self.home = Process(self, "outside", 0, "outside", 0)
        self.current = self.outside = SimulatedThread(self, lambda: None, "set-up")

    def process(self, name: str, clock_ms: int | None = None) -> Process:
        """A new process; another of the same name is its next life.

        ``clock_ms`` is how far its wall clock is off, by default up to a second.
        """
        drawn_ms = self._clocks.randint(-1000, 1000)
        before = sum(process.name == name for process in self.processes)
        process = Process(
            self,
            name,
            len(self.processes) + 1,
            f"{name}#{before + 1}" if before else name,
            drawn_ms if clock_ms is None else clock_ms,
        )
        self.processes.append(process)
        return process

    def clock_ms(self) -> int:
        """Milliseconds since 1970, by a clock that is right."""
        return self._began_ms + int(self.now * 1000)

    # The trace

    def tell(self, text: str, thread: SimulatedThread | None = None) -> None:
        """Note what happens, and who does it: by default the thread that goes on now."""
        if self.closed:
            self.refuse()
        self._trace.append((self.now, thread or self.current, text))

    def trace(self) -> list[str]:
        """What was told, a line each."""
        return [f"{when:.6f} {thread!r}: {text}" for when, thread, text in self._trace]

    def crashed(self, thread: SimulatedThread, error: BaseException) -> None:
        """A thread ends in this error."""
        self.tell(f"ends in {type(error).__name__}: {error}")
        text = "".join(traceback.format_exception(error))
        self.crashes.append(Crash(thread.process, thread.name, error, text))

    def open(self, url: str) -> Storage:
        """The storage at a URL, for who asks."""
        store = self.stores.get(url.removeprefix("simulated://"))
        if store is None:
            raise ConfigurationError(
                f"there is no {url} in this world", hint="make a SimulatedStore of that name"
            )
        return store.client(self.current.process)

    def standing(self) -> str:
        """Every thread, what it waits for and where; and those that ended in errors."""
        crashed = [f"{c.process.label}/{c.thread} has ended in {c.error!r}" for c in self.crashes]
        return "\n".join([*crashed, standing([self.home, *self.processes])])

    def pause_point(self, name: str) -> None:
        """A thread passes a failpoint: see :class:`Points`."""
        self.points.passed(name)

    # The beginning and the end of threads

    def begin(self, thread: SimulatedThread) -> None:
        """This thread has been started."""
        if self.closed:
            self.refuse()
        super().begin(thread)
        thread.process.threads[thread.number] = thread

    def end(self, thread: SimulatedThread) -> None:
        """This thread has done all it had to."""
        thread.ended = True
        del thread.process.threads[thread.number]
        for joiner in thread.joiners:
            self.wake(joiner)
        thread.joiners.clear()

    def refuse(self) -> None:
        """The world is closed."""
        thread = self.current
        if thread is self.outside:
            raise WorldError(f"world {self.seed} is closed")
        thread.refusals += 1
        if thread.refusals > _MOST_REFUSALS:
            _undead.append(thread.greenlet)
            self._hub.switch()
        raise Dead

    def close(self) -> None:
        """End what is left of all threads; none of it reaches the world any more."""
        if self.current is not self.outside or getcurrent() is not self._hub:
            raise WorldError("a world is closed by who has made it, from outside")
        self.closed = True
        self.skip = -(1 << 62)
        for process in (self.home, *self.processes):
            for thread in process.threads.values():
                self.current = thread
                try:
                    if thread.greenlet is not None and not thread.greenlet.dead:
                        thread.greenlet.throw(Dead)
                finally:
                    self.current = self.outside
        self._ready.clear()
        self._timers.clear()
