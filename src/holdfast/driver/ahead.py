"""How far epochs may run ahead of the log: past that the next one waits, and says why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY

if TYPE_CHECKING:
    from holdfast.driver.running import RunningPipeline

__all__ = ["too_far_ahead", "wait_while_ahead"]

logger = logging.getLogger("holdfast.query")

_LOOK_S = 0.05
_RETRY_S = 1.0


def wait_while_ahead(running: RunningPipeline) -> None:
    """Hold the next epoch while processing is too far ahead of the log."""
    while not running.ending:
        why = too_far_ahead(running)
        if why is None:
            break
        if running.waiting is None:
            logger.warning("pipeline %s waits: %s", running.name, why)
        running.waiting = why
        running.requests.ask_again(_LOOK_S)
        # Whoever fails at once would be asked without a pause: being told so ends no wait.
        running.requests.wait(
            lambda: running.ending or not running.coordinator.last_error, _RETRY_S
        )
    running.waiting = None


def too_far_ahead(running: RunningPipeline) -> str | None:
    """Why the next epoch should wait for an entry; None if it need not."""
    ahead, options = running.ledger.ahead(), running.options
    failed = running.coordinator.last_error
    because = f" (the last checkpoint failed: {failed})" if failed else ""
    if ahead.unsaved_bytes > options.max_ahead_bytes:
        return f"{ahead.unsaved_bytes} bytes are not in a checkpoint yet{because}"
    if ahead.numbers >= EPOCHS_PER_ENTRY:
        return f"{ahead.numbers} epochs have begun since the last checkpoint{because}"
    now_ms = running.parts.now_ms()
    age = 0.0 if ahead.oldest_ms is None else (now_ms - ahead.oldest_ms) / 1000
    if age > options.max_ahead_s:
        return f"the oldest epoch without a checkpoint is {age:.0f} s old{because}"
    return None
