"""The schedule of a world: who goes on next, and what time it is.

Threads are greenlets. One that waits, or might, hands over to :meth:`Schedule.run`, which draws the
next. So everything between two such points happens at once, and the same seed gives the same course
of events, also on another machine.
"""

from __future__ import annotations

import heapq
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count

from greenlet import getcurrent, greenlet

from holdfast.testing.simulation.errors import Stuck, WorldError
from holdfast.testing.simulation.processes import Process, SimulatedThread

__all__ = ["Schedule"]

_NEVER = math.inf


class Schedule(ABC):
    """Virtual time, the threads that could go on, and those that wait for a time."""

    home: Process
    """The process of who sets the world up."""
    outside: SimulatedThread
    """Who sets the world up, between runs: a thread that can't wait."""
    current: SimulatedThread
    """The thread that goes on now."""
    processes: list[Process]

    def __init__(self, seed: int | str, step_s: float | None) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}
        draw = self.random("world").random
        # How likely it is that others go on where a thread needn't wait, how fast machines are, and
        # whether some threads are much faster than others: worlds differ in what they bring to light.
        self._aside = (0.004, 0.02, 0.1, 0.3)[int(draw() * 4)]
        drawn_step_s = (1e-6, 2e-5, 4e-4)[int(draw() * 3)]
        self._step_s = drawn_step_s if step_s is None else step_s
        self._by_rank = draw() < 0.5
        self._draw = self.random("scheduling").random
        self.now = 1000.0
        """Seconds, as ``monotonic`` tells them."""
        self.steps = 0
        """How often a thread has gone on."""
        self.closed = False
        self._numbers = count(1)
        self._sequence = count()
        self._ready: list[SimulatedThread] = []
        # (when, for order, thread or function, the thread's token or -1 for a function)
        self._timers: list[tuple[float, int, SimulatedThread | Callable[[], object], int]] = []
        self._at_steps: list[tuple[int, int, Callable[[], object]]] = []
        self._failure: WorldError | None = None
        self._course = 0
        self._hub = getcurrent()
        # So many times nobody yields who needn't. Looked at by every lock: see step_aside.
        self.skip = self._gap()

    @abstractmethod
    def tell(self, text: str, thread: SimulatedThread | None = None) -> None:
        """Note what happens, and who does it: by default the thread that goes on now."""

    @abstractmethod
    def standing(self) -> str:
        """Where all threads are, for people."""

    @abstractmethod
    def refuse(self) -> None:
        """The world is closed: raise what ends the thread."""

    def random(self, stream: str) -> random.Random:
        """The random numbers of this name: what one stream gives doesn't depend on others."""
        if stream not in self._streams:
            self._streams[stream] = random.Random(f"{self.seed}/{stream}")  # noqa: S311
        return self._streams[stream]

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something after so many seconds. It can't wait, and no process' end prevents it."""
        if self.closed:
            self.refuse()
        when = self.now + max(0.0, seconds)
        heapq.heappush(self._timers, (when, next(self._sequence), action, -1))

    def at_step(self, step: int, action: Callable[[], object]) -> None:
        """Do something before the step of this number (``World.steps``): faults between any two."""
        heapq.heappush(self._at_steps, (step, next(self._sequence), action))

    def course(self) -> str:
        """Stands for the whole schedule so far: two runs that agree in it took the same course."""
        return f"{self.steps}-{self.now!r}-{self._course:016x}"

    def fail(self, text: str) -> WorldError:
        """Something has happened that must not: the world stops here. To be raised outside."""
        self._failure = WorldError(f"{text} (world {self.seed} at {self.now:.6f} s)")
        if self.current is not self.outside:
            self.tell(f"fails: {text}")
            self._hub.switch()
        return self._failure

    # For what threads wait at

    def begin(self, thread: SimulatedThread) -> None:
        """This thread has been started."""
        thread.number = next(self._numbers)
        thread.rank = self._draw()
        self.make_ready(thread)

    def make_ready(self, thread: SimulatedThread) -> None:
        """A thread may go on, unless its process stands still."""
        process = thread.process
        if process.paused:
            process.held.append(thread)
        elif process.alive:
            self._ready.append(thread)

    def withhold(self, process: Process) -> None:
        """The threads of a process that was paused or killed don't go on. Also the one that goes now."""
        if process.paused:
            process.held.extend(thread for thread in self._ready if thread.process is process)
        self._ready[:] = [thread for thread in self._ready if thread.process is not process]
        if self.current.process is process and self.current is not self.outside:
            self.make_ready(self.current)
            self._hub.switch()

    def wait(self, what: object, timeout: float | None) -> bool:
        """Wait until somebody wakes this thread; False if the time was over before."""
        thread = self.current
        if self.closed:
            self.refuse()
        self.check_can_wait()
        self._check_is_current()
        thread.waits_for = what
        thread.woken = False
        thread.blocked = True
        thread.token += 1
        if timeout is not None:
            entry = (self.now + timeout, next(self._sequence), thread, thread.token)
            heapq.heappush(self._timers, entry)
        self._hub.switch()
        return thread.woken

    def check_can_wait(self) -> None:
        """Raise ``WorldError`` if who asks is outside all threads."""
        if self.current is self.outside:
            raise WorldError(
                "who sets up a world can't wait: let its threads do so, and call World.run"
            )

    def _check_is_current(self) -> None:
        if getcurrent() is not self.current.greenlet:
            raise WorldError(
                f"a thread that the world doesn't know waits while {self.current!r} goes on: "
                "code that runs in a world starts threads by its runtime"
            )

    def wake(self, thread: SimulatedThread) -> None:
        """What a thread waits for is there, also if its time was over just now."""
        thread.woken = True
        if thread.blocked:
            thread.blocked = False
            self.make_ready(thread)

    def wake_one(self, waiting: list[SimulatedThread]) -> None:
        """Wake one of them, whichever, and take it from the list. The dead don't count."""
        while waiting:
            at = int(self._draw() * len(waiting)) if len(waiting) > 1 else 0
            thread = waiting.pop(at)
            if thread.process.alive:
                self.wake(thread)
                return

    def yield_now(self) -> None:
        """Others may go on first."""
        if self.closed:
            self.refuse()
        if self.current is not self.outside:
            self._check_is_current()
            self._ready.append(self.current)
            self._hub.switch()

    def step_aside(self) -> None:
        """Called when ``skip`` has run out, and in a closed world always: others may go on first."""
        if self.closed:
            self.refuse()
        self.skip = self._gap()
        self.yield_now()

    def _gap(self) -> int:
        return int(math.log(1.0 - self._draw()) / math.log(1.0 - self._aside))

    # Going on

    def run(
        self,
        until: Callable[[], object] | float | None = None,
        *,
        within_s: float | None = None,
        most_steps: int | None = None,
    ) -> bool:
        """Let threads go on until a predicate holds, a time (of ``now``) has come, or all have ended.

        False if ``within_s`` have passed before. ``Stuck`` if nothing will ever happen again, or
        the predicate doesn't hold after ``most_steps``.
        """
        if self.current is not self.outside or getcurrent() is not self._hub or self.closed:
            raise WorldError("a world is run by who has made it, from outside, until it is closed")
        predicate = until if callable(until) else None
        alarm = until if isinstance(until, (int, float)) else _NEVER
        deadline = min(alarm, _NEVER if within_s is None else self.now + within_s)
        last = _NEVER if most_steps is None else self.steps + most_steps
        ready, timers, at_steps = self._ready, self._timers, self._at_steps
        while True:
            if self._failure is not None:
                raise self._failure
            if predicate is not None and predicate():
                return True
            if timers and timers[0][0] <= self.now:
                self._ring()
            elif self.now >= deadline:
                return deadline == alarm
            elif at_steps and at_steps[0][0] <= self.steps:
                heapq.heappop(at_steps)[2]()
            elif ready:
                if self.steps >= last:
                    raise self._stuck(f"{most_steps} steps were not enough")
                self._go_on()
            elif (until is None and self._ended()) or not self._jump(deadline):
                if until is None and self._ended():
                    return True
                raise self._stuck("nothing will ever happen again")

    def _go_on(self) -> None:
        ready = self._ready
        at = 0
        if len(ready) > 1:
            at = self._first() if self._by_rank else int(self._draw() * len(ready))
        # Taken out in constant time: their order means nothing.
        thread = ready[at]
        ready[at] = ready[-1]
        ready.pop()
        self.steps += 1
        self.now += self._step_s
        self._course = (self._course * 1_000_003 + thread.number) & 0xFFFF_FFFF_FFFF_FFFF
        self.current = thread
        try:
            if thread.greenlet is None:
                thread.greenlet = greenlet(thread.body, self._hub)
            thread.greenlet.switch()
        finally:
            self.current = self.outside

    def _first(self) -> int:
        """Whom rank lets go first; ranks change, and now and then anybody goes."""
        ready, drawn = self._ready, self._draw()
        if drawn < 0.05:
            return int(drawn * 20 * len(ready))
        at = max(range(len(ready)), key=lambda i: ready[i].rank)
        if drawn > 0.98:
            ready[at].rank = self._draw()
        return at

    def _ring(self) -> None:
        """Do what is due."""
        _, _, who, token = heapq.heappop(self._timers)
        if not isinstance(who, SimulatedThread):
            who()
        elif who.blocked and who.token == token:
            who.blocked = False
            self.make_ready(who)

    def _jump(self, deadline: float) -> bool:
        """Let time pass until something happens though no thread goes on; whether anything will."""
        timers = self._timers
        while timers and isinstance(who := timers[0][2], SimulatedThread):
            if who.blocked and who.token == timers[0][3] and who.process.alive:
                break
            heapq.heappop(timers)
        when = min(timers[0][0] if timers else _NEVER, deadline)
        if when == _NEVER:
            return False
        self.now = max(self.now, when)
        return True

    def _ended(self) -> bool:
        """Whether all threads have, and nothing is to be done later."""
        if any(process.alive and process.threads for process in (self.home, *self.processes)):
            return False
        return all(isinstance(timer[2], SimulatedThread) for timer in self._timers)

    def _stuck(self, why: str) -> Stuck:
        where = f"{why} (world {self.seed}, {self.steps} steps, at {self.now:.6f} s)"
        return Stuck(f"{where}:\n{self.standing()}")
