"""Faults one by one, each in a world in which nothing else goes wrong, and what a user must see of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.checkpoint.entry import entry_name
from holdfast.driver import background, pacing
from holdfast.errors import CorruptionError, ProcessingError, StorageError
from tests.testing.simulation.scenarios import Scenario, play


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
        claim = world.claim_of(driver)
        running = driver.running
        assert running is not None
        world.world.run(lambda: running.epochs_done >= 1, within_s=100.0)
        for machine in list(world.machines.all.values()):
            world.machines.kill_host(machine)
        world.world.later(5.0, lambda: world.machines.add("h1"))
        world.world.run(lambda: running.coordinator.log.claim_number > claim, within_s=100.0)
        done = running.epochs_done
        world.world.run(lambda: running.epochs_done > done, within_s=100.0)
        driver.checkpoint()
        again = world.checkpoints(1, claim=running.coordinator.log.claim_number)[0]
        assert world.history.chain(again)[-len(again.epochs) - 1].epoch == older.epoch
        first = again.epochs[0]
        (before,), (after,) = (world.inputs.read_by(e.offsets) for e in (older.epochs[-1], first))
        # Whatever other entries had read since then was read again.
        assert first.rows == sum(p.num_rows for p in world.inputs.pieces(0, before, after))
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


def test_an_epoch_that_waits_for_its_entry_ends_when_state_is_lost(tmp_path: Path) -> None:
    played = []

    def script(world: Scenario) -> None:
        driver = world.running(2)
        world.world.points.strike("checkpoint.start", world.lose_hosts)
        running = driver.running
        assert running is not None
        world.world.run(lambda: running.recoveries, within_s=100.0)
        done = running.epochs_done
        world.world.run(lambda: running.epochs_done > done, within_s=100.0)
        assert running.epochs_done > done
        played.append(driver)

    play(tmp_path, script, is_cluster=True, every_epoch=True)
    assert played


def test_a_handover_that_meets_a_loss_lets_epochs_end(tmp_path: Path) -> None:
    played = []

    def script(world: Scenario) -> None:
        driver = world.running(3)
        running = driver.running
        assert running is not None
        (used, *_) = sorted(
            str(at.host)
            for at in running.hosts._plan.assignments  # type: ignore[union-attr]
        )
        # Only the handover asks for a checkpoint, and by then nobody has what is to be stored.
        world.world.points.strike("checkpoint.start", world.lose_hosts)
        driver.drain(used, 5.0)
        world.world.run(lambda: running.recoveries, within_s=100.0)
        assert running.recoveries
        done = running.epochs_done
        world.world.run(lambda: running.epochs_done > done, within_s=100.0)
        assert running.epochs_done > done
        played.append(driver)

    play(tmp_path, script, is_cluster=True, interval_s=None, pieces=40)
    assert played


@pytest.mark.parametrize("failing", [1, 2])
def test_a_layer_that_is_stored_in_part_is_stored_to_the_end(failing: int, tmp_path: Path) -> None:
    played = []

    def script(world: Scenario) -> None:
        with (
            patch.object(pacing, "_TINY_ROWS", 1),
            patch.object(pacing, "_ROWS_PER_TASK", 1),
            patch.object(background, "_SMALL_BYTES", 0),
        ):
            driver = world.running(3)
            # One piece is stored by each task: that of a partition.
            world.world.points.strike("store.piece", "fail", at=failing)
            driver.checkpoint()
            running = driver.running
            assert running is not None
            world.world.run(lambda: running.coordinator.last_error, within_s=50.0)
            assert running.coordinator.last_error is not None
        assert any(run.is_durable for run in running.ledger.version.runs().values())
        driver.checkpoint()
        world.checkpoints(1)
        played.append(driver)

    play(tmp_path, script, interval_s=None, pieces=40)
    assert played


def test_an_epoch_that_readers_took_away_before_it_was_noted_is_not_published_again(
    tmp_path: Path,
) -> None:
    played = []

    def script(world: Scenario) -> None:
        world.checkpoints(1)
        world.world.points.strike("sink.parquet.after_rename", "kill")
        world._run(100.0, lambda: not world.alive)
        assert not world.alive
        # Each time half of what is there is taken.
        for _ in range(30):
            world.outlets.read()
        assert not [*(world.folder / "out" / "sink-0").glob("epoch-*")]
        played.append(world.start())
        world.checkpoints(3)

    play(tmp_path, script, sink="parquet")
    assert played


def test_stop_says_that_the_last_checkpoint_failed(tmp_path: Path) -> None:
    played = []

    def script(world: Scenario) -> None:
        driver = world.running(3)
        world.store.faults.plan("outage")
        driver.stop()
        world._run(300.0, lambda: not driver.alive)
        assert isinstance(driver.failure, StorageError)
        played.append(driver)

    play(tmp_path, script, interval_s=None)
    assert played
