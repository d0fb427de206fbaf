"""What a running pipeline does when the stream calls it for an epoch, on the stream's own thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, EpochRecord
from holdfast.driver.ahead import wait_while_ahead
from holdfast.driver.engine import Batch
from holdfast.errors import HoldfastError, ProcessingError, StateLostError
from holdfast.failpoints import failpoint

if TYPE_CHECKING:
    from holdfast.driver.running import RunningPipeline

__all__ = ["EpochCalls"]

_RETRY_S = 1.0


class EpochCalls:
    """Answers the calls of the stream: an epoch is passed over, or runs, or is not to be any more."""

    def __init__(self, running: RunningPipeline) -> None:
        self._running = running
        self.began = runtime.monotonic()
        """When the last epoch that ran began."""
        self.done = 0
        """How many have run."""
        self.failed = False
        """Whether an epoch of the stream has ended in an error that nobody caused by ending it."""

    def on_batch(self, batch: Batch, epoch: int) -> None:
        """The stream's call for each epoch."""
        try:
            self._answer(batch, epoch)
        finally:
            self._running.requests.step_is_over()

    def _answer(self, batch: Batch, epoch: int) -> None:
        running = self._running
        if self._is_idle(epoch) and self._skipped(epoch):
            return
        if running.options.manual:
            running.requests.wait_for_step(self.are_over)
        wait_while_ahead(running)
        parts = running.parts
        try:
            with running.epoch_lock:
                done = not self.are_over()
                recorded = done and self._run(batch, epoch)
            if recorded and running.options.every_epoch:
                # No longer under the lock: whoever stops the pipeline, or moves its state, takes it.
                done = self._is_durable(epoch)
        # Short texts: Spark takes them apart with an expression that overflows on long ones.
        except StateLostError as error:
            running.lose(error, parts)
            raise StateLostError("state was lost") from None
        except Exception as error:
            if running.lost is not None:
                # Whatever it is, it comes of that: another thread was the first to notice.
                raise StateLostError("state was lost") from None
            if running.failure is not None:
                # It has been said; who stopped Spark's query because of it interrupted the epoch.
                raise ProcessingError("the pipeline has failed") from None
            # Whoever stops the pipeline from here on comes too late to be the cause.
            was_cancelled = parts.engine.was_cancelled(error)
            self.failed = not was_cancelled
            # Of what Spark says while it is stopped nothing counts, and it would say this too.
            unheard = running.stopping.is_set() and not was_cancelled
            if unheard or isinstance(error, HoldfastError):
                running.fail(running.said_of(error))
            raise
        if not done:
            self._sit_out()
            return
        self.done += 1

    def are_over(self) -> bool:
        """Whether the stream must not begin another epoch."""
        return self._running.ending or self._running.input_over.is_set()

    def _is_idle(self, epoch: int) -> bool:
        """Whether nothing but a tick brings an epoch.

        Spark's first may come of the first tick alone, if it looks for input before there is any. By
        hand ticks come when they are asked for, and nobody has asked for that one; else it runs, and
        there is an entry to go back to.
        """
        parts = self._running.parts
        if parts.engine.ticks is None or (epoch == 0 and not self._running.options.manual):
            return False
        return parts.scratch.is_idle(epoch)

    def _skipped(self, epoch: int) -> bool:
        """Pass over an epoch without input, unless a timer is due or it is about to end."""
        running = self._running
        with running.epoch_lock:
            if self.are_over() or self._numbers_run_out():
                return False
            record = self._record(epoch)
            if running.parts.loop.is_due(record):
                return False
            running.parts.loop.skip(record, running.parts.scratch.read(epoch))
            return True

    def _numbers_run_out(self) -> bool:
        """Whether the next epoch has to wait for an entry, though it has no input."""
        return self._running.ledger.ahead().numbers >= EPOCHS_PER_ENTRY

    def _record(self, epoch: int) -> EpochRecord:
        parts = self._running.parts
        return parts.loop.time.begin(epoch, parts.now_ms(), parts.scratch.offsets(epoch))

    def _run(self, batch: Batch, epoch: int) -> bool:
        """Run an epoch; whether an entry will hold it."""
        running = self._running
        loop = running.parts.loop
        record = self._record(epoch)
        position = running.parts.scratch.read(epoch)
        if loop.time.at_end:
            running.parts.input_end.check_no_more(batch)
            loop.skip(record, position)
            return False
        self.began = runtime.monotonic()
        failpoint("epoch.start")
        progress = loop.run(batch, record, position)
        failpoint("epoch.recorded")
        running.first.done()
        running.progress.append(progress)
        if running.recoveries:
            running.recoveries[-1].epoch_done(epoch)
        return True

    def _is_durable(self, epoch: int) -> bool:
        """Wait for the entry that holds ``epoch``, however often the checkpoint must be retried.

        False if the pipeline stops before: its last checkpoint will hold the epoch, or stop() says why
        it doesn't.
        """
        running = self._running
        while not self._holds(epoch) and not running.ending:
            running.requests.ask(lambda: running.ending)
            error = running.coordinator.last_error
            if error is not None and not self._holds(epoch):
                running.waiting = f"epoch {epoch} is not in a checkpoint yet: {error}"
                running.stopping.wait(_RETRY_S)
        running.waiting = None
        if running.lost is not None:
            raise running.lost
        running.raise_failure()
        return self._holds(epoch)

    def _holds(self, epoch: int) -> bool:
        last = self._running.last_checkpoint_epoch()
        return last is not None and last >= epoch

    def _sit_out(self) -> None:
        """Let the stream stop here: returning earlier would tell sources that the epoch is done."""
        running = self._running
        # A new stream's first batch may come while the old one, which has ended, is still the one we know.
        while running.beginning or running.stream is None or running.stream.is_active:
            runtime.sleep(0.01)
