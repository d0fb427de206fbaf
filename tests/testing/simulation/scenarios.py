"""What scenarios are written with: a world in which only what is scripted goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.entry import Checkpoint
from holdfast.testing.simulation.driver import SimulatedDriver
from holdfast.testing.simulation.outlets import Outlets
from holdfast.testing.simulation.simulation import Simulation

__all__ = ["Scenario", "play"]


@dataclass
class Scenario(Simulation):
    """A pipeline to which only what is scripted happens."""

    script: Callable[[Scenario], None] = lambda scenario: None
    changed: tuple[tuple[str, Any], ...] = ()
    sink: str = "simulated"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._hosts = ["h1", "h2", "h3"]
        quiet: dict[str, Any] = {
            "is_cluster": False, "pieces": 12, "lasts_s": 100.0, "every_epoch": False, "interval_s": 1.0,
            "keep_last": 5, "max_ahead_bytes": 1 << 31, "trigger_s": 0.5, "retires": False, "input": "goes on",
        }  # fmt: skip
        self.course = replace(self.course, **{**quiet, **dict(self.changed)})
        names = sorted(self.inputs.program.sinks)
        out = self.folder / "out"
        self.outlets = Outlets(self.world, self.outside, out, names, [self.sink])
        self.store.faults.off()
        self.mishaps.off()

    def _go_wrong(self) -> None:
        self.script(self)

    def checkpoints(self, number: int, *, claim: int | None = None) -> list[Checkpoint]:
        """Wait until so many are there that count, of this claim or of any; those."""

        def found() -> list[Checkpoint]:
            counts = self.history.retained
            return [entry for entry in counts if claim in (None, entry.claim)]

        self._run(200.0, lambda: len(found()) >= number)
        assert len(found()) >= number
        return found()

    def running(self, epochs: int) -> SimulatedDriver:
        """Wait until the one driver has run so many epochs; it."""
        (driver,) = self.alive

        def done() -> bool:
            return driver.running is not None and driver.running.epochs_done >= epochs

        self.world.run(done, within_s=200.0)
        assert done()
        return driver

    def lose_hosts(self) -> None:
        """All hosts go with what they have; after a while there are others."""
        for name, machine in list(self.machines.all.items()):
            self.machines.kill_host(machine)
            self.world.later(10.0, lambda name=name: self.machines.add(name))  # type: ignore[misc]

    def killed(self) -> None:
        """All drivers die."""
        for driver in self.alive:
            driver.process.kill()

    def failed(self, driver: SimulatedDriver) -> BaseException:
        """Wait until a driver fails, and say why."""
        self._run(200.0, lambda: not driver.alive)
        assert driver.failure is not None
        return driver.failure

    def claim_of(self, driver: SimulatedDriver) -> int:
        """The claim of a driver that runs."""
        self.world.run(lambda: driver.running is not None, within_s=100.0)
        assert driver.running is not None
        return driver.running.coordinator.log.claim_number


def play(
    folder: Path,
    script: Callable[[Scenario], None],
    seed: int = 1,
    sink: str = "simulated",
    **changed: Any,
) -> None:
    """What it comes to in the end is checked too, as for any seed."""
    given = tuple(changed.items())
    Scenario(seed, folder / "world", "aggregate", script=script, changed=given, sink=sink).run()
