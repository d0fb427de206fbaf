"""What users are told by what a running pipeline answers, and whether it is so."""

from __future__ import annotations

from holdfast.driver.running import RunningPipeline

__all__ = ["Asked", "stopped_in_vain"]


def stopped_in_vain(running: RunningPipeline) -> str | None:
    """What a ``stop()`` that raised nothing has left undone, if anything: all is recorded and published."""
    if running.failure is not None:
        return None  # it had failed before, and has said so
    if running.ledger.snapshot() is not None:
        return "stop() came back, and epochs are in no checkpoint"
    if owed := running.ledger.pending():
        return f"stop() came back, and {', '.join(owed)} have not published everything"
    return None


class Asked:
    """A checkpoint that somebody asks for."""

    def __init__(self, running: RunningPipeline) -> None:
        self._running = running
        self._recoveries = len(running.recoveries)
        snapshot = running.ledger.snapshot()
        # Idle epochs after the last that ran are in no entry unless something follows.
        ran = running.progress[-1].epoch if running.progress else -1
        # What was processed and is lost will be processed again, under numbers that nobody knows yet.
        lasts = running.lost is None
        self._epoch = min(ran, snapshot.epochs[-1].epoch) if snapshot and lasts else -1

    def in_vain(self, answer: int | None) -> str | None:
        """What an answer promises that isn't so, if anything: it holds what was processed by then."""
        if len(self._running.recoveries) > self._recoveries:
            return None  # the pipeline has gone back meanwhile
        if (-1 if answer is None else answer) < self._epoch:
            return f"checkpoint() says {answer} though epoch {self._epoch} was processed before"
        return None
