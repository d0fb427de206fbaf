"""The runtime of code that runs in a simulated world."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from holdfast.runtime import Condition, Event, Lock, ReentrantLock, Result, Runtime
from holdfast.testing.simulation.locks import (
    SimulatedCondition,
    SimulatedEvent,
    SimulatedLock,
    SimulatedRLock,
)
from holdfast.testing.simulation.processes import Process, SimulatedThread
from holdfast.testing.simulation.world import World

__all__ = ["SimulatedRuntime"]

T = TypeVar("T")
U = TypeVar("U")


class SimulatedRuntime(Runtime):
    """Clock, waiting, threads, locks, randomness and ids of a world.

    Who calls it is the thread of the world that goes on now; outside of all it is the process
    ``world.home``, which can do anything but wait.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids = world.random("ids")
        self._given: set[int] = set()
        self._file_locks: dict[str, SimulatedLock] = {}
        self._holds: dict[Process, set[Callable[[], None]]] = {}
        world.when_killed.append(self._killed)

    def monotonic(self) -> float:
        """Virtual seconds."""
        if self._world.closed:
            self._world.refuse()
        return self._world.now

    def now_ms(self) -> int:
        """The wall clock of the process."""
        if self._world.closed:
            self._world.refuse()
        return self._world.current.process.now_ms()

    def sleep(self, seconds: float) -> None:
        """Let others go on, and time."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        if seconds == 0:
            self._world.yield_now()
        else:
            self._world.wait("the end of its sleep", seconds)

    def lock(self) -> Lock:
        """A lock."""
        return SimulatedLock(self._world)

    def rlock(self) -> ReentrantLock:
        """A lock that whoever has it may take again."""
        return SimulatedRLock(self._world)

    def condition(self) -> Condition:
        """A place to wait at."""
        return SimulatedCondition(self._world)

    def event(self) -> Event:
        """An event that has not happened."""
        return SimulatedEvent(self._world)

    def thread(self, target: Callable[[], object], name: str) -> SimulatedThread:
        """A thread that has not begun."""
        return SimulatedThread(self._world, target, name)

    def current_thread(self) -> object:
        """The thread that asks."""
        world = self._world
        return threading.current_thread() if world.current is world.outside else world.current

    def new_id(self) -> str:
        """Sixteen hexadecimal digits that nobody else in this world gets."""
        if self._world.closed:
            self._world.refuse()
        while (drawn := self._ids.getrandbits(64)) in self._given:
            pass
        self._given.add(drawn)
        return f"{drawn:016x}"

    def whoami(self) -> str:
        """The process, and which of its lives this is."""
        process = self._world.current.process
        return f"{process.name}:{process.pid}"

    def each(self, function: Callable[[T], U], items: Iterable[T], at_once: int) -> list[U]:
        """What a function says of each item, some at once; raises what the first of them raises."""
        with self._pool(at_once) as submit:
            answers = [submit(_Answer(self._world, function, item)) for item in items]
            return [answer.result() for answer in answers]

    def ahead(self, function: Callable[[T], U], items: Iterable[T], at_once: int) -> Iterator[U]:
        """The same one by one, the next ones being worked on meanwhile, and no more of them."""
        coming: deque[_Answer[U]] = deque()
        with self._pool(at_once) as submit:
            for item in items:
                coming.append(submit(_Answer(self._world, function, item)))
                if len(coming) > at_once:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    @contextmanager
    def beside(self, function: Callable[[], T]) -> Iterator[Result[T]]:
        """Have a function called beside the block, which doesn't end before it."""
        with self._pool(1, leaves=False) as submit:
            yield submit(_Answer(self._world, lambda _: function(), None))

    @contextmanager
    def file_lock(self, path: Path) -> Iterator[None]:
        """Hold a file's lock, also against other processes; a process that is killed gives it back."""
        path.touch()
        with self._file_locks.setdefault(str(path.resolve()), SimulatedLock(self._world)):
            yield

    def hold(self, folder: Path, *, wait: bool) -> Callable[[], None] | None:
        """Lock a folder until who asks gives it back, or is killed."""
        give_back = super().hold(folder, wait=wait)
        if give_back is None:
            return None
        holds = self._holds.setdefault(self._world.current.process, set())
        holds.add(give_back)

        def given_back() -> None:
            if give_back in holds:
                holds.remove(give_back)
                give_back()

        return given_back

    def _killed(self, process: Process) -> None:
        holds = self._holds.pop(process, set())
        while holds:
            holds.pop()()
        for lock in self._file_locks.values():
            lock.forget(process)

    @contextmanager
    def _pool(self, at_once: int, *, leaves: bool = True) -> Iterator[_Submit]:
        """Who finds answers beside the block: so many threads, or outside of all who asks.

        The block's end waits for those that are being found. If it ends in an error, those that
        nobody has begun are left, if anything ``leaves`` them.
        """
        if at_once <= 0:
            raise ValueError("at_once must be greater than 0")
        world = self._world
        waiting: deque[_Answer[Any]] = deque()
        workers: list[SimulatedThread] = []
        idle = at_once

        def work() -> None:
            nonlocal idle
            while waiting:
                waiting.popleft().find()
            idle += 1

        def submit(answer: _Answer[U]) -> _Answer[U]:
            nonlocal idle
            if world.current is world.outside:
                answer.find()
                return answer
            waiting.append(answer)
            if idle > 0:
                idle -= 1
                worker = self.thread(work, f"{world.current.name}+{at_once - idle}")
                workers.append(worker)
                worker.start()
            return answer

        try:
            yield submit
        except BaseException:
            if leaves:
                waiting.clear()
            raise
        finally:
            for worker in workers:
                worker.join()


class _Answer(Generic[T]):
    """What a function says of an item, or the error that it raises."""

    __slots__ = ("_error", "_event", "_function", "_item", "_value")

    def __init__(self, world: World, function: Callable[[U], T], item: U) -> None:
        self._function: Callable[[], T] = lambda: function(item)
        self._event = SimulatedEvent(world)
        self._value: T | None = None
        self._error: Exception | SystemExit | None = None

    def find(self) -> None:
        try:
            self._value = self._function()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - for who asks for the result
            self._error = error
        self._event.set()

    def result(self) -> T:
        """Wait for it."""
        self._event.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


class _Submit(Protocol):
    def __call__(self, answer: _Answer[U]) -> _Answer[U]: ...
