"""The threads of a running pipeline: none waits for one that waits for it.

Spark is stood in for: when its hosts die, and what its threads wait for then, can't be steered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY
from holdfast.checkpoint.ledger import Ahead, Ledger
from holdfast.errors import FencedError, HoldfastError, StateLostError, StorageError
from holdfast.spark.ending import LastEpochs
from holdfast.spark.following import Following
from holdfast.spark.parts import QueryParts
from holdfast.spark.running import Running
from holdfast.state.version import Version

LONG_S = 60.0


class StandInQuery:
    """As Spark: stop() waits for the thread of the batches, and so does awaitTermination()."""

    def __init__(self) -> None:
        self.isActive = True
        self.runId = "run"
        self.waited_for = threading.Event()

    def run(self, on_batch: Callable[[Any, int], None]) -> StandInQuery:
        self.thread = threading.Thread(target=self._batch, args=(on_batch,), daemon=True)
        self.thread.start()
        return self

    def _batch(self, on_batch: Callable[[Any, int], None]) -> None:
        epoch = 0
        while self.isActive and not self.waited_for.wait(0.001):
            try:
                on_batch(None, epoch)
            except HoldfastError:
                self.isActive = False
            epoch += 1

    def stop(self) -> None:
        self.isActive = False
        self.waited_for.set()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive(), "the thread of the batches waits for ever"

    def awaitTermination(self) -> None:
        self.thread.join(LONG_S)


class StandInCluster:
    """A cluster that has lost the host with the newest runs."""

    def __init__(self) -> None:
        self.moving = True
        self.wants_runs = threading.Event()
        self.switched = False

    def lost(self, version: Any) -> str:
        return "1 runs that no checkpoint holds were on h2"

    def give_up(self) -> None:
        pass

    def follow(self, version: Any) -> bool:
        return False

    def take_moved(self) -> bool:
        return False

    def decode_some(self, version: Any) -> bool:
        return False

    def missing(self, version: Any) -> bool:
        return False

    def fetch_missing(self, version: Any) -> bool:
        return False

    def switch(self, version: Any) -> None:
        self.switched = True


class FailingCoordinator:
    """Every checkpoint fails."""

    last = None
    publish_error = None
    log = SimpleNamespace(check_not_fenced=lambda: None)

    def __init__(self) -> None:
        self.last_error: HoldfastError | None = None
        self.tries = threading.Semaphore(0)

    def checkpoint(self) -> None:
        self.last_error = StorageError("a run is on a host that is gone")
        self.tries.release()

    def end(self) -> None:
        pass


class Pipeline:
    """A running pipeline whose epochs do nothing and whose checkpoints fail."""

    def __init__(self, *, every_epoch: bool, manual: bool = False, lost: bool = True) -> None:
        self.query, self.cluster = StandInQuery(), StandInCluster()
        self.coordinator = FailingCoordinator()
        self.recovered = threading.Event()
        parts: Any = SimpleNamespace(
            options=SimpleNamespace(
                name="p",
                manual=manual,
                every_epoch=every_epoch,
                checkpoint_interval_s=None,
                max_ahead_bytes=1 << 40,
                max_ahead_s=1e9,
            ),
            ledger=SimpleNamespace(
                version=SimpleNamespace(epoch=0), ahead=lambda: Ahead(0, 0, None)
            ),
            coordinator=self.coordinator,
            loop=SimpleNamespace(
                run=lambda *_: None, time=SimpleNamespace(begin=lambda *_: None, at_end=False)
            ),
            scratch=SimpleNamespace(read=lambda _: {}, offsets=lambda _: ""),
            jobs=SimpleNamespace(cancel=lambda: None),
            close=lambda: None,
            now_ms=lambda: 0,
            ticks=None,
            begin=self.query.run,
            cluster=self.cluster if lost else None,
            input_end=SimpleNamespace(may_be_said=False, is_said=False),
        )
        self.running = Running(parts, self._renew)

    def _renew(self) -> QueryParts:
        self.recovered.set()
        self.running.stopping.set()
        raise RuntimeError("recovery has begun, which is all that is asked here")


@pytest.fixture(autouse=True)
def _plain_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def thread(target: Callable[[], None], daemon: bool, name: str) -> threading.Thread:
        return threading.Thread(target=target, daemon=daemon, name=name)

    monkeypatch.setattr("holdfast.spark.running.InheritableThread", thread)


def test_a_host_lost_while_an_epoch_waits_for_its_checkpoint_is_recovered_from() -> None:
    pipeline = Pipeline(every_epoch=True)
    pipeline.cluster.moving = False
    pipeline.running.start()
    assert pipeline.recovered.wait(LONG_S)
    assert pipeline.running.done.wait(LONG_S)


def test_a_host_lost_while_state_is_handed_over_is_recovered_from() -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.running.start()
    assert pipeline.recovered.wait(LONG_S)
    assert pipeline.running.done.wait(LONG_S)
    assert not pipeline.cluster.switched


def test_a_step_that_nobody_asks_for_does_not_keep_the_end_waiting() -> None:
    pipeline = Pipeline(every_epoch=False, manual=True)
    pipeline.cluster.moving = False
    pipeline.running.start()
    pipeline.running.lose_and_end(StateLostError("a host is gone"), pipeline.running.parts)
    assert pipeline.recovered.wait(LONG_S)
    assert pipeline.running.done.wait(LONG_S)


def test_stop_ends_while_an_epoch_waits_for_a_checkpoint_and_says_that_there_is_none() -> None:
    pipeline = Pipeline(every_epoch=True, lost=False)
    pipeline.running.start()
    assert pipeline.coordinator.tries.acquire(timeout=LONG_S)
    with pytest.raises(StorageError, match="on a host that is gone"):
        pipeline.running.stop()
    assert pipeline.running.done.is_set()
    assert pipeline.running.epochs_done == 0


def test_stop_ends_while_state_is_handed_over() -> None:
    pipeline = Pipeline(every_epoch=False)
    held = threading.Event()
    going_on = threading.Event()

    def checkpoint() -> None:
        held.set()
        assert going_on.wait(LONG_S)

    pipeline.coordinator.checkpoint = checkpoint  # type: ignore[method-assign]
    pipeline.running.start()
    assert held.wait(LONG_S)
    stopping = threading.Thread(target=pipeline.running.stop, daemon=True)
    stopping.start()
    # The lock of the epochs is free though the checkpoint goes on.
    assert pipeline.query.waited_for.wait(LONG_S)
    going_on.set()
    stopping.join(LONG_S)
    assert pipeline.running.done.is_set()


def test_losses_of_parts_that_were_replaced_do_not_end_the_new_ones() -> None:
    pipeline = Pipeline(every_epoch=False)
    old: Any = SimpleNamespace()
    pipeline.running.lose_and_end(StateLostError("long ago"), old)
    assert pipeline.running.lost is None


def test_checkpoint_says_when_it_took_too_long() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    with pytest.raises(TimeoutError, match=r"no checkpoint of 'p' .* within 0.01 s"):
        pipeline.running.checkpoint(0.01)


def test_an_epoch_that_no_entry_will_hold_is_not_waited_for() -> None:
    """A pipeline that has ended is started again: Spark's batch has no rows, and is passed over."""
    pipeline = Pipeline(every_epoch=True, lost=False)
    parts: Any = pipeline.running.parts
    parts.loop.time.at_end = True
    parts.loop.skip = lambda *_: None
    parts.input_end.check_no_more = lambda _: None
    pipeline.running.spark_query = cast("Any", pipeline.query)
    pipeline.running._on_batch(cast("Any", None), 1)
    assert pipeline.running.epochs_done == 1


class _LastEpochs(Pipeline):
    """Input has ended, and what follows it is to be run."""

    def __init__(self, *, lost: bool) -> None:
        super().__init__(every_epoch=False, lost=lost)
        self.running.spark_query = cast("Any", self.query)

    def run(self) -> None:
        last = LastEpochs(self.running)
        last._checkpoint()


def test_state_that_is_lost_at_the_checkpoint_before_the_end_is_recovered() -> None:
    pipeline = _LastEpochs(lost=True)
    with pytest.raises(StateLostError, match="no checkpoint holds"):
        pipeline.run()


def test_a_checkpoint_before_the_end_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.spark.ending._RETRY_S", 0.0)
    pipeline = _LastEpochs(lost=False)
    failing = pipeline.coordinator.checkpoint

    def once() -> None:
        pipeline.coordinator.checkpoint = recovered  # type: ignore[method-assign]
        failing()

    def recovered() -> None:
        pipeline.coordinator.last_error = None

    pipeline.coordinator.checkpoint = once  # type: ignore[method-assign]
    pipeline.run()
    assert pipeline.coordinator.last_error is None


def test_a_loss_during_the_last_epochs_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = _LastEpochs(lost=True)

    def cancelled(_: LastEpochs) -> None:
        pipeline.running.lose(StateLostError("a host is gone"), pipeline.running.parts)
        raise StorageError("the job to store runs was cancelled")

    monkeypatch.setattr(LastEpochs, "run", cancelled)
    pipeline.running._run_last_epochs()
    assert pipeline.running.lost is not None
    assert pipeline.running.failure is None


def test_a_recovery_that_fails_behind_its_own_claim_says_what_it_failed_with() -> None:
    pipeline = Pipeline(every_epoch=True)
    pipeline.cluster.moving = False

    def fenced() -> None:
        raise FencedError("the old parts see the claim of the new ones")

    def renew() -> QueryParts:
        pipeline.coordinator.log = SimpleNamespace(check_not_fenced=fenced)
        pipeline.running.stopping.set()
        raise StorageError("no executor came")

    pipeline.running._renew = renew
    pipeline.running.start()
    assert pipeline.running.done.wait(LONG_S)
    assert isinstance(pipeline.running.failure, StorageError)


def test_hosts_are_followed_while_a_handover_waits_for_the_epoch_in_hand() -> None:
    pipeline = Pipeline(every_epoch=False)
    with pipeline.running.epoch_lock:
        Following(pipeline.running)._hand_over(cast(Any, pipeline.cluster))
    assert not pipeline.cluster.switched
    assert not pipeline.running.epoch_lock.locked()


def test_hosts_are_not_tidied_before_those_who_wrote_at_the_last_look_have_ended() -> None:
    pipeline = Pipeline(every_epoch=False)
    ledger = Ledger(Version(0, {}))
    tidied: list[set[str]] = []
    pipeline.running.ledger = ledger
    cluster = cast(Any, SimpleNamespace(tidy=tidied.append))
    following = Following(pipeline.running)
    with ledger.writing():
        for _ in range(3):
            following._tidy(cluster)
    assert not tidied
    following._tidy(cluster)
    assert tidied == [set()]


def test_a_batch_is_not_done_because_the_query_before_its_own_has_ended() -> None:
    pipeline = Pipeline(every_epoch=False)
    running = pipeline.running
    running.spark_query = cast(Any, SimpleNamespace(isActive=False))
    running._beginning = True
    waiting = threading.Thread(target=running._sit_out, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    running._beginning = False
    waiting.join(LONG_S)
    assert not waiting.is_alive()


def test_idle_epochs_are_not_passed_over_when_numbers_run_out() -> None:
    pipeline = Pipeline(every_epoch=False)
    ahead = Ahead(0, 0, None, EPOCHS_PER_ENTRY)
    pipeline.running.ledger.ahead = lambda: ahead  # type: ignore[method-assign]
    assert not pipeline.running._skipped(1)
