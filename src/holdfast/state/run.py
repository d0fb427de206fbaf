"""Runs and segments: the names under which state is known.

A *run* is an immutable, sorted piece of one state table. It never changes once it has a name
(invariant 1); what changes is who names it. A *segment* is the part of a run that a version uses:
cutting, rescaling and merging by range are all a matter of naming other segments.
"""

from __future__ import annotations

import msgspec

from holdfast.state.hashing import HashRange

__all__ = ["LocalForm", "Run", "Segment", "StoredForm"]


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
