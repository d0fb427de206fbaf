"""Hosts, the copies of runs that they hold, and what a host is worth to a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from holdfast.placement.balance import Integers

__all__ = ["BytesByTier", "Copy", "Host", "by_name", "reading", "scores", "unsaved_holders"]

# What a byte counts, by where a task would find it. A replica is as near as the local form, but
# has to be decoded. Within a rack the network is only somewhat better than across.
_ON_DISK, _REPLICA, _SAME_RACK = 10, 8, 1
_HIGHEST_PRIORITY = 99

Places = tuple[frozenset[str], frozenset[str]]
"""Who has a copy on disk, and who has a replica of it."""


@dataclass(frozen=True, slots=True)
class Host:
    """A live host, by Spark's name for it, that can run tasks."""

    name: str
    slots: int
    """Task slots of all its executors."""
    rack: str | None = None

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"host {self.name} has no task slots: leave it out")


@dataclass(frozen=True, slots=True)
class Copy:
    """One run that a partition needs, or the part of it in the partition's range."""

    bytes: int
    hosts: frozenset[str] = frozenset()
    """Hosts that hold its local form, as far as is known; dead ones may be among them."""
    replicas: frozenset[str] = frozenset()
    """Hosts that hold a replica of its stored form (HDFS)."""
    stored: bool = True
    """Whether it can be had from checkpoint storage at all."""
    priority: int = 0
    """A byte of priority n counts as n + 1."""

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ValueError(f"a copy can't have {self.bytes} bytes")
        if self.replicas and not self.stored:
            raise ValueError("a copy that isn't stored has no replicas")


@dataclass(frozen=True, slots=True)
class BytesByTier:
    """Where a partition's bytes come from if it runs on a certain host."""

    local: int = 0
    replica: int = 0
    remote: int = 0
    lost: int = 0
    """Neither on a live host nor stored."""
    stranded: int = 0
    """On other live hosts only, not stored: part of ``remote``, and to be copied there first."""

    @property
    def total(self) -> int:
        """All bytes that the partition needs."""
        return self.local + self.replica + self.remote + self.lost


def reading(copies: Iterable[Copy], host: str | None, live: frozenset[str]) -> BytesByTier:
    """What a partition reads, and from where, if it runs on ``host``.

    >>> reading([Copy(5, hosts=frozenset({"h1"}))], "h1", frozenset({"h1"})).local
    5
    """
    local = replica = remote = lost = stranded = 0
    for copy in copies:
        if host in copy.hosts:
            local += copy.bytes
        elif host in copy.replicas:
            replica += copy.bytes
        elif copy.stored:
            remote += copy.bytes
        elif copy.hosts.isdisjoint(live):
            lost += copy.bytes
        else:
            remote += copy.bytes
            stranded += copy.bytes
    return BytesByTier(local, replica, remote, lost, stranded)


def by_name(hosts: Iterable[Host]) -> list[Host]:
    """Hosts in the order of their names, so that no plan depends on who was listed first."""
    ordered = sorted(hosts, key=lambda host: host.name)
    for one, next_one in pairwise(ordered):
        if one.name == next_one.name:
            raise ValueError(f"host {one.name} is listed twice")
    return ordered


def scores(needs: Sequence[Sequence[Copy]], hosts: Sequence[Host]) -> Integers:
    """What each host (column) is worth to each partition (row): bytes, weighted by nearness.

    >>> here, there = Host("h1", 4), Host("h2", 4)
    >>> scores([[Copy(7, hosts=frozenset({"h1"}), replicas=frozenset({"h2"}))]], [here, there]).tolist()
    [[70, 56]]
    """
    weigh = _Weights(hosts)
    total = np.zeros((len(needs), len(hosts)), np.int64)
    for partition, copies in enumerate(needs):
        # The runs of a partition are mostly in the same places: one vector operation for each.
        sizes: dict[Places, int] = {}
        for copy in copies:
            places = (copy.hosts, copy.replicas)
            times = 1 + min(max(copy.priority, 0), _HIGHEST_PRIORITY) if copy.priority else 1
            sizes[places] = sizes.get(places, 0) + copy.bytes * times
        for places, size in sizes.items():
            total[partition] += weigh(places) * size
    return total


class _Weights:
    """Per host what a byte of a copy counts there. The same sets of hosts come again and again."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.index = {host.name: number for number, host in enumerate(hosts)}
        self.racks: dict[str, list[int]] = {}
        for number, host in enumerate(hosts):
            if host.rack is not None:
                self.racks.setdefault(host.rack, []).append(number)
        self.rack_of = {host.name: host.rack for host in hosts if host.rack is not None}
        self.known: dict[Places, Integers] = {}

    def __call__(self, places: Places) -> Integers:
        known = self.known.get(places)
        if known is None:
            known = self.known[places] = self._weigh(*places)
        return known

    def _weigh(self, on_disk: frozenset[str], replicas: frozenset[str]) -> Integers:
        weights = np.zeros(len(self.index), np.int64)
        holders = (on_disk | replicas) & self.rack_of.keys()
        for rack in {self.rack_of[name] for name in holders}:
            weights[self.racks[rack]] = _SAME_RACK
        # The nearer overwrites the farther.
        for names, weight in ((replicas, _REPLICA), (on_disk, _ON_DISK)):
            weights[[self.index[name] for name in names if name in self.index]] = weight
        return weights


def unsaved_holders(copies: Iterable[Copy], live: frozenset[str]) -> frozenset[str]:
    """The live hosts on which the partition finds most of what is not stored; none if all is.

    It has to run on one of them: what isn't stored can be read nowhere else.
    """
    held: dict[str, int] = {}
    for copy in copies:
        if not copy.stored:
            for name in copy.hosts:
                if name in live:
                    # One more than its bytes: an empty run can't be had elsewhere either.
                    held[name] = held.get(name, 0) + copy.bytes + 1
    most = max(held.values(), default=0)
    return frozenset(name for name, size in held.items() if size == most)
