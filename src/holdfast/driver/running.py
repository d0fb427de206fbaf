"""A running pipeline, inside: epochs, checkpoints, the fence, and the way back from a loss."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.checkpoint.entry import Checkpoint
from holdfast.driver.checkpoint_thread import CheckpointThread
from holdfast.driver.ending import LastEpochs, await_input
from holdfast.driver.engine import EpochStream, StreamError
from holdfast.driver.epoch_calls import EpochCalls
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
        self.requests = Requests()
        self.stream: EpochStream | None = None
        self.beginning = False
        """Whether a stream is being begun, which may call already."""
        self.epochs = EpochCalls(self)
        self.checkpoints = CheckpointThread(self)
        self._threads: list[runtime.Thread] = []

    @property
    def epochs_done(self) -> int:
        """How many epochs have run, with those behind the end of input."""
        return self.epochs.done

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
        targets = [self.checkpoints.take, self._watch_fence, self._wait_for_end]
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
        return self.parts.engine.begin(self.parts.scratch, self.epochs.on_batch)

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

    @contextmanager
    def failing(self) -> Iterator[None]:
        """The pipeline ends with what goes wrong in here, unless state is lost, and it comes of that.

        For who shares the parts, and while he does: new ones have nothing to do with it. Also for what
        only leaves a thread, such as ``sys.exit()`` in a sink.
        """
        try:
            yield
        except BaseException as error:
            if self.lost is None:
                self.fail(error if isinstance(error, HoldfastError) else unexpected(error))
            raise

    def _watch_fence(self) -> None:
        while not self.done.wait(_FENCE_CHECK_S):
            with self.renewing.shared():
                fenced = self._looked_for_fence()
            if fenced is not None:
                self.fail(fenced)
                self.started.stop()
                return

    def _wait_for_end(self) -> None:
        try:
            self._wait_for_spark()
            while self.goes_back or self._loses_at_the_end():
                try:
                    self._recover()
                except BaseException as error:  # noqa: BLE001 - the pipeline ends with it
                    self.fail(self.said_of(error))
                    break
                self._wait_for_spark()
            self._spark_over.set()
            if self.failure is None and (fenced := self._looked_for_fence()) is not None:
                # Spark ends a query by itself when it is started again in the same process.
                self.fail(fenced)
            if not isinstance(self.failure, FencedError):
                self.checkpoints.take_last()
            self.parts.close()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the end must be told of it
            self.fail(self.said_of(error))
        finally:
            self._spark_over.set()
            self.done.set()
            self.requests.wake()

    def _wait_for_spark(self) -> None:
        try:
            await_input(self)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes our failure
            counts = self.epochs.failed or not self.stopping.is_set() or self.failure is not None
            if self.lost is None and counts:
                self.fail(self._failure_of(error))
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
            self.fail(error if isinstance(error, HoldfastError) else unexpected(error))
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
                self.fail(self.said_of(error))
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
            recovery = Recovery(error.message, self.ledger.version.epoch, self.epochs.began)
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
        return cluster.lost(self.ledger)

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
                self.fail(self.said_of(error), fenced=isinstance(error, FencedError))
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
        self.epochs.failed = False
        self.input_over.clear()
        self.requests.forget_steps()
        recovery.step("open")
        self.beginning = True
        try:
            self.stream = self._begin_stream()
        finally:
            self.beginning = False

    def said_of(self, error: BaseException) -> HoldfastError:
        """An error in words for the pipeline's user."""
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

    def fail(self, error: HoldfastError, *, fenced: bool | None = None) -> None:
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
