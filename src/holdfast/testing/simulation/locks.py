"""Locks, conditions and events of a simulated world: as those of ``threading``, and nobody blocks.

Who is woken where several wait is drawn from the seed, and who comes by may take a lock before the
one that was woken, as on a real machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.testing.simulation.processes import Process, SimulatedThread
from holdfast.testing.simulation.world import World

__all__ = ["SimulatedCondition", "SimulatedEvent", "SimulatedLock", "SimulatedRLock"]

T = TypeVar("T")


class SimulatedLock:
    """``threading.Lock``."""

    __slots__ = ("_waiting", "_world", "owner")

    def __init__(self, world: World) -> None:
        self._world = world
        self.owner: SimulatedThread | None = None
        self._waiting: list[SimulatedThread] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; whether it was to be had."""
        _check_timeout(blocking, timeout)
        world = self._world
        world.skip -= 1
        if world.skip < 0:
            world.step_aside()
        if self.owner is None:
            self.owner = world.current
            return True
        return blocking and self._wait(timeout)

    def release(self) -> None:
        """Give it back, whoever has it."""
        world = self._world
        world.skip -= 1
        if self.owner is None:
            if world.closed:
                world.refuse()
            raise RuntimeError("release unlocked lock")
        self.owner = None
        if self._waiting:
            world.wake_one(self._waiting)
        if world.skip < 0:
            world.step_aside()

    def __enter__(self) -> bool:
        world = self._world
        world.skip -= 1
        if world.skip < 0:
            world.step_aside()
        if self.owner is None:
            self.owner = world.current
            return True
        return self._wait(-1)

    def __exit__(self, *error: object) -> None:
        self.release()

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self.owner is not None

    def forget(self, process: Process) -> None:
        """A process that shares the lock with others was killed."""
        self._waiting = [thread for thread in self._waiting if thread.process is not process]
        if self.owner is not None and self.owner.process is process:
            self.owner = None
            if self._waiting:
                self._world.wake_one(self._waiting)

    def _wait(self, timeout: float) -> bool:
        world = self._world
        me = world.current
        if timeout == 0 and me is world.outside:
            return False
        world.check_can_wait()
        deadline = None if timeout < 0 else world.now + timeout
        while True:
            self._waiting.append(me)
            left = None if deadline is None else max(0.0, deadline - world.now)
            woken = world.wait(self, left)
            if not woken:
                self._waiting.remove(me)
            if self.owner is None:
                self.owner = me
                return True
            if deadline is not None and (not woken or world.now >= deadline):
                return False

    def waits_for_words(self) -> str:
        """What who waits here waits for."""
        return f"a lock that {self.owner!r} has" if self.owner is not None else "a lock"


class SimulatedRLock:
    """``threading.RLock``."""

    __slots__ = ("_depth", "_lock", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = SimulatedLock(world)
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, once more if one has it; whether it was to be had."""
        if self._lock.owner is self._world.current:
            _check_timeout(blocking, timeout)
        elif not self._lock.acquire(blocking, timeout):
            return False
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back, if that was the last time one had taken it."""
        world = self._world
        if self._lock.owner is not world.current:
            if world.closed:
                world.refuse()
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if self._depth == 0:
            self._lock.release()

    def __enter__(self) -> bool:
        if self._lock.owner is not self._world.current:
            self._lock.__enter__()
        self._depth += 1
        return True

    def __exit__(self, *error: object) -> None:
        self.release()

    def is_owned(self) -> bool:
        """Whether the thread that asks has it."""
        return self._lock.owner is self._world.current

    def give_up(self) -> int:
        """Give it back however often one has it; how often that was."""
        depth, self._depth = self._depth, 0
        self._lock.release()
        return depth

    def take_back(self, depth: int) -> None:
        """Take it as often as before."""
        self._lock.acquire()
        self._depth = depth


class SimulatedCondition:
    """``threading.Condition``, on a lock of its own."""

    __slots__ = ("_lock", "_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = SimulatedRLock(world)
        self._waiting: list[SimulatedThread] = []

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody says that something has changed."""
        world, lock = self._world, self._lock
        if not lock.is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        world.check_can_wait()
        me = world.current
        # In the list before the lock is free: nobody can say it and not be heard.
        self._waiting.append(me)
        me.woken = False
        depth = lock.give_up()
        woken = me.woken or world.wait(self, None if timeout is None else max(0.0, timeout))
        if not woken:
            self._waiting.remove(me)
        lock.take_back(depth)
        return woken

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until it is so, so long at most; whether it is."""
        deadline = None if timeout is None else self._world.now + timeout
        while not (holds := predicate()):
            left = None if deadline is None else deadline - self._world.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return holds

    def notify_all(self) -> None:
        """Something has changed."""
        if not self._lock.is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._world.wake(thread)

    def waits_for_words(self) -> str:
        """What who waits here waits for."""
        return "a condition"


class SimulatedEvent:
    """``threading.Event``."""

    __slots__ = ("_happened", "_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._happened = False
        self._waiting: list[SimulatedThread] = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._happened

    def set(self) -> None:
        """It has."""
        world = self._world
        world.skip -= 1
        self._happened = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            world.wake(thread)
        if world.skip < 0:
            world.step_aside()

    def clear(self) -> None:
        """It has not, after all."""
        self._happened = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, so long at most; whether it has happened."""
        world = self._world
        world.skip -= 1
        if world.skip < 0:
            world.step_aside()
        if self._happened:
            return True
        if timeout is not None and timeout <= 0 and world.current is world.outside:
            return False
        world.check_can_wait()
        me = world.current
        self._waiting.append(me)
        woken = world.wait(self, None if timeout is None else max(0.0, timeout))
        if not woken:
            self._waiting.remove(me)
        return woken

    def waits_for_words(self) -> str:
        """What who waits here waits for."""
        return "an event"


def _check_timeout(blocking: bool, timeout: float) -> None:
    if not blocking and timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    if timeout < 0 and timeout != -1:
        raise ValueError("timeout value must be a non-negative number")
