"""A running pipeline, inside: epochs, checkpoints, the fence, and the way back from a loss."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, Checkpoint, EpochRecord
from holdfast.driver.ahead import wait_while_ahead
from holdfast.driver.ending import LastEpochs, await_input
from holdfast.driver.engine import Batch, EpochStream, StreamError
from holdfast.driver.failures import STOP_FIRST, unexpected
from holdfast.driver.host_follower import FirstEpoch, HostFollower
from holdfast.driver.parts import QueryParts
from holdfast.driver.progress import EpochProgress
from holdfast.driver.recovery import Recovery
from holdfast.driver.requests import Requests
from holdfast.driver.shared_lock import SharedLock
from holdfast.errors import (
    FencedError,
    HoldfastError,
    InputError,
    ProcessingError,
    StateLostError,
    TimedOutError,
)
from holdfast.failpoints import failpoint

if TYPE_CHECKING:
    from holdfast.driver.cluster import ClusterSite

__all__ = ["RunningPipeline"]

logger = logging.getLogger("holdfast.query")

_KEEP_PROGRESS = 1000
_FENCE_CHECK_S = 1.0
_RETRY_S = 1.0
_LONG_S = 600.0
_SOON_S = 10.0
_RECOVERIES = 5
_LAST_MERGE_S = 60.0


class RunningPipeline:
    """The inside of a started pipeline: its threads, and what they share.

    Epochs run on Spark's stream thread; one thread takes checkpoints, one watches whether another
    driver has taken over, one follows the hosts of a cluster, and one waits for the end. When state
    is lost, the last puts new parts in place of the old: a new claim, from the last checkpoint.
    """

    def __init__(self, parts: QueryParts, renew: Callable[[], QueryParts]) -> None:
        self._use(parts)
        self._renew = renew
        self.renewing = SharedLock()
        """Held alone while parts are replaced, and shared by whoever must not see that happen."""
        self.lost: StateLostError | None = None
        self.recoveries: list[Recovery] = []
        self._epoch_began = runtime.monotonic()
        self.progress: deque[EpochProgress] = deque(maxlen=_KEEP_PROGRESS)
        self.failure: HoldfastError | None = None
        self.waiting: str | None = None
        self.stopping = runtime.event()
        self.input_over = runtime.event()
        """All sources have said that they have ended, and all that they had is read."""
        self._spark_over = runtime.event()
        """No query of Spark's runs any more, nor will: what is left to do is our own."""
        self.done = runtime.event()
        self.epoch_lock = runtime.lock()
        self.first = FirstEpoch(self.epoch_lock)
        self._merging = runtime.lock()
        self.requests = Requests()
        self.epochs_done = 0
        self.stream: EpochStream | None = None
        self._beginning = False
        self._epoch_failed = False
        self._threads: list[runtime.Thread] = []

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.options.name

    def _use(self, parts: QueryParts) -> None:
        self.parts = parts
        self.options = parts.options
        self.ledger = parts.ledger
        self.coordinator = parts.coordinator

    def checkpoint(
        self, timeout: float | None = None, *, unless_ending: bool = False
    ) -> int | None:
        """Take a checkpoint now and wait for it; the epoch that the log holds then.

        Requests made while one is under way are answered together by the next. ``TimedOutError`` if
        that takes longer than ``timeout`` seconds; it is taken all the same. For those who hold a lock
        ``unless_ending`` also ends the wait when the pipeline is about to end.
        """
        answered = self.requests.ask(
            lambda: self.done.is_set() or (unless_ending and self.ending), timeout
        )
        self.raise_failure()
        if not answered and not self.done.is_set():
            raise TimedOutError(
                f"no checkpoint of {self.name!r} was complete within {timeout:g} s; one is under way",
                hint="wait for it with a longer timeout=; query.status says why the last one failed, if "
                "it did",
            )
        if self.coordinator.last_error is not None:
            raise self.coordinator.last_error
        return self.last_checkpoint_epoch()

    def wait_past(self, stream: EpochStream) -> None:
        """Wait until another stream runs instead of this one, or none ever will."""
        self.requests.wait(lambda: self.done.is_set() or self.stream is not stream, _LONG_S)

    @property
    def hosts(self) -> ClusterSite:
        """The cluster; ``InputError`` if there is none."""
        if self.parts.cluster is None:
            raise InputError("only a pipeline on a cluster has hosts to drain")
        return self.parts.cluster

    # ---- threads

    def start(self) -> None:
        """Begin."""
        try:
            self.stream = self._begin_stream()
        except BaseException:
            self.parts.close()
            raise
        targets = [self._take_checkpoints, self._watch_fence, self._wait_for_end]
        if self.parts.cluster is not None:
            targets.append(HostFollower(self).follow)
        self._threads = [
            self.parts.engine.thread(target, f"holdfast-{self.name}") for target in targets
        ]
        for thread in self._threads:
            thread.start()

    def owns(self, thread: object) -> bool:
        """Whether it is one of those that end the pipeline: none of them can wait for that."""
        return thread in self._threads

    @property
    def started(self) -> EpochStream:
        """Where epochs come from."""
        assert self.stream is not None
        return self.stream

    def _begin_stream(self) -> EpochStream:
        return self.parts.engine.begin(self.parts.scratch, self._on_batch)

    def _on_batch(self, batch: Batch, epoch: int) -> None:
        """The stream's call for each epoch."""
        try:
            self._process(batch, epoch)
        finally:
            self.requests.step_is_over()

    def _process(self, batch: Batch, epoch: int) -> None:
        if self._is_idle(epoch) and self._skipped(epoch):
            return
        if self.options.manual:
            self.requests.wait_for_step(self._epochs_are_over)
        wait_while_ahead(self)
        parts = self.parts
        try:
            with self.epoch_lock:
                done = not self._epochs_are_over()
                recorded = done and self._run_epoch(batch, epoch)
            if recorded and self.options.every_epoch:
                # No longer under the lock: whoever stops the pipeline, or moves its state, takes it.
                done = self._is_durable(epoch)
        # Short texts: Spark takes them apart with an expression that overflows on long ones.
        except StateLostError as error:
            self.lose(error, parts)
            raise StateLostError("state was lost") from None
        except Exception as error:
            if self.lost is not None:
                # Whatever it is, it comes of that: another thread was the first to notice.
                raise StateLostError("state was lost") from None
            if self.failure is not None:
                # It has been said; who stopped Spark's query because of it interrupted the epoch.
                raise ProcessingError("the pipeline has failed") from None
            # Whoever stops the pipeline from here on comes too late to be the cause.
            was_cancelled = parts.engine.was_cancelled(error)
            self._epoch_failed = not was_cancelled
            # Of what Spark says while it is stopped nothing counts, and it would say this too.
            unheard = self.stopping.is_set() and not was_cancelled
            if unheard or isinstance(error, HoldfastError):
                self._fail(self._said_of(error))
            raise
        if not done:
            self._sit_out()
            return
        self.epochs_done += 1

    def stop(self) -> None:
        """End the epoch in hand, take a last checkpoint, and stop; raises if that can't be had."""
        had_failed = self.failure is not None
        self.stopping.set()
        self.requests.wake()
        with self.epoch_lock:
            pass
        try:
            self.started.stop()
        except StreamError as error:
            # Spark may have been stopped below its query, which ends all the same when it looks next.
            if not self._spark_over.wait(_SOON_S):
                raise ProcessingError(
                    f"Spark didn't end the query of pipeline {self.name!r}, so there may be no last checkpoint",
                    hint=f"{STOP_FIRST}; if that was so, end the program and start it "
                    "again: it continues after the last checkpoint",
                ) from error
        self.done.wait()
        if not had_failed:
            self.raise_failure()

    @property
    def ending(self) -> bool:
        """Whether no further epoch may begin: the pipeline stops, has failed, or goes back."""
        return self.stopping.is_set() or self.failure is not None or self.lost is not None

    @property
    def goes_back(self) -> bool:
        """Whether state is lost and will be recovered, rather than the pipeline ended."""
        return self.lost is not None and self.failure is None and not self.stopping.is_set()

    def _epochs_are_over(self) -> bool:
        """Whether Spark's query must not begin another epoch."""
        return self.ending or self.input_over.is_set()

    def _is_idle(self, epoch: int) -> bool:
        """Whether nothing but a tick brings an epoch.

        Spark's first may come of the first tick alone, if it looks for input before there is any. By
        hand ticks come when they are asked for, and nobody has asked for that one; else it runs, and
        there is an entry to go back to.
        """
        if self.parts.engine.ticks is None or (epoch == 0 and not self.options.manual):
            return False
        return self.parts.scratch.is_idle(epoch)

    def _skipped(self, epoch: int) -> bool:
        """Pass over an epoch without input, unless a timer is due or it is about to end."""
        with self.epoch_lock:
            if self._epochs_are_over() or self._numbers_run_out():
                return False
            record = self._record(epoch)
            if self.parts.loop.is_due(record):
                return False
            self.parts.loop.skip(record, self.parts.scratch.read(epoch))
            return True

    def _numbers_run_out(self) -> bool:
        """Whether the next epoch has to wait for an entry, though it has no input."""
        return self.ledger.ahead().numbers >= EPOCHS_PER_ENTRY

    def _record(self, epoch: int) -> EpochRecord:
        offsets = self.parts.scratch.offsets(epoch)
        return self.parts.loop.time.begin(epoch, self.parts.now_ms(), offsets)

    def _run_epoch(self, batch: Batch, epoch: int) -> bool:
        """Run an epoch; whether an entry will hold it."""
        record = self._record(epoch)
        position = self.parts.scratch.read(epoch)
        if self.parts.loop.time.at_end:
            self.parts.input_end.check_no_more(batch)
            self.parts.loop.skip(record, position)
            return False
        self._epoch_began = runtime.monotonic()
        failpoint("epoch.start")
        progress = self.parts.loop.run(batch, record, position)
        failpoint("epoch.recorded")
        self.first.done()
        self.progress.append(progress)
        if self.recoveries:
            self.recoveries[-1].epoch_done(epoch)
        return True

    def _is_durable(self, epoch: int) -> bool:
        """Wait for the entry that holds ``epoch``, however often the checkpoint must be retried.

        False if the pipeline stops before: its last checkpoint will hold the epoch, or stop() says why
        it doesn't.
        """
        while not self._holds(epoch) and not self.ending:
            self.requests.ask(lambda: self.ending)
            error = self.coordinator.last_error
            if error is not None and not self._holds(epoch):
                self.waiting = f"epoch {epoch} is not in a checkpoint yet: {error}"
                self.stopping.wait(_RETRY_S)
        self.waiting = None
        if self.lost is not None:
            raise self.lost
        self.raise_failure()
        return self._holds(epoch)

    def _sit_out(self) -> None:
        """Let Spark stop here: returning earlier would tell sources that the epoch is done."""
        # A new query's first batch may come while the old query, which has ended, is still the one we know.
        while self._beginning or self.stream is None or self.stream.is_active:
            runtime.sleep(0.01)

    def _take_checkpoints(self) -> None:
        interval = self.options.checkpoint_interval_s
        due = runtime.monotonic() + (interval or 0.0)
        while not self.done.is_set():
            left = None if interval is None else max(0.0, due - runtime.monotonic())
            asked = self.requests.await_asked(self.done.is_set, left)
            if self.done.is_set():
                return
            self._checkpoint_once(asked)
            due = runtime.monotonic() + (interval or 0.0)

    def _checkpoint_once(self, asked: int) -> None:
        try:
            with self.renewing.shared(), self._failing():
                parts = self.parts
                entry = self.coordinator.checkpoint()
                gone = self.out_of_reach()
            # First of all: who waits for it may be what ending the epochs waits for.
            self.requests.answer(asked)
            if gone is not None:
                self.lose_and_end(StateLostError(gone), parts)
            elif entry is not None and not self.ending:
                self._merge()
        except BaseException as error:
            # A thread that dies silently would stop checkpoints.
            logger.debug("a checkpoint ended in an error", exc_info=error)
            self.requests.answer(asked)
            if self.failure is not None:
                self.started.stop()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """The pipeline ends with what goes wrong in here, unless state is lost, and it comes of that.

        For who shares the parts, and while he does: new ones have nothing to do with it. Also for what
        only leaves a thread, such as ``sys.exit()`` in a sink.
        """
        try:
            yield
        except BaseException as error:
            if self.lost is None:
                self._fail(error if isinstance(error, HoldfastError) else unexpected(error))
            raise

    def _merge(self) -> None:
        if self._merging.acquire(blocking=False):
            try:
                with self.renewing.shared(), self._failing():
                    self.parts.jobs.compact()
            finally:
                self._merging.release()

    def _watch_fence(self) -> None:
        while not self.done.wait(_FENCE_CHECK_S):
            with self.renewing.shared():
                fenced = self._looked_for_fence()
            if fenced is not None:
                self._fail(fenced)
                self.started.stop()
                return

    def _wait_for_end(self) -> None:
        try:
            self._wait_for_spark()
            while self.goes_back or self._loses_at_the_end():
                try:
                    self._recover()
                except BaseException as error:  # noqa: BLE001 - the pipeline ends with it
                    self._fail(self._said_of(error))
                    break
                self._wait_for_spark()
            self._spark_over.set()
            if self.failure is None and (fenced := self._looked_for_fence()) is not None:
                # Spark ends a query by itself when it is started again in the same process.
                self._fail(fenced)
            if not isinstance(self.failure, FencedError):
                self._finish()
            self.parts.close()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the end must be told of it
            self._fail(self._said_of(error))
        finally:
            self._spark_over.set()
            self.done.set()
            self.requests.wake()

    def _wait_for_spark(self) -> None:
        try:
            await_input(self)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes our failure
            counts = self._epoch_failed or not self.stopping.is_set() or self.failure is not None
            if self.lost is None and counts:
                self._fail(self._failure_of(error))
            return
        self._run_last_epochs()

    def _loses_at_the_end(self) -> bool:
        """Take the last checkpoint of a pipeline that ends by itself; whether it must go back instead."""
        if self.parts.cluster is None or self.ending:
            return False
        try:
            self.coordinator.checkpoint()
            gone = self.out_of_reach()
        except BaseException as error:  # noqa: BLE001 - the pipeline ends with it
            self._fail(error if isinstance(error, HoldfastError) else unexpected(error))
            return False
        if gone is not None:
            self.lose(StateLostError(gone), self.parts)
        return self.goes_back

    def _run_last_epochs(self) -> None:
        """If input has ended, let all come out that waits."""
        try:
            LastEpochs(self).run()
        except StateLostError as error:
            self.lose(error, self.parts)
        except BaseException as error:  # noqa: BLE001 - whatever Spark raises becomes our failure
            if self.lost is None:
                self._fail(self._said_of(error))
        finally:
            self.requests.step_is_over()

    # ---- going back to the last checkpoint

    def lose(self, error: StateLostError, parts: QueryParts) -> EpochStream | None:
        """State is gone that no checkpoint holds: no epoch may begin before it is recovered.

        The stream, which has to end; None if the parts that lost it are not in use any more.
        """
        with self.renewing.shared():
            if self.parts is not parts:
                return None
            self._lose(error)
            return self.stream

    def lose_and_end(self, error: StateLostError, parts: QueryParts) -> None:
        """The same, for a thread other than that of the epochs, which is waited for."""
        query = self.lose(error, parts)
        if query is not None:
            query.stop()

    def _lose(self, error: StateLostError) -> None:
        if self.lost is None:
            self.lost = error
            recovery = Recovery(error.message, self.ledger.version.epoch, self._epoch_began)
            recovery.step("detect")
            self.recoveries.append(recovery)
            logger.warning("pipeline %s goes back to its last checkpoint: %s", self.name, error)
            # A checkpoint under way can't succeed, and recovery would wait for it to fail.
            _tried(self.parts.jobs.cancel)
            self._give_hosts_up()
            self.requests.wake()

    def out_of_reach(self) -> str | None:
        """A checkpoint may be the first to notice that unsaved runs are gone: in words which."""
        cluster = self.parts.cluster
        if cluster is None or self.coordinator.last_error is None:
            return None
        return cluster.lost(self.ledger.version)

    def _recover(self) -> None:
        """Claim anew and continue after the last checkpoint, on the hosts that are left."""
        recovery = self.recoveries[-1]
        recovery.step("stop")
        # Jobs that were only being planned when state was lost begin later, and may wait for a lost host.
        with self.renewing.alone(hurry=self.parts.jobs.cancel):
            try:
                self._begin_anew(recovery)
            except BaseException as error:
                # Still alone: the log of the old parts takes our own new claim for another driver's.
                self._fail(self._said_of(error), fenced=isinstance(error, FencedError))
                raise
        if self.ending:
            self.started.stop()
        self.requests.wake()
        logger.info("pipeline %s has recovered: %s", self.name, recovery)

    def _begin_anew(self, recovery: Recovery) -> None:
        self.parts.close()
        self._use(self._renewed())
        self.first.expect()
        self.lost = None
        self._epoch_failed = False
        self.input_over.clear()
        self.requests.forget_steps()
        recovery.step("open")
        self._beginning = True
        try:
            self.stream = self._begin_stream()
        finally:
            self._beginning = False

    def _said_of(self, error: BaseException) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        if not isinstance(error, Exception):
            return unexpected(error)
        return self._failure_of(error)

    def _failure_of(self, error: BaseException) -> ProcessingError:
        return self.parts.engine.failure_of(error, self.name, self.ledger.version.epoch)

    def _renewed(self) -> QueryParts:
        """New parts; another host may be lost while they are put together."""
        for attempt in range(_RECOVERIES):
            try:
                return self._renew()
            except FencedError:
                raise
            except Exception as error:
                if attempt == _RECOVERIES - 1 or self.stopping.is_set():
                    raise
                logger.warning("recovery failed and is tried again: %s", error)
                self.stopping.wait(_RETRY_S * 2**attempt)
        raise AssertionError("unreachable")

    def _finish(self) -> None:
        """A last checkpoint: all that was processed is published, and nothing else is left."""
        # Kept from here on. A merge under way may wait for hosts that never come.
        quiet = self._merging.acquire(timeout=_LAST_MERGE_S)
        try:
            self.coordinator.checkpoint()
            if self.coordinator.last_error is not None and self.parts.cluster is not None:
                # A host may have gone meanwhile, and those left can do it.
                self.coordinator.checkpoint()
            if quiet and self.failure is None and self.coordinator.last_error is None:
                self.coordinator.end()
        except BaseException as error:  # noqa: BLE001 - a stop that was not clean must not look like one
            self._fail(error if isinstance(error, HoldfastError) else unexpected(error))
        if self.failure is None and self.coordinator.last_error is not None:
            self._fail(self.coordinator.last_error)
        if self.failure is None and self.coordinator.publish_error is not None:
            self._fail(self.coordinator.publish_error)

    def _fail(self, error: HoldfastError, *, fenced: bool | None = None) -> None:
        """End with an error; ``fenced`` says whether it comes of a fence, where that is known."""
        if self.failure is None:
            # A driver that was fenced meets all sorts of errors: what matters is that it was.
            instead = self._looked_for_fence() if fenced is None else None
            self.failure = error = instead or error
            said = str(error)
            by_name = said.startswith(f"pipeline {self.name!r} ")
            logger.error("%s", said if by_name else f"pipeline {self.name!r} failed: {said}")
            self._give_hosts_up()
            self.requests.wake()

    def _give_hosts_up(self) -> None:
        """The epoch under way may wait for hosts that never come; whoever stops it waits for it."""
        if self.parts.cluster is not None:
            _tried(self.parts.cluster.give_up)

    def _looked_for_fence(self) -> FencedError | None:
        """What says that another driver has taken over; None also if nobody can tell just now."""
        try:
            self.coordinator.log.check_not_fenced()
        except FencedError as fenced:
            return fenced
        except Exception as unknown:  # noqa: BLE001 - whoever asks has more to do
            logger.warning("could not check whether another driver took over: %s", unknown)
        return None

    def raise_failure(self) -> None:
        """Raise what the pipeline failed with, if it has."""
        if self.failure is not None:
            raise self.failure

    def _holds(self, epoch: int) -> bool:
        last = self.last_checkpoint_epoch()
        return last is not None and last >= epoch

    def last_checkpoint_epoch(self) -> int | None:
        """The newest epoch that a log entry holds."""
        last: Checkpoint | None = self.coordinator.last
        return None if last is None else last.epoch


def _tried(end_jobs: Callable[[], None]) -> None:
    """End jobs, if somebody can still be asked to: who does so has more to do, and others wait for that."""
    try:
        end_jobs()
    except Exception as error:  # noqa: BLE001 - Spark may have been stopped below the pipeline
        logger.warning("jobs could not be ended: %s", error)
