"""What happens to drivers, hosts and storage while things go wrong: one thing after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from holdfast.testing.simulation.processes import Process
from holdfast.testing.simulation.reading import read_pinned

if TYPE_CHECKING:
    from holdfast.testing.simulation.driver import SimulatedDriver
    from holdfast.testing.simulation.simulation import Simulation

__all__ = ["HAPPENINGS", "Happenings"]

HAPPENINGS = {
    "driver_killed": "a driver dies",
    "driver_paused": "a driver stands still",
    "paused_past_retention": "and meanwhile another has taken over and deleted",
    "second_driver": "a driver is started beside another",
    "driver_stopped": "a user stops a driver",
    "checkpoint_asked": "a user asks for a checkpoint",
    "clock_jumps": "a driver's clock is set forward or back",
    "driver_cut_off": "a driver can't reach storage",
    "went_back": "a start goes back to an older entry",
    "damaged": "an object in storage has wrong bits",
    "read_pinned": "somebody pins a checkpoint and reads it",
    "executor_killed": "an executor dies, another comes",
    "host_killed": "a host dies with its disk",
    "host_cut_off": "a host can't be reached",
    "executor_returned": "the executor of a host that couldn't be reached is seen again",
    "host_drained": "a user has a host drained",
    "host_joined": "a host joins",
}
"""What may happen, and what each is."""


class Happenings:
    """What happens in a simulation, as its seed decides."""

    def __init__(self, simulation: Simulation, draw: Random) -> None:
        self._of = simulation
        self._draw = draw
        self._world = simulation.world
        self.counts: Counter[str] = Counter()
        """How often what has happened."""

    def happen(self) -> None:
        """One thing."""
        course = self._of.course
        things: list[tuple[float, Callable[[], None]]] = [
            (3, self._nothing),
            (2, self._kill_driver),
            (2, self._pause_driver),
            (1, self._second_driver),
            (1, self._stop_driver),
            (2, self._checkpoint),
            (1, self._jump_clock),
            (1, self._cut_driver_off),
            (1, self._read_pinned),
        ]
        if course.is_cluster:
            things += [
                (3, self._kill_executor),
                (1, self._kill_host),
                (2, self._cut_host_off),
                (1.5, self._drain_host),
                (0.5, self._add_host),
            ]
        if course.damages:
            things.append((2, self._damage))
        if not self._of.alive:
            things = [(3, self._nothing), (7, self._start)]
        (happens,) = self._draw.choices([t for _, t in things], [w for w, _ in things])
        happens()

    def _nothing(self) -> None:
        pass

    # ---- drivers

    def _start(self) -> None:
        going_back = self._of.course.goes_back and self._draw.random() < 0.4
        retained = self._of.history.retained
        if going_back and retained:
            self.counts["went_back"] += 1
            older = retained[:-1] or retained
            self._of.start(from_entry=self._draw.choice(older).number)
        else:
            self._of.start()

    def _one(self) -> SimulatedDriver:
        return self._draw.choice(self._of.alive)

    def _kill_driver(self) -> None:
        self.counts["driver_killed"] += 1
        self._one().process.kill()

    def _pause_driver(self) -> None:
        process, history = self._one().process, self._of.history
        seen = len(history.collects_of_others(process.label))
        self.counts["driver_paused"] += 1
        process.pause()

        def resume() -> None:
            if process.paused:
                history.advance()
                more = len(history.collects_of_others(process.label)) > seen
                self.counts["paused_past_retention"] += more
                process.resume()

        self._world.later(10 ** self._draw.uniform(-1.0, 2.3), resume)
        if self._draw.random() < 0.5:
            # Somebody who sees that it doesn't move starts another.
            self._second_driver()

    def _second_driver(self) -> None:
        if len(self._of.alive) < 3:
            self.counts["second_driver"] += 1
            self._start()

    def _stop_driver(self) -> None:
        self.counts["driver_stopped"] += 1
        self._one().stop()

    def _checkpoint(self) -> None:
        self.counts["checkpoint_asked"] += 1
        self._one().checkpoint(self._draw.choice((0.05, 60.0)))

    def _jump_clock(self) -> None:
        self.counts["clock_jumps"] += 1
        self._one().process.jump(self._draw.choice((-3_600_000, -500, 500, 60_000)))

    def _cut_driver_off(self) -> None:
        self.counts["driver_cut_off"] += 1
        self._cut_off(self._one().process)

    def _cut_off(self, process: Process) -> None:
        store = self._of.store
        store.cut_off(process)
        self._world.later(10 ** self._draw.uniform(0.0, 2.0), lambda: store.heal(process))

    # ---- storage

    def _damage(self) -> None:
        """Wrong bits, until somebody puts a copy in their place."""
        store = self._of.store
        name = store.damage(prefix=self._draw.choice(("log/", "runs/", "blobs/", "staged/")))
        if name is not None:
            self.counts["damaged"] += 1
            self._world.later(10 ** self._draw.uniform(0.0, 1.8), lambda: store.restore(name))

    def _read_pinned(self) -> None:
        retained = self._of.history.retained
        if retained:
            self.counts["read_pinned"] += 1
            process = self._world.process("reader")
            entry, stays_s = self._draw.choice(retained), 10 ** self._draw.uniform(0.0, 1.5)

            def read() -> None:
                if wrong := read_pinned(self._of.store, entry, stays_s):
                    self._of.outside.wrong.append(wrong)

            process.spawn(read, "main")

    # ---- hosts

    def _host(self) -> str:
        return self._draw.choice(sorted(self._of.machines.all))

    def _kill_executor(self) -> None:
        self.counts["executor_killed"] += 1
        machine = self._of.machines.all[self._host()]
        self._of.machines.kill_executor(machine, again_s=self._draw.uniform(0.5, 20.0))

    def _kill_host(self) -> None:
        self.counts["host_killed"] += 1
        name, machines = self._host(), self._of.machines
        machines.kill_host(machines.all[name])
        self._world.later(self._draw.uniform(5.0, 60.0), lambda: machines.add(name))

    def _cut_host_off(self) -> None:
        self.counts["host_cut_off"] += 1
        machines = self._of.machines
        machine = machines.all[self._host()]
        machines.cut_off(machine)
        itself = self._draw.random() < 0.3

        def rejoin() -> None:
            executor = machine.executor
            if itself and executor is not None and executor.alive and not executor.seen:
                self.counts["executor_returned"] += 1
            machines.rejoin(machine, itself=itself)

        self._world.later(self._draw.uniform(1.0, 60.0), rejoin)

    def _drain_host(self) -> None:
        self.counts["host_drained"] += 1
        self._one().drain(self._host(), self._draw.uniform(5.0, 60.0))

    def _add_host(self) -> None:
        machines = self._of.machines
        if len(machines.all) < 5:
            self.counts["host_joined"] += 1
            machines.add(f"h{len(machines.all) + 1}")

    # ---- wherever programs can be stopped

    def at_point(self, name: str, process: Process) -> str | Callable[[], None] | None:
        """What strikes a process that passes a point by this name, if anything."""
        mishaps = self._of.mishaps
        machine = self._of.machines.of(process) if self._of.course.is_cluster else None
        is_driver = process.name == "driver"
        if not is_driver and machine is None:
            return None
        if mishaps.strikes("point_kill"):
            if machine is None:
                return "kill"
            return lambda: self._of.machines.kill_executor(machine, again_s=5.0)
        if name.startswith(("task.", "store.", "sink.parquet.")) and mishaps.strikes("point_fail"):
            return self._draw.choice(("fail", "full"))
        return None
