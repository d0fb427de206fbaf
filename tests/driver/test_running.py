"""The threads of a running pipeline: none waits for one that waits for it."""

from __future__ import annotations

import threading
import traceback
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY
from holdfast.checkpoint.ledger import Ahead
from holdfast.driver.ending import LastEpochs
from holdfast.driver.engine import StreamError
from holdfast.driver.parts import QueryParts
from holdfast.errors import (
    FencedError,
    HoldfastError,
    ProcessingError,
    StateLostError,
    StorageError,
)
from tests.driver.running_support import (
    LONG_S,
    FailingCoordinator,
    Pipeline,
    StandInEngine,
    StandInStream,
)


def test_a_host_lost_while_an_epoch_waits_for_its_checkpoint_is_recovered_from() -> None:
    pipeline = Pipeline(every_epoch=True)
    pipeline.cluster.moving = False
    pipeline.running.start()
    assert pipeline.recovered.wait(LONG_S)
    assert pipeline.running.done.wait(LONG_S)


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


def test_an_epoch_that_waits_for_its_checkpoint_holds_no_lock() -> None:
    pipeline = Pipeline(every_epoch=True, lost=False)
    running = pipeline.running
    running.start()
    assert pipeline.coordinator.tries.acquire(timeout=LONG_S)
    # Whoever hands state over, or stops the pipeline, takes it.
    assert running.epoch_lock.acquire(blocking=False)
    running.epoch_lock.release()
    with pytest.raises(StorageError):
        running.stop()


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
    pipeline.running.stream = pipeline.stream
    pipeline.running.epochs.on_batch(cast("Any", None), 1)
    assert pipeline.running.epochs_done == 1


def test_spark_gets_a_short_text_of_an_epoch_that_a_fence_interrupts() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    running, run = pipeline.running, cast("Any", pipeline.running.parts.loop)

    def interrupted(*_: object) -> None:
        running.fail(FencedError("another driver has claimed"), fenced=True)
        raise RuntimeError("An error occurred while calling o1.count.\n" + "\tat java\n" * 10_000)

    run.run = interrupted
    with pytest.raises(ProcessingError) as raised:
        running.epochs.on_batch(cast("Any", None), 0)
    assert len("".join(traceback.format_exception(raised.value))) < 2_000
    assert isinstance(running.failure, FencedError)


class _LastEpochs(Pipeline):
    """Input has ended, and what follows it is to be run."""

    def __init__(self, *, lost: bool) -> None:
        super().__init__(every_epoch=False, lost=lost)
        self.running.stream = self.stream

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
    monkeypatch.setattr("holdfast.driver.ending._RETRY_S", 0.0)
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


def test_a_batch_is_not_done_because_the_query_before_its_own_has_ended() -> None:
    pipeline = Pipeline(every_epoch=False)
    running = pipeline.running
    running.stream = cast(Any, SimpleNamespace(is_active=False))
    running.beginning = True
    waiting = threading.Thread(target=running.epochs._sit_out, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    running.beginning = False
    waiting.join(LONG_S)
    assert not waiting.is_alive()


def test_idle_epochs_are_not_passed_over_when_numbers_run_out() -> None:
    pipeline = Pipeline(every_epoch=False)
    ahead = Ahead(0, 0, None, EPOCHS_PER_ENTRY)
    pipeline.running.ledger.ahead = lambda: ahead  # type: ignore[method-assign]
    assert not pipeline.running.epochs._skipped(1)


def test_a_pipeline_ends_though_it_can_not_be_closed() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    pipeline.coordinator.checkpoint = lambda: None  # type: ignore[method-assign]

    def close() -> None:
        raise RuntimeError("the connection is gone")

    pipeline.running.parts.close = close
    pipeline.running.start()
    pipeline.running.stopping.set()
    pipeline.stream.stop()
    assert pipeline.running.done.wait(LONG_S)
    with pytest.raises(HoldfastError, match="the connection is gone"):
        pipeline.running.raise_failure()


def test_a_sink_that_did_not_take_the_last_output_is_told_by_stop() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    coordinator: Any = pipeline.coordinator

    def checkpoint() -> None:
        coordinator.publish_error = StorageError("the sink is down")

    coordinator.checkpoint = checkpoint
    pipeline.running.start()
    with pytest.raises(StorageError, match="the sink is down"):
        pipeline.running.stop()


def test_a_last_checkpoint_that_ends_in_an_error_nobody_foresaw_is_no_clean_stop() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)

    def checkpoint() -> None:
        raise AttributeError("the session was stopped")

    pipeline.coordinator.checkpoint = checkpoint  # type: ignore[method-assign]
    pipeline.running.start()
    with pytest.raises(HoldfastError, match="AttributeError: the session was stopped"):
        pipeline.running.stop()
    assert pipeline.running.done.is_set()


def test_an_error_in_the_last_epoch_is_told_by_stop() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    pipeline.coordinator.checkpoint = lambda: None  # type: ignore[method-assign]
    begun = threading.Event()

    def run(*_: Any) -> None:
        begun.set()
        assert pipeline.running.stopping.wait(LONG_S)
        raise RuntimeError("division by zero in the user's code")

    pipeline.running.parts.loop.run = cast(Any, run)  # type: ignore[method-assign]
    pipeline.running.start()
    assert begun.wait(LONG_S)
    with pytest.raises(HoldfastError, match="division by zero"):
        pipeline.running.stop()


def test_an_epoch_that_fails_because_state_is_lost_is_not_the_end() -> None:
    """Another thread noticed the loss, and nobody waits for hosts from then on."""
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    running, begun = pipeline.running, threading.Event()

    def run(*_: Any) -> None:
        begun.set()
        assert running.requests.wait(lambda: running.lost is not None, LONG_S)
        raise HoldfastError("the pipeline has no executors, and is about to end")

    running.parts.loop.run = cast(Any, run)  # type: ignore[method-assign]
    running.start()
    assert begun.wait(LONG_S)
    running.lose_and_end(StateLostError("a host is gone"), running.parts)
    assert running.done.wait(LONG_S)
    assert pipeline.recovered.is_set()


def test_the_fence_is_watched_whatever_a_look_at_it_ended_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.driver.running._FENCE_CHECK_S", 0.01)
    pipeline = Pipeline(every_epoch=False, lost=False)
    answers = iter([RuntimeError("can't start new thread")])

    def check() -> None:
        raise next(answers, FencedError("another driver has taken over"))

    pipeline.coordinator.log = SimpleNamespace(check_not_fenced=check)
    pipeline.running.start()
    assert pipeline.running.done.wait(10)
    assert isinstance(pipeline.running.failure, FencedError)


def test_a_failure_is_told_though_nobody_can_say_whether_it_comes_of_a_fence() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)

    def check() -> None:
        raise RuntimeError("can't start new thread")

    def run(*_: Any) -> None:
        raise StorageError("the disk is full")

    pipeline.coordinator.log = SimpleNamespace(check_not_fenced=check)
    pipeline.running.parts.loop.run = cast(Any, run)  # type: ignore[method-assign]
    pipeline.running.start()
    assert pipeline.running.done.wait(10)
    assert isinstance(pipeline.running.failure, StorageError)


def test_state_that_is_lost_when_input_has_been_read_is_recovered() -> None:
    """With ``trigger="available-now"`` the last checkpoint is often the only one."""
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    pipeline.running.start()
    pipeline.stream.is_active = False
    assert pipeline.running.done.wait(LONG_S)
    assert pipeline.recovered.is_set()


def test_a_query_that_spark_ended_for_another_driver_says_that_it_was_fenced() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    pipeline.coordinator.checkpoint = lambda: None  # type: ignore[method-assign]

    def fenced() -> None:
        raise FencedError("entry 3 is another driver's")

    pipeline.running.start()
    pipeline.coordinator.log = SimpleNamespace(check_not_fenced=fenced)
    pipeline.stream.stop()
    assert pipeline.running.done.wait(LONG_S)
    assert isinstance(pipeline.running.failure, FencedError)


def test_a_pipeline_ends_though_its_hosts_can_not_be_asked_any_more() -> None:
    """Somebody stopped Spark below it."""
    pipeline = Pipeline(every_epoch=False)

    def gone() -> None:
        raise AttributeError("'NoneType' object has no attribute 'cancelJobsWithTag'")

    pipeline.cluster.moving = False
    pipeline.cluster.give_up = gone  # type: ignore[method-assign]
    pipeline.running.parts.jobs.cancel = gone  # type: ignore[method-assign]
    pipeline.stream.error = RuntimeError("the SparkContext was shut down")
    pipeline.stream.is_active = False
    pipeline.running.start()
    assert pipeline.running.done.wait(10)
    assert "the SparkContext was shut down" in str(pipeline.running.failure)


def test_a_loss_is_told_to_those_who_wait_though_nobody_can_end_the_jobs_it_breaks() -> None:
    pipeline = Pipeline(every_epoch=False)
    running = pipeline.running
    running.stream = pipeline.stream

    def gone() -> None:
        raise AttributeError("'NoneType' object has no attribute 'cancelJobsWithTag'")

    running.parts.jobs.cancel = gone  # type: ignore[method-assign]
    waiting = threading.Thread(
        target=running.requests.wait, args=(lambda: running.lost is not None,), daemon=True
    )
    waiting.start()
    running.lose(StateLostError("a host is gone"), running.parts)
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_sink_that_leaves_the_program_ends_the_pipeline_and_nobody_waits_for_ever() -> None:
    """``sys.exit()`` ends a thread without a word, and so does what tests fail with."""
    pipeline = Pipeline(every_epoch=True, lost=False)

    def leave() -> None:
        raise SystemExit(3)

    pipeline.coordinator.checkpoint = leave  # type: ignore[method-assign]
    pipeline.running.start()
    assert pipeline.running.done.wait(10)
    with pytest.raises(ProcessingError, match="a sink or a callback ended in SystemExit: 3"):
        pipeline.running.raise_failure()


@pytest.mark.parametrize("where", ["LastEpochs", "_loses_at_the_end", "_recover"])
def test_whatever_user_code_ends_in_at_the_end_the_end_comes(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.cluster.moving = False
    running = pipeline.running

    def leave(*_: object) -> None:
        raise SystemExit(3)

    if where == "LastEpochs":
        monkeypatch.setattr(LastEpochs, "run", leave)
    elif where == "_recover":
        running._renew = cast("Any", leave)
    else:
        pipeline.coordinator.checkpoint = leave  # type: ignore[method-assign]
    running.start()
    pipeline.stream.is_active = False
    assert running.done.wait(10)
    assert isinstance(running.failure, ProcessingError)
    assert "SystemExit: 3" in str(running.failure)


class _Replaced(Pipeline):
    """A pipeline that recovers: its new parts have another query, and checkpoints that need nothing."""

    def __init__(self) -> None:
        super().__init__(every_epoch=False)
        self.cluster.moving = False
        self.after = StandInStream()

    def _renew(self) -> QueryParts:
        self.recovered.set()
        after = FailingCoordinator()
        after.checkpoint = lambda: None  # type: ignore[method-assign]
        changed = {"coordinator": after, "engine": StandInEngine(self.after)}
        return cast("QueryParts", SimpleNamespace(**{**vars(self.running.parts), **changed}))


def test_what_a_checkpoint_of_lost_state_ends_in_is_not_the_end_of_those_who_recover() -> None:
    pipeline = _Replaced()
    running = pipeline.running
    begun, hurried, cancelled = threading.Event(), threading.Event(), threading.Event()

    def checkpoint() -> None:
        begun.set()
        assert hurried.wait(LONG_S)
        raise RuntimeError("nobody foresaw what comes of a host that is gone")

    def cancel() -> None:
        # First by who notices the loss, then by who recovers and waits for the checkpoint.
        (hurried if cancelled.is_set() else cancelled).set()

    pipeline.coordinator.checkpoint = checkpoint  # type: ignore[method-assign]
    running.parts.jobs.cancel = cancel  # type: ignore[method-assign]
    running.start()
    asking = threading.Thread(target=running.requests.ask, args=(running.done.is_set,), daemon=True)
    asking.start()
    assert begun.wait(LONG_S)
    running.lose_and_end(StateLostError("a host is gone"), running.parts)
    asking.join(LONG_S)
    assert running.requests.wait(lambda: running.stream is pipeline.after, LONG_S)
    assert running.failure is None
    stopping = threading.Thread(target=running.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    assert running.done.is_set()
    assert running.failure is None


def test_an_epoch_that_failed_just_before_stop_is_told_by_it() -> None:
    pipeline = Pipeline(every_epoch=False, lost=False)
    running, stream = pipeline.running, pipeline.stream
    pipeline.coordinator.checkpoint = lambda: None  # type: ignore[method-assign]
    said = stream.await_end

    def run(*_: Any) -> None:
        raise RuntimeError("division by zero in the user's code")

    def say_late() -> None:
        assert running.stopping.wait(LONG_S)
        said()

    running.parts.loop.run = cast(Any, run)  # type: ignore[method-assign]
    stream.await_end = say_late  # type: ignore[method-assign]
    running.start()
    stream.thread.join(LONG_S)
    with pytest.raises(HoldfastError, match="division by zero"):
        running.stop()


@pytest.mark.parametrize("ends", [True, False])
def test_stop_below_which_spark_was_stopped_ends_or_says_so_in_words(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.driver.running._SOON_S", LONG_S if ends else 0.0)
    pipeline = Pipeline(every_epoch=False, lost=False)
    pipeline.coordinator.checkpoint = lambda: None  # type: ignore[method-assign]
    over = pipeline.stream.stop

    def stop() -> None:
        if ends:
            over()
        raise StreamError("Cannot call methods on a stopped SparkContext.")

    pipeline.stream.stop = stop  # type: ignore[method-assign]
    pipeline.running.start()
    if ends:
        pipeline.running.stop()
        assert pipeline.running.done.is_set()
    else:
        with pytest.raises(ProcessingError, match=r"stop a pipeline before spark\.stop\(\)"):
            pipeline.running.stop()
        over()
        assert pipeline.running.done.wait(LONG_S)


def test_stop_below_which_spark_was_stopped_waits_for_a_long_last_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.driver.running._SOON_S", 0.0)
    pipeline = Pipeline(every_epoch=False, lost=False)
    begun, waited_for = threading.Event(), threading.Event()

    class Done(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None:
                waited_for.set()
            return super().wait(timeout)

    def checkpoint() -> None:
        begun.set()
        assert waited_for.wait(LONG_S)

    pipeline.running.done = Done()
    pipeline.coordinator.checkpoint = checkpoint  # type: ignore[method-assign]
    over = pipeline.stream.stop

    def stop() -> None:
        over()
        assert begun.wait(LONG_S)
        raise StreamError("Cannot call methods on a stopped SparkContext.")

    pipeline.stream.stop = stop  # type: ignore[method-assign]
    pipeline.running.start()
    try:
        pipeline.running.stop()
    finally:
        waited_for.set()
    assert pipeline.running.done.is_set()
