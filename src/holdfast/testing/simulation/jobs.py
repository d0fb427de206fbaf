"""Jobs on the executors of a simulated cluster: tasks that are placed, lost, repeated and cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from holdfast import runtime
from holdfast.driver.engine import HostGoneError, PassingFailure
from holdfast.errors import HoldfastError
from holdfast.tasks.here import Here
from holdfast.testing.simulation.machines import Executor, Machines

__all__ = ["CancelledError", "Jobs", "LostError", "SimulatedJobError"]

_WAIT_S = 1.0
_MOST_LOSSES = 4


class SimulatedJobError(Exception):
    """A job failed in a way that the engine has, not the driver."""

    passing: PassingFailure


class CancelledError(SimulatedJobError):
    """Somebody had the job ended."""

    passing = PassingFailure.CANCELLED


class LostError(SimulatedJobError):
    """Executors were lost too often."""

    passing = PassingFailure.EXECUTOR_LOST


class _Task:
    """An attempt at a task on an executor."""

    def __init__(self, executor: Executor, changed: Callable[[], None]) -> None:
        self.executor = executor
        self.over = self.lost = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._changed = changed
        executor.watchers.append(self._gone)

    def run(self, work: Callable[[], Any]) -> None:
        def body() -> None:
            try:
                value, error = work(), None
            except (HoldfastError, OSError) as caught:
                value, error = None, caught
            # Whoever lost sight of its executor doesn't hear of it any more.
            if not self.over:
                self.value, self.error, self.over = value, error, True
                self._changed()

        self.executor.process.spawn(body, "task")

    def _gone(self) -> None:
        if not self.over:
            self.over = self.lost = True
            self._changed()


class Jobs:
    """Jobs of one kind, which are cancelled together."""

    def __init__(self, machines: Machines, draw: Random) -> None:
        self._machines = machines
        self._draw = draw
        self._cancelled = 0
        self._begun = 0
        self._changed = runtime.event()

    def begin(self) -> None:
        """What is cancelled from here on concerns the job that follows."""
        self._begun = self._cancelled

    def check(self) -> None:
        """Raise ``CancelledError`` if it has been cancelled."""
        if self._cancelled != self._begun:
            raise CancelledError("the job was cancelled")

    def cancel(self) -> None:
        """End what runs."""
        self._cancelled += 1
        self._changed.set()

    def run(
        self,
        hosts: Sequence[str | None],
        work: Callable[[int, Here], Any],
        what: str,
        *,
        attempts: int = 1,
        strict: bool = False,
    ) -> list[Any]:
        """Work on each number on its host; what comes of it, in order.

        ``strict``: it ends with ``HostGoneError`` when a host goes. A task that raises is repeated,
        so many attempts in all.
        """
        cancelled = self._cancelled
        tasks: list[_Task | None] = [None] * len(hosts)
        failures, losses = [0] * len(hosts), 0
        while True:
            self._changed.clear()
            if self._cancelled != cancelled:
                raise CancelledError("the job was cancelled")
            for number, task in enumerate(tasks):
                if task is not None and task.over and task.lost:
                    losses += 1
                    if losses > _MOST_LOSSES:
                        raise LostError("executors were lost too often")
                    tasks[number] = None
                elif task is not None and task.over and task.error is not None:
                    failures[number] += 1
                    if failures[number] >= attempts:
                        raise task.error
                    tasks[number] = None
            for number, host in enumerate(hosts):
                if tasks[number] is None:
                    tasks[number] = self._begun_on(host, number, work, hosts, what, strict)
            done = [task for task in tasks if task is not None and task.over]
            if len(done) == len(tasks) and not any(task.lost or task.error for task in done):
                return [task.value for task in done]
            self._changed.wait(_WAIT_S)

    def _begun_on(
        self,
        host: str | None,
        number: int,
        work: Callable[[int, Here], Any],
        hosts: Sequence[str | None],
        what: str,
        strict: bool,
    ) -> _Task | None:
        """A new attempt; None as long as its host is away and the job's others live."""
        known = self._machines.executors()
        mine = [executor for executor in known if executor.here.host == host]
        if strict and host is not None and not mine:
            raise HostGoneError(f"{what}: {host} is gone")
        others = {each for each in hosts if each not in (None, host)}
        if not mine and host is not None and any(e.here.host in others for e in known):
            return None
        candidates = [executor for executor in (mine or known) if executor.alive]
        if not candidates:
            return None
        executor = self._draw.choice(candidates)
        task = _Task(executor, self._notify)
        task.run(lambda: work(number, executor.here))
        return task

    def _notify(self) -> None:
        self._changed.set()
