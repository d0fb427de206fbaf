"""The end of input: last epochs, with the watermark at its end, in which all that waits comes out.

A finite run says that its input has ended (``end_of_input=True``), or all of its sources do (a test's
``EpochSource.end()``). When Spark has read everything, its query ends; the last epochs are run here,
without rows, at the position where Spark stopped. The entry before them is a checkpoint of its own, so
that one can go back to before the end and add input.

A run over what is available now whose input goes on another day has no end, but one more epoch: an epoch's
watermark is that of the rows before it, so what the last rows have made due needs one after them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.log import LogState
from holdfast.driver.ahead import too_far_ahead
from holdfast.driver.engine import Batch, Engine
from holdfast.driver.scratch import renumbered
from holdfast.errors import ConfigurationError, ProcessingError, StateLostError
from holdfast.failpoints import failpoint
from holdfast.operators.loop import LoopOperator

if TYPE_CHECKING:
    from holdfast.driver.running import RunningPipeline

__all__ = ["InputEnd", "LastEpochs", "await_input", "before_end"]

logger = logging.getLogger("holdfast.query")

_LOOK_S = 0.1
# Rows may go round in a loop so often after the last input.
_MOST_EPOCHS = 1000
_ATTEMPTS = 5
_RETRY_S = 1.0


@dataclass(frozen=True)
class InputEnd:
    """Whether a pipeline's input has ended, and what an epoch without rows is made of."""

    said_at_start: bool
    """Whether ``start`` was told that input ends with what is there."""
    engine: Engine
    pipeline: str
    back_to: int | None
    """If the log says that input has ended: the newest entry from before that."""

    @property
    def may_be_said(self) -> bool:
        """Whether the sources can say it while the pipeline runs."""
        return self.engine.sources_ended() is not None

    @property
    def is_said(self) -> bool:
        """Whether input ends with what is there."""
        return self.said_at_start or bool(self.engine.sources_ended())

    def check_no_more(self, batch: Batch) -> None:
        """Refuse rows that come after the log has said that there would be none."""
        if not self.engine.has_rows(batch):
            return
        back = (
            f", or go on from before the end with start(from_entry={self.back_to}): what came out at the "
            "end comes out again when its time has come"
            if self.back_to is not None
            else ""
        )
        raise ConfigurationError(
            f"pipeline {self.pipeline!r} has ended: it was told that its input had, and now there is "
            "more",
            hint=f"give the new input to a pipeline with a new name and checkpoint_dir{back}",
        )


def before_end(state: LogState, entry: Checkpoint | None) -> int | None:
    """The newest entry from before the end of input, if the given one is from after it."""
    if entry is None or not entry.epochs or not entry.epochs[-1].at_end:
        return None
    earlier = (old for old in state.checkpoints() if old.number < entry.number and old.epochs)
    return next((old.number for old in earlier if not old.epochs[-1].at_end), None)


def await_input(running: RunningPipeline) -> None:
    """Wait until the stream ends; if its sources say that they have ended, end it then."""
    stream, end = running.started, running.parts.input_end
    if end.may_be_said and not running.options.available_now:
        while stream.is_active and not end.is_said:
            if running.stopping.wait(_LOOK_S):
                # Who stops the pipeline ends its stream, when the epoch in hand is over.
                stream.await_end()
                return
        ticks = running.parts.engine.ticks
        if ticks is not None and not running.options.manual:
            ticks.end()
        stream.process_all()
        if stream.is_active:
            running.input_over.set()
            running.requests.wake()
            with running.epoch_lock:
                pass
            stream.stop()
    stream.await_end()


class LastEpochs:
    """Runs what follows the input of a pipeline."""

    def __init__(self, running: RunningPipeline) -> None:
        self._running = running
        self._parts = running.parts
        self._last = running.ledger.version.epoch
        """Spark's last epoch."""
        self._count = 0

    def run(self) -> None:
        """Run last epochs until nothing is due any more; if input has not ended, at most one."""
        running, loop = self._running, self._parts.loop
        if running.ending:
            return
        if not self._is_time():
            if self._has_passed_something():
                failpoint("end.watermark")
                self._epoch(at_end=False)
            return
        if loop.time.at_end and self._has_ended():
            return
        if self._last < 0:
            logger.info("pipeline %s never had an epoch: nothing is to be ended", running.name)
            return
        if not loop.time.at_end:
            self._empty_loops()
            self._checkpoint()
        failpoint("end.before")
        while self._epoch(at_end=True):
            failpoint("end.between")

    def _is_time(self) -> bool:
        """Whether all input has been read and is known to be all."""
        running, end = self._running, self._parts.input_end
        if running.input_over.is_set():
            return True
        if not end.is_said and not self._parts.loop.time.at_end:
            return False
        if not running.options.available_now:
            return False
        if running.started.has_read_all:
            return True
        logger.warning(
            "pipeline %s: Spark's query was stopped before it had read all input, so its end is not "
            "recorded; start it again",
            running.name,
        )
        return False

    def _has_passed_something(self) -> bool:
        """Whether the watermark of the last rows lets come out what their own epoch could not."""
        if not self._running.options.available_now or self._last < 0:
            return False
        moved = self._parts.loop.awaits_watermark(self._parts.now_ms())
        return moved and self._running.started.has_read_all

    def _has_ended(self) -> bool:
        last = self._running.coordinator.last
        return last is not None and last.epochs[-1].ended

    def _empty_loops(self) -> None:
        """Let rows go round, as they do while no input comes, until none is left."""
        loop = self._parts.loop
        if any(isinstance(operator, LoopOperator) for operator in loop.graph.operators):
            # Whether rows wait is not known after a restart: an epoch finds out.
            goes_on = loop.goes_on(loop.time.previous_processing_ms or 0)
            while goes_on:
                goes_on = self._epoch(at_end=False)

    def _checkpoint(self) -> None:
        """Write an entry; storage may fail for a while, or a host be lost."""
        running, coordinator = self._running, self._running.coordinator
        for attempt in range(_ATTEMPTS):
            coordinator.checkpoint()
            error = coordinator.last_error
            if error is None or running.ending:
                return
            gone = running.out_of_reach()
            if gone is not None:
                raise StateLostError(gone)
            if attempt == _ATTEMPTS - 1:
                raise error
            running.stopping.wait(_RETRY_S)

    def _epoch(self, *, at_end: bool) -> bool:
        """Run an epoch without rows, at the position where Spark stopped; whether another must follow."""
        running, parts = self._running, self._parts
        if running.options.manual:
            running.requests.wait_for_step(lambda: running.ending)
        if too_far_ahead(running) is not None:
            # Not as long as storage fails, as between other epochs: a run that could end would wait for ever.
            self._checkpoint()
        self._count += 1
        if self._count > _MOST_EPOCHS:
            raise ProcessingError(
                f"input of pipeline {running.name!r} has ended, and rows still go round in a loop "
                f"{_MOST_EPOCHS} epochs later",
                hint="let rows leave the loop: its body must not feed back for ever",
            )
        with running.epoch_lock:
            if running.ending:
                return False
            epoch = self._last + self._count
            position = renumbered(parts.scratch.read(self._last), self._last, epoch)
            offsets = parts.scratch.offsets(self._last)
            record = parts.loop.time.begin(epoch, parts.now_ms(), offsets, at_end=at_end)
            with parts.engine.epoch_of(running.started):
                done = parts.loop.run(parts.engine.no_rows(), record, position)
            running.progress.append(done)
            failpoint("end.recorded")
        running.epochs.done += 1
        running.requests.step_is_over()
        return parts.loop.goes_on(record.processing_time_ms)
