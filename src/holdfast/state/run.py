"""Runs and segments: the names under which state is known.

A *run* is an immutable, sorted piece of one state table. It never changes once it has a name
(invariant 1); what changes is who names it. A *segment* is the part of a run that a version uses:
cutting, rescaling and merging by range are all a matter of naming other segments.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from holdfast.state.hashing import HashRange

__all__ = ["LocalForm", "Run", "Safety", "Segment", "StoredForm"]


class Safety(IntEnum):
    """From where a run can be had should hosts be lost, the worst first."""

    LOST = 0
    """From nowhere."""
    LOCAL = 1
    """From disks that may all be lost at once."""
    PROTECTED = 2
    """From a disk that is left when as many hosts are lost as was promised to be survivable."""
    DURABLE = 3
    """From checkpoint storage, by any host: a log entry may name it."""


class LocalForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Arrow file of a run on a host's disk."""

    size_bytes: int
    checksum: str
    """xxh3-64 of the file's index, in hex; the index holds a checksum per block."""
    hosts: tuple[str, ...] = ()


class StoredForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Parquet object of a run in checkpoint storage."""

    object: str
    size_bytes: int
    checksum: str
    """xxh3-64 of the file's tail (footer), in hex; the footer holds a checksum per row group."""
    tail_bytes: int


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a run without opening it."""

    name: str
    """Unique for ever: ``<claim>-<random>``."""
    table: str
    """The state table: ``<operator>.<table>``."""
    range: HashRange
    first_epoch: int
    last_epoch: int
    rows: int
    tombstones: int = 0
    local: LocalForm | None = None
    stored: StoredForm | None = None

    @property
    def claim(self) -> int:
        """The number of the claim under which the run was written."""
        return int(self.name.partition("-")[0])

    @property
    def is_durable(self) -> bool:
        """Whether checkpoint storage has it, complete."""
        return self.stored is not None

    def safety(self, holders: int, survives: int = 0) -> Safety:
        """How safe it is if so many live hosts have it, and the loss of so many was promised to be survivable.

        >>> run = Run("1-a", "counts.groups", HashRange(0, 9), 3, 3, rows=1)
        >>> run.safety(holders=1).name, run.safety(2, survives=1).name, run.safety(0).name
        ('LOCAL', 'PROTECTED', 'LOST')
        """
        if self.is_durable:
            return Safety.DURABLE
        if not holders:
            return Safety.LOST
        return Safety.PROTECTED if 0 < survives < holders else Safety.LOCAL

    @property
    def size_bytes(self) -> int:
        """The bytes of the form that a reader would open first."""
        form = self.local or self.stored
        return form.size_bytes if form else 0


class Segment(msgspec.Struct, frozen=True):
    """The rows of ``run`` whose hash lies in ``range``."""

    run: Run
    range: HashRange

    @property
    def rows(self) -> int:
        """Estimated rows: the run's, in proportion to the part of its range that is used."""
        whole = self.run.range.last - self.run.range.first + 1
        return self.run.rows * (self.range.last - self.range.first + 1) // whole

    @property
    def size_bytes(self) -> int:
        """Estimated bytes, in the same proportion."""
        whole = self.run.range.last - self.run.range.first + 1
        return self.run.size_bytes * (self.range.last - self.range.first + 1) // whole
