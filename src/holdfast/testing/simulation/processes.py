"""Simulated processes and their threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from greenlet import GreenletExit, greenlet

from holdfast.testing.simulation.errors import Dead, WorldError

if TYPE_CHECKING:
    from holdfast.testing.simulation.world import World

__all__ = ["Process", "SimulatedThread"]


class SimulatedThread:
    """A cooperative thread of a simulated process; ``holdfast.runtime.Thread``.

    ``value`` is what its function returned, ``error`` what ended it, once it has ended.
    """

    __slots__ = (
        "_target",
        "blocked",
        "ended",
        "error",
        "greenlet",
        "joiners",
        "name",
        "number",
        "process",
        "rank",
        "refusals",
        "started",
        "token",
        "value",
        "waits_for",
        "woken",
        "world",
    )

    def __init__(self, world: World, target: Callable[[], object], name: str) -> None:
        self.world = world
        self.name = name
        self._target = target
        self.process = world.home
        self.number = 0
        self.rank = 0.0
        self.started = self.ended = False
        self.value: object = None
        self.error: BaseException | None = None
        self.greenlet: greenlet = None
        self.joiners: list[SimulatedThread] = []
        # How it waits: a wake-up with another token is of a wait that is over.
        self.blocked = self.woken = False
        self.token = 0
        self.waits_for: object = None
        self.refusals = 0

    def __repr__(self) -> str:
        return f"{self.process.label}/{self.name}"

    def start(self) -> None:
        """Go on, as a thread of the process of who calls this."""
        self.start_in(self.world.current.process)
        self.world.yield_now()

    def start_in(self, process: Process) -> None:
        """Go on as a thread of this process."""
        if self.started:
            raise RuntimeError("threads can only be started once")
        self.started = True
        self.process = process
        self.world.begin(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, so long at most. Of a dead process' thread nobody learns it."""
        world = self.world
        if not self.started:
            raise RuntimeError("cannot join thread before it is started")
        if self is world.current:
            raise RuntimeError("cannot join current thread")
        if self.ended:
            world.yield_now()
        elif timeout is None or timeout > 0 or world.current is not world.outside:
            world.check_can_wait()
            self.joiners.append(world.current)
            if not world.wait(self, None if timeout is None else max(0.0, timeout)):
                self.joiners.remove(world.current)

    def is_alive(self) -> bool:
        """Whether it has begun and not ended, nor has its process been killed."""
        return self.started and not self.ended and self.process.alive

    def body(self) -> None:
        """What its greenlet does."""
        world = self.world
        try:
            self.value = self._target()
        except (Dead, GreenletExit):
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a fault to report
            if world.closed:
                return
            self.error = error
            world.crashed(self, error)
        finally:
            # What else there is (KeyboardInterrupt, a test's time-out) goes on to who runs the world.
            if not world.closed:
                world.end(self)

    def waits_for_words(self) -> str:
        """What it waits for, for people."""
        return f"the end of {self!r}"


class Process:
    """A simulated process: threads that live and die together, and a wall clock of their own."""

    def __init__(self, world: World, name: str, pid: int, label: str, clock_ms: int) -> None:
        """Use ``world.process``."""
        self.world = world
        self.name = name
        self.pid = pid
        self.label = label
        """Its name, and from the second of that name on a number: for people."""
        self.clock_ms = clock_ms
        """How far its wall clock is off."""
        self.alive = True
        self.paused = False
        self.threads: dict[int, SimulatedThread] = {}
        """Those that have begun and not ended."""
        self.held: list[SimulatedThread] = []
        """Those that would go on if it weren't paused."""

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive"
        return f"<{self.label}: {state if self.alive else 'dead'}>"

    def spawn(self, target: Callable[[], object], name: str) -> SimulatedThread:
        """Run a function as a thread of this process, from the next ``world.run`` on."""
        if not self.alive:
            raise WorldError(f"{self.label} is dead: nothing can be started in it")
        thread = SimulatedThread(self.world, target, name)
        thread.start_in(self)
        return thread

    def now_ms(self) -> int:
        """Its wall clock."""
        return self.world.clock_ms() + self.clock_ms

    def jump(self, ms: int) -> None:
        """Somebody sets its wall clock forward, or back."""
        self.world.tell(f"the clock of {self.label} jumps by {ms} ms")
        self.clock_ms += ms

    def pause(self) -> None:
        """SIGSTOP: its threads stand still while time goes on. In one of them, it takes effect here."""
        if not self.alive or self.paused:
            return
        self.world.tell(f"{self.label} is paused")
        self.paused = True
        self.world.withhold(self)

    def resume(self) -> None:
        """SIGCONT: its threads go on, and find that time has passed."""
        if not self.alive or not self.paused:
            return
        self.world.tell(f"{self.label} is resumed")
        self.paused = False
        held, self.held = self.held, []
        for thread in held:
            self.world.make_ready(thread)

    def kill(self) -> None:
        """SIGKILL: none of its threads does anything any more. Called by one of them, never returns."""
        if self is self.world.home:
            raise WorldError("who sets up a world can't be killed")
        if not self.alive:
            return
        self.world.tell(f"{self.label} is killed")
        self.alive = self.paused = False
        self.held.clear()
        for told in self.world.when_killed:
            told(self)
        self.world.withhold(self)
