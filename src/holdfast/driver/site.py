"""Where the tasks of a pipeline run, and where the local forms of its runs are.

On one machine that is one folder, and the driver sees it too. On a cluster
(:mod:`holdfast.driver.cluster`) every host has such a folder, and only tasks on a host see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.engine import HostGoneError, JobFailedError
from holdfast.driver.local_files import LocalFiles
from holdfast.placement.eviction import evictions
from holdfast.placement.planner import Assignment
from holdfast.state.hashing import HashRange
from holdfast.state.run import Run
from holdfast.state.version import Change, Version

__all__ = ["LocalSite", "Placement", "Site"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the partitions of an epoch run, and what tasks need to know of it."""

    assignments: tuple[Assignment, ...] = ()
    """One per partition; none if there is only one place to run."""
    retired: tuple[tuple[str, str], ...] = ()
    """Runs whose local files may go, and on which host ("" for all)."""

    @property
    def hosts(self) -> list[str | None]:
        """The host of each partition."""
        return [assignment.host for assignment in self.assignments]


class Site(Protocol):
    """What epochs and background jobs ask of the place where they run."""

    one_host: bool
    """Whether driver and tasks share one disk."""

    limit_bytes: int | None
    """How much of a host's disk runs may take; None for all of it."""

    @property
    def folder(self) -> Path:
        """Where local forms are, on each host."""

    def place(self, version: Version, partitions: int) -> Placement:
        """Where each partition of the next epoch runs; ``StateLostError`` if none can."""

    def host_for(self, runs: Iterable[Run], within: HashRange) -> str | None:
        """Where a background task for these runs, in a range, belongs; None for anywhere."""

    def learn(self, changes: Iterable[Change], fetched: Mapping[str, Sequence[str]]) -> None:
        """New runs are where they were written; hosts have fetched runs."""

    def accept(self, changes: Sequence[Change], fetched: Mapping[str, Sequence[str]]) -> None:
        """The same of an epoch; ``HostGoneError`` if what it wrote may be gone already."""

    def retire(self, ledger: Ledger) -> None:
        """Local files of runs that nobody can open any more may go."""

    def failed(self, error: JobFailedError | HostGoneError, attempt: int) -> None:
        """An epoch's job failed: return if it should be run again, else raise."""


class LocalSite:
    """One machine."""

    one_host = True

    def __init__(self, files: LocalFiles, limit_bytes: int | None = None) -> None:
        self._files = files
        self.limit_bytes = limit_bytes
        self._dropped: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of this driver's claim."""
        return self._files.folder

    def place(self, version: Version, partitions: int) -> Placement:
        """Nowhere else to go."""
        del version, partitions
        dropped, self._dropped = self._dropped, ()
        return Placement(retired=dropped)

    def host_for(self, runs: Iterable[Run], within: HashRange) -> str | None:
        """Anywhere: everybody has everything."""
        del runs, within
        return None

    def learn(self, changes: Iterable[Change], fetched: Mapping[str, Sequence[str]]) -> None:
        """Their files go when they do, also if the version never names them."""
        del fetched
        self._files.known(change.output.name for change in changes if change.output is not None)

    def accept(self, changes: Sequence[Change], fetched: Mapping[str, Sequence[str]]) -> None:
        """They are on this disk."""
        self.learn(changes, fetched)

    def retire(self, ledger: Ledger) -> None:
        """Delete them now: the driver sees the folder."""
        version = ledger.version
        self._files.known(version.runs())
        self._files.retire(ledger.live_runs())
        self._files.sweep(ledger)
        if self.limit_bytes is not None:
            held = self._files.present(version.runs().values())
            # By tasks: their maps of the files have to go too.
            self._dropped = tuple((name, "") for name in evictions(held, self.limit_bytes))

    def failed(self, error: JobFailedError | HostGoneError, attempt: int) -> None:
        """Nothing that running it again would mend."""
        del attempt
        raise _told(error)


def _told(error: JobFailedError | HostGoneError) -> Exception:
    """What went wrong, as whoever met it first said it."""
    return error.cause if isinstance(error, JobFailedError) else error
