"""A pipeline's time: one processing time and one watermark per epoch, fixed by the driver.

Nothing in a task reads a clock (invariant 4). What the next epoch's time depends on is in the record
of the last one, so a restarted driver goes on where the log ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from holdfast.checkpoint.entry import END_MS, EpochRecord

__all__ = ["PipelineTime", "Watermark"]


@dataclass(frozen=True, slots=True)
class Watermark:
    """How a source's watermark follows the greatest event time seen in it."""

    delay_ms: int
    idle_ms: int | None = None
    """After so long without rows the source no longer holds the others back; None: never."""


class PipelineTime:
    """Gives each epoch its times.

    >>> time = PipelineTime({"main": Watermark(delay_ms=10)})
    >>> record = time.begin(0, now_ms=1_000)
    >>> record.watermark_ms, time.end(record, {"main": 500}).event_times
    (None, {'main': 500})
    >>> time.begin(1, now_ms=1_100).watermark_ms
    490
    """

    def __init__(self, sources: Mapping[str, Watermark], last: EpochRecord | None = None) -> None:
        self._sources = dict(sources)
        self._processing_ms = last.processing_time_ms if last else 0
        # Of the last epoch that ended.
        self.previous_processing_ms = last.processing_time_ms if last else None
        self._watermark_ms = last.watermark_ms if last else None
        self._before_end_ms = last.previous_watermark_ms if last else None
        self._stopped_ms = last.processing_time_ms if last else None
        self._greatest = dict(last.event_times) if last else {}
        self._active = dict(last.active_ms) if last else {}

    @property
    def watermark_ms(self) -> int | None:
        """That of the last epoch."""
        return self._watermark_ms

    @property
    def at_end(self) -> bool:
        """Whether input has ended: the watermark is at its end."""
        return self._watermark_ms == END_MS

    def begin(
        self, epoch: int, now_ms: int, offsets: str = "", *, at_end: bool = False
    ) -> EpochRecord:
        """The record of a new epoch: its processing time never goes back, nor does its watermark.

        ``at_end``: input has ended. What operators still make is on time all the same, so the
        watermark before it stays what it was before the end.
        """
        if self._stopped_ms is not None:
            # Nobody was looking: a source was not idle because the pipeline did not run.
            away = max(0, now_ms - self._stopped_ms)
            self._active = {source: ms + away for source, ms in self._active.items()}
            self._stopped_ms = None
        self._processing_ms = max(self._processing_ms, now_ms)
        for source in self._sources:
            self._active.setdefault(source, self._processing_ms)
        return EpochRecord(
            epoch,
            rows=0,
            processing_time_ms=self._processing_ms,
            watermark_ms=END_MS if at_end else self.watermark_at(self._processing_ms),
            previous_watermark_ms=self._before_end_ms if self.at_end else self._watermark_ms,
            offsets=offsets,
        )

    def end(self, record: EpochRecord, greatest_ms: Mapping[str, int]) -> EpochRecord:
        """The epoch is over and saw these greatest event times: its record, complete."""
        self._watermark_ms = record.watermark_ms
        self._before_end_ms = record.previous_watermark_ms
        self.previous_processing_ms = record.processing_time_ms
        for source, ms in greatest_ms.items():
            self._greatest[source] = max(ms, self._greatest.get(source, ms))
            self._active[source] = record.processing_time_ms
        return msgspec.structs.replace(
            record, event_times=dict(self._greatest), active_ms=dict(self._active)
        )

    def watermark_at(self, now_ms: int) -> int | None:
        """The watermark that an epoch that began then would have."""
        # Behind a restart time begins with the first epoch.
        stopped = self._stopped_ms is not None
        now_ms = self._processing_ms if stopped else max(self._processing_ms, now_ms)
        marks = []
        for source, watermark in self._sources.items():
            idle = watermark.idle_ms
            active = self._active.get(source, self._processing_ms)
            if idle is not None and now_ms - active >= idle:
                continue
            if source not in self._greatest:
                return self._watermark_ms
            marks.append(self._greatest[source] - watermark.delay_ms)
        if not marks:
            return self._watermark_ms
        return min(marks) if self._watermark_ms is None else max(self._watermark_ms, min(marks))
