"""What a pipeline tells of each time it had to recover."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from holdfast import runtime

__all__ = ["Recovery"]

logger = logging.getLogger("holdfast.recovery")


@dataclass
class Recovery:
    """A loss and the way back from it; steps are filled in as they end.

    >>> recovery = Recovery("host h2 is gone", lost_epoch=7, began=0.0)
    >>> recovery.step("open", now=1.5)
    >>> recovery.step("replay", now=2.0)
    >>> recovery.seconds
    {'open': 1.5, 'replay': 0.5}
    """

    reason: str
    lost_epoch: int
    """The newest epoch before the loss: caught up when it has been reached again."""
    began: float = field(default_factory=runtime.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    """``detect`` (from the start of the epoch that failed), ``stop`` (until Spark's query has
    ended), ``open`` (claim, look at disks, plan), ``replay`` (until the first epoch is in the
    version), ``catch_up`` (until the lost epoch is reached again); beside them ``fetch``, from
    the loss until every host has all its runs on disk."""
    _last: float | None = None

    def step(self, name: str, now: float | None = None) -> None:
        """A step has ended."""
        moment = runtime.monotonic() if now is None else now
        self.seconds[name] = moment - (self.began if self._last is None else self._last)
        self._last = moment

    def fetched(self, now: float | None = None) -> None:
        """Every host has its runs."""
        self.seconds["fetch"] = (runtime.monotonic() if now is None else now) - self.began

    def epoch_done(self, epoch: int) -> None:
        """An epoch has been processed since."""
        if "replay" not in self.seconds:
            self.step("replay")
            logger.info("first epoch after recovery: %s", self)
        if "catch_up" not in self.seconds and epoch >= self.lost_epoch:
            self.step("catch_up")
            logger.info("caught up: %s", self)

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {spent:.2f} s" for name, spent in self.seconds.items())
        return f"{self.reason} ({steps or 'begun'})"
