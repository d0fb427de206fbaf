"""Where a task runs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from holdfast.storage import Storage

__all__ = ["Here"]


class Here(NamedTuple):
    """The host of a task, as the engine calls it, and its ways to a disk and to storage.

    >>> Here("h1").path(Path("/data/holdfast"))
    PosixPath('/data/holdfast')
    >>> Here("h1", disk=Path("/disks/h1")).path(Path("/data/holdfast"))
    PosixPath('/disks/h1/data/holdfast')
    """

    host: str
    disk: Path | None = None
    """Where its disk is, if several hosts share a machine: the simulator's do."""
    storage: Storage | None = None
    """Its own way to checkpoint storage, if that is another than the driver's."""

    def path(self, path: Path) -> Path:
        """Where something is here that all hosts call alike."""
        return path if self.disk is None else self.disk / path.relative_to(path.anchor)

    def reach(self, storage: Storage) -> Storage:
        """A storage, as it is reached from here."""
        return storage if self.storage is None else self.storage
