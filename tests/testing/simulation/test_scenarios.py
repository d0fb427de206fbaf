"""Faults one by one, each in a world in which nothing else goes wrong, and what a user must see of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.entry import Checkpoint, entry_name
from holdfast.errors import CorruptionError, ProcessingError
from holdfast.testing.simulation.driver import SimulatedDriver
from holdfast.testing.simulation.simulation import Simulation


@dataclass
class Scenario(Simulation):
    """A pipeline to which only what is scripted happens."""

    script: Callable[[Scenario], None] = lambda scenario: None
    changed: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._hosts = ["h1", "h2", "h3"]
        quiet: dict[str, Any] = {
            "is_cluster": False, "pieces": 12, "lasts_s": 100.0, "every_epoch": False, "interval_s": 1.0,
            "keep_last": 5, "max_ahead_bytes": 1 << 31, "trigger_s": 0.5, "retires": False, "input": "goes on",
        }  # fmt: skip
        self.course = replace(self.course, **{**quiet, **dict(self.changed)})
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


def play(folder: Path, script: Callable[[Scenario], None], seed: int = 1, **changed: Any) -> None:
    """What it comes to in the end is checked too, as for any seed."""
    Scenario(
        seed, folder / "world", "aggregate", script=script, changed=tuple(changed.items())
    ).run()


@pytest.mark.parametrize("what", ["entry", "blob"])
def test_a_damaged_newest_entry_is_refused_and_an_older_one_goes_on_under_new_numbers(
    what: str, tmp_path: Path
) -> None:
    played = []

    def script(world: Scenario) -> None:
        world.checkpoints(4)
        world.killed()
        *_, older, newest = world.history.retained
        own = sorted(set(newest.spark.values()) - set(older.spark.values()))
        name = entry_name(newest.number) if what == "entry" else own[0]
        assert world.store.damage(name) == name
        assert isinstance(world.failed(world.start()), CorruptionError)
        driver = world.start(from_entry=older.number)
        again = world.checkpoints(1, claim=world.claim_of(driver))[0]
        assert again.epochs[0].epoch > newest.epoch
        assert world.history.chain(again)[-len(again.epochs) - 1].epoch == older.epoch
        played.append(driver)

    play(tmp_path, script)
    assert played


def test_an_entry_that_was_asked_for_is_gone_back_to_if_state_is_lost_before_the_first_checkpoint(
    tmp_path: Path,
) -> None:
    played = []

    def script(world: Scenario) -> None:
        world.checkpoints(4)
        world.killed()
        older = world.history.retained[1]
        # No checkpoint of its own comes while epochs do.
        world.course = replace(world.course, interval_s=None)
        driver = world.start(from_entry=older.number)
        first = world.claim_of(driver)
        running = driver.running
        assert running is not None
        world.world.run(lambda: running.epochs_done >= 1, within_s=100.0)
        for machine in list(world.machines.all.values()):
            world.machines.kill_host(machine)
        world.world.later(5.0, lambda: world.machines.add("h1"))
        world.world.run(lambda: running.coordinator.log.claim_number > first, within_s=100.0)
        done = running.epochs_done
        world.world.run(lambda: running.epochs_done > done, within_s=100.0)
        driver.checkpoint()
        again = world.checkpoints(1, claim=running.coordinator.log.claim_number)[0]
        assert world.history.chain(again)[-len(again.epochs) - 1].epoch == older.epoch
        played.append(driver)

    play(tmp_path, script, is_cluster=True)
    assert played


def test_user_code_that_raises_ends_the_pipeline_and_the_next_start_goes_on(tmp_path: Path) -> None:
    played = []

    def script(world: Scenario) -> None:
        world.checkpoints(2)
        world.mishaps.on, world.mishaps.rates = True, dict.fromkeys(world.mishaps.rates, 0.0)
        world.mishaps.rates["user_code"] = 1.0
        error = world.failed(world.alive[0])
        assert isinstance(error, ProcessingError)
        assert "user code raised" in str(error)
        played.append(error)

    play(tmp_path, script)
    assert played


def test_a_drained_host_has_no_partitions_and_loses_nothing_when_it_goes(tmp_path: Path) -> None:
    played = []

    def script(world: Scenario) -> None:
        world.checkpoints(2)
        (driver,) = world.alive
        running = driver.running
        assert running is not None

        def used() -> set[str]:
            plan = running.hosts._plan if running is not None else None
            return set() if plan is None else {str(at.host) for at in plan.assignments}

        host = min(used())
        driver.drain(host, 90.0)
        world.world.run(lambda: host not in used(), within_s=80.0)
        assert host not in used()
        world.machines.kill_host(world.machines.all[host])
        world._pass(60.0)
        assert not running.recoveries
        played.append(driver)

    play(tmp_path, script, is_cluster=True)
    assert played
