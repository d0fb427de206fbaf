"""The thread of a running pipeline that takes checkpoints, and merges what they stored when it has time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.driver.failures import unexpected
from holdfast.errors import HoldfastError, StateLostError

if TYPE_CHECKING:
    from holdfast.driver.running import RunningPipeline

__all__ = ["CheckpointThread"]

logger = logging.getLogger("holdfast.query")

_LAST_MERGE_S = 60.0


class CheckpointThread:
    """Takes checkpoints whenever one is due or somebody asks, and the last one."""

    def __init__(self, running: RunningPipeline) -> None:
        self._running = running
        self.merging = runtime.lock()

    def take(self) -> None:
        """Take checkpoints until the pipeline has ended."""
        running = self._running
        interval = running.options.checkpoint_interval_s
        due = runtime.monotonic() + (interval or 0.0)
        while not running.done.is_set():
            left = None if interval is None else max(0.0, due - runtime.monotonic())
            asked = running.requests.await_asked(running.done.is_set, left)
            if running.done.is_set():
                return
            self._take_one(asked)
            due = runtime.monotonic() + (interval or 0.0)

    def _take_one(self, asked: int) -> None:
        running = self._running
        try:
            with running.renewing.shared(), running.failing():
                parts = running.parts
                entry = running.coordinator.checkpoint()
                gone = running.out_of_reach()
            # First of all: who waits for it may be what ending the epochs waits for.
            running.requests.answer(asked)
            if gone is not None:
                running.lose_and_end(StateLostError(gone), parts)
            elif entry is not None and not running.ending:
                self._merge()
        except BaseException as error:
            # A thread that dies silently would stop checkpoints.
            logger.debug("a checkpoint ended in an error", exc_info=error)
            running.requests.answer(asked)
            if running.failure is not None:
                running.started.stop()

    def _merge(self) -> None:
        if self.merging.acquire(blocking=False):
            try:
                with self._running.renewing.shared(), self._running.failing():
                    self._running.parts.jobs.compact()
            finally:
                self.merging.release()

    def take_last(self) -> None:
        """All that was processed is published, and nothing else is left."""
        running, coordinator = self._running, self._running.coordinator
        # Kept from here on. A merge under way may wait for hosts that never come.
        quiet = self.merging.acquire(timeout=_LAST_MERGE_S)
        try:
            coordinator.checkpoint()
            if coordinator.last_error is not None and running.parts.cluster is not None:
                # A host may have gone meanwhile, and those left can do it.
                coordinator.checkpoint()
            if quiet and running.failure is None and coordinator.last_error is None:
                coordinator.end()
        except BaseException as error:  # noqa: BLE001 - a stop that was not clean must not look like one
            running.fail(error if isinstance(error, HoldfastError) else unexpected(error))
        for failed in (coordinator.last_error, coordinator.publish_error):
            if running.failure is None and failed is not None:
                running.fail(failed)
