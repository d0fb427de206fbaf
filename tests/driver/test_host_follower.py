"""The thread that follows the hosts of a pipeline, beside its others: it is there until the end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.engine import EpochStream, HostGoneError
from holdfast.driver.host_follower import FOLLOW_S, HostFollower
from holdfast.driver.shared_lock import SharedLock
from holdfast.errors import HoldfastError
from holdfast.state.version import Version
from tests.driver.running_support import LONG_S, Pipeline


def test_a_host_lost_while_state_is_handed_over_is_recovered_from() -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.running.start()
    assert pipeline.recovered.wait(LONG_S)
    assert pipeline.running.done.wait(LONG_S)
    assert not pipeline.cluster.switched


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
    assert pipeline.stream.waited_for.wait(LONG_S)
    going_on.set()
    stopping.join(LONG_S)
    assert pipeline.running.done.is_set()


def test_hosts_are_followed_while_a_handover_waits_for_the_epoch_in_hand() -> None:
    pipeline = Pipeline(every_epoch=False)
    with pipeline.running.epoch_lock:
        HostFollower(pipeline.running)._hand_over(cast(Any, pipeline.cluster))
    assert not pipeline.cluster.switched
    assert not pipeline.running.epoch_lock.locked()


def test_hosts_are_not_tidied_before_those_who_wrote_at_the_last_look_have_ended() -> None:
    pipeline = Pipeline(every_epoch=False)
    ledger = Ledger(Version(0, {}))
    tidied: list[set[str]] = []
    pipeline.running.ledger = ledger
    cluster = cast(Any, SimpleNamespace(tidy=tidied.append))
    following = HostFollower(pipeline.running)
    with ledger.writing():
        for _ in range(3):
            following._tidy(cluster)
    assert not tidied
    following._tidy(cluster)
    assert tidied == [set()]


def test_hosts_are_followed_while_the_pipeline_stops() -> None:
    """The last epoch or the last checkpoint may wait for a host that is gone: both are cancelled."""
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    running, cancelled = pipeline.running, threading.Event()
    running.parts.jobs = cast(Any, SimpleNamespace(cancel=cancelled.set))
    pipeline.cluster.follow = lambda version: running.stopping.is_set()  # type: ignore[method-assign]

    def checkpoint() -> None:
        assert cancelled.wait(LONG_S), "the last checkpoint waits for a host that nobody looks at"

    pipeline.coordinator.checkpoint = checkpoint  # type: ignore[method-assign]
    running.start()
    running.stop()
    assert cancelled.is_set()


def test_a_last_checkpoint_that_a_lost_host_broke_is_taken_by_those_left() -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    failing = pipeline.coordinator.checkpoint

    def once() -> None:
        pipeline.coordinator.checkpoint = others  # type: ignore[method-assign]
        failing()

    def others() -> None:
        pipeline.coordinator.last_error = None

    pipeline.coordinator.checkpoint = once  # type: ignore[method-assign]
    pipeline.running.start()
    pipeline.running.stop()
    assert pipeline.running.failure is None


def test_hosts_are_followed_while_a_pipeline_that_has_failed_ends() -> None:
    """Its last checkpoint waits for executors, of which there are none."""
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    running, cancelled = pipeline.running, threading.Event()
    running.parts.jobs = cast(Any, SimpleNamespace(cancel=cancelled.set))

    def follow(version: Any) -> bool:
        raise HoldfastError("the pipeline has no executors, and is about to end")

    def run(*_: Any) -> None:
        raise HoldfastError("Spark has no executor")

    def checkpoint() -> None:
        assert cancelled.wait(LONG_S), "the last checkpoint waits for hosts that nobody looks at"

    pipeline.cluster.follow = follow  # type: ignore[method-assign]
    running.parts.loop.run = cast(Any, run)  # type: ignore[method-assign]
    pipeline.coordinator.checkpoint = checkpoint  # type: ignore[method-assign]
    running.start()
    assert running.done.wait(LONG_S)
    assert cancelled.is_set()


def test_an_epoch_that_was_being_planned_when_its_host_went_is_ended_too() -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    running, cluster = pipeline.running, pipeline.cluster
    planning, cancelled, begun, ended = (threading.Event() for _ in range(4))

    def follow(version: Any) -> bool:
        cluster.outdated = planning.is_set() and not ended.is_set()
        return cluster.outdated and not cancelled.is_set()

    def cancel(stream: EpochStream) -> None:
        cancelled.set()
        if begun.is_set():
            ended.set()

    def run(*_: Any) -> None:
        planning.set()
        assert cancelled.wait(LONG_S)
        begun.set()
        assert ended.wait(LONG_S), "the job waits for a host that is gone"

    pipeline.engine.cancel_epoch = cancel  # type: ignore[method-assign]
    cluster.follow = follow  # type: ignore[method-assign]
    running.parts.loop.run = cast(Any, run)  # type: ignore[method-assign]
    pipeline.coordinator.checkpoint = lambda: None  # type: ignore[method-assign]
    running.start()
    assert ended.wait(10)
    running.stop()


def test_jobs_by_which_spark_looks_for_input_between_epochs_are_left_alone() -> None:
    """With many folders Spark lists them by a job of the query, which fails with that job."""
    pipeline = Pipeline(every_epoch=False)
    running = pipeline.running
    cancelled = pipeline.engine.cancelled
    running.stream = pipeline.stream
    pipeline.cluster.follow = lambda version: True  # type: ignore[method-assign]
    following = HostFollower(running)
    following._look(cast(Any, pipeline.cluster))
    assert not cancelled
    with running.epoch_lock:
        following._look(cast(Any, pipeline.cluster))
    assert cancelled == [pipeline.stream]


def test_a_host_that_stays_gone_is_not_looked_for_without_a_pause() -> None:
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > 4

    def follow(version: Version) -> bool:
        raise HostGoneError("decode runs: h2 is gone")

    running = SimpleNamespace(
        done=SimpleNamespace(wait=wait),
        goes_back=False,
        stream=object(),
        parts=None,
        hosts=SimpleNamespace(follow=follow),
        renewing=SharedLock(),
        ledger=Ledger(Version(0, {})),
        ending=False,
    )
    HostFollower(cast(Any, running)).follow()
    assert pauses == [FOLLOW_S, 0.0, FOLLOW_S, FOLLOW_S, FOLLOW_S]
