"""A cluster without hosts: when they come and go can't be steered in a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from holdfast.driver.cluster import ClusterSite
from holdfast.driver.engine import Fleet, GoneHost
from holdfast.placement.health import HostHealth
from holdfast.placement.planner import Host
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.here import Here


class StandInFleet(Fleet):
    """Hosts of which only the names are known, and which of them are alive."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.alive = frozenset(hosts)

    def executors(self) -> frozenset[str]:
        return frozenset(f"{host}:1" for host in self.alive)

    def hosts(self, executors: frozenset[str] | None = None) -> tuple[Host, ...]:
        return tuple(Host(name, 2) for name in sorted(self.alive))

    def gone(self, host: str) -> GoneHost:
        return GoneHost("worker lost", for_good=True)

    def run(
        self, hosts: Sequence[str], task: Callable[[Here], DiskReport], what: str
    ) -> list[DiskReport]:
        raise AssertionError(f"no host can {what}")

    def check(
        self, hosts: Sequence[str], packages: Mapping[str, tuple[int, ...]], root: Path
    ) -> None:
        raise AssertionError("nobody starts here")

    def cancel(self) -> None:
        pass


class Site(ClusterSite):
    """A cluster of such hosts, whose disks have been looked at."""

    def __init__(self, *hosts: str) -> None:
        self.fleet = StandInFleet(hosts)
        storage = SimpleNamespace(expect_faults=lambda _: None)
        super().__init__(self.fleet, cast(Any, storage), Path("/nowhere"), HostHealth())
        self.has_looked()

    def has_looked(self) -> None:
        """The disks of all who are alive are known from now on."""
        self._present, self._seen = self.fleet.alive, self.fleet.executors()
