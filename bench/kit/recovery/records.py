"""What the recovery benchmark writes down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

import msgspec

__all__ = ["Bound", "Built", "Failure", "Restore", "middle"]


class Built(msgspec.Struct, frozen=True):
    """The state of one size, before anything fails."""

    engine: str
    megabytes: int
    records: int
    keys: int
    seconds: float
    stored_bytes: int | None = None
    """In checkpoint storage, one copy."""
    local_bytes: int | None = None
    """On the disk of the host that holds it."""


class Failure(msgspec.Struct, frozen=True):
    """One failure and the way back from it. Seconds count from the kill."""

    kind: str
    """``host``, ``executor`` or ``driver``: what was killed."""
    engine: str
    megabytes: int
    arrangement: str
    """``local``: a replica on every candidate host; ``remote``: on none."""
    rate: str | None
    repeat: int
    committed_s: float
    """Until the first epoch after it was in a checkpoint."""
    detected_s: float | None = None
    """Until the driver noticed; None if it is not told, or there is nothing to notice."""
    usable_s: float | None = None
    """Until all of the lost state was on the recovering host's disk."""
    wire_in: int | None = None
    wire_out: int | None = None
    """Over the recovering host's cable, from the kill until state and epoch were there."""
    steps: dict[str, float] = {}
    """As the pipeline tells it."""
    events: list[tuple[float, str]] = []
    """What the driver logged, in seconds from the kill."""
    note: str = ""

    @property
    def fetch_s(self) -> float | None:
        """From detection until the state was on disk."""
        if self.usable_s is None or self.detected_s is None:
            return None
        return self.usable_s - self.detected_s


class Restore(msgspec.Struct, frozen=True):
    """A start with empty local disks. Seconds count from the start of the pipeline."""

    megabytes: int
    rate: str | None
    touched_keys: int
    epoch_s: float
    """Until the first epoch was in the version."""
    full_s: float
    """Until all state was on the disk of its host."""
    committed_s: float


class Bound(msgspec.Struct, frozen=True):
    """What a first epoch that touches cold keys can do at best, if nothing but reading takes time."""

    megabytes: int
    cold_keys: int
    """Keys that it touches and that are in no recent run."""
    key_share: float
    """Of the stored bytes; the rest are hashes and values."""
    reads_per_second: float
    """Small pieces that the host could read, at the limited rate."""
    least_ratio: float
    """Over reading everything in a row, with as many reads as are best."""
    reads_needed: float | None
    """So many reads per second would make it half."""


def middle(failures: Iterable[Failure], value: Callable[[Failure], float | None]) -> float | None:
    """The median of what was measured; None if nothing was."""
    found = [x for x in map(value, failures) if x is not None]
    return median(found) if found else None
