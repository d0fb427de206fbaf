"""Where each partition should run: on the host that can read most of its state without the network.

One planner for steady state, restart, failure and rescale. It is pure: who is alive, who holds what
and who is to be avoided comes in, a plan goes out, and equal questions have equal answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.placement.balance import Booleans, Integers, divide
from holdfast.placement.copies import (
    BytesByTier,
    Copy,
    Host,
    by_name,
    reading,
    scores,
    unsaved_holders,
)
from holdfast.placement.reasons import Situation, amount, reason

__all__ = ["Assignment", "Copy", "Host", "PartitionPlan", "place"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a partition should run, what it reads there, and why."""

    partition: int
    host: str | None
    """None: anywhere."""
    local_bytes: int
    """On the host's disk."""
    replica_bytes: int
    """In a replica of the stored form on this host."""
    remote_bytes: int
    """To be had over the network."""
    lost_bytes: int
    """Neither on a live host nor stored."""
    why: str
    stranded_bytes: int = 0
    """Not stored and on other live hosts only (counted as remote too): they have to be copied to
    this host, or stored, before the partition can run."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """An assignment per partition."""

    assignments: tuple[Assignment, ...]

    @property
    def lost(self) -> tuple[int, ...]:
        """Partitions of whose state something is on no live host and not stored."""
        return tuple(a.partition for a in self.assignments if a.lost_bytes)

    @property
    def stranded(self) -> tuple[int, ...]:
        """Partitions that can't run before something not stored is copied to their host."""
        return tuple(a.partition for a in self.assignments if a.stranded_bytes)

    @property
    def hosts(self) -> dict[int, str]:
        """The host of each partition that has one: ``previous`` for the next plan."""
        return {a.partition: a.host for a in self.assignments if a.host is not None}

    def moved(self, previous: Mapping[int, str]) -> tuple[int, ...]:
        """Partitions that ran elsewhere before."""
        return tuple(
            a.partition for a in self.assignments if previous.get(a.partition, a.host) != a.host
        )

    def explain(self) -> list[str]:
        """The plan in words: a line per partition, then one per host."""
        lines = [
            f"partition {a.partition} on {a.host}: {a.why}"
            if a.host is not None
            else f"partition {a.partition} anywhere: {a.why}"
            for a in self.assignments
        ]
        by_host: dict[str, list[Assignment]] = {}
        for a in self.assignments:
            if a.host is not None:
                by_host.setdefault(a.host, []).append(a)
        for host, mine in sorted(by_host.items()):
            near = sum(a.local_bytes + a.replica_bytes for a in mine)
            far = sum(a.remote_bytes for a in mine)
            partitions = "1 partition" if len(mine) == 1 else f"{len(mine)} partitions"
            lines.append(
                f"{host}: {partitions}, {amount(near)} without the network, {amount(far)} over it"
            )
        return lines


def place(
    needs: Sequence[Sequence[Copy]],
    hosts: Sequence[Host],
    *,
    previous: Mapping[int, str] = {},
    avoid: Collection[str] = (),
    balance: float = 1.2,
) -> PartitionPlan:
    """Plan where each partition runs; ``needs[p]`` is what partition p has to read.

    - State that is not stored binds its partition to the live host that holds it.
    - Otherwise hosts are chosen for the greatest total of bytes that need no network, bytes on
      disk before replicas before the same rack. No host gets more than ``balance`` times its share
      (by slots), rounded up.
    - Hosts in ``avoid`` (names, or names with reasons: ``HostHealth.avoided``) get only what is
      bound to them, unless no other is left.
    - Where that leaves a choice, partitions stay on their ``previous`` host, then slots are loaded
      evenly, then names decide.

    >>> on_h1, on_h2 = Copy(2**20, hosts=frozenset({"h1"})), Copy(2**20, hosts=frozenset({"h2"}))
    >>> plan = place([[on_h2], [on_h1]], [Host("h1", 2), Host("h2", 2)])
    >>> print(*plan.explain(), sep="\\n")
    partition 0 on h2: all 1.0 MiB are on its disk
    partition 1 on h1: all 1.0 MiB are on its disk
    h1: 1 partition, 1.0 MiB without the network, 0 B over it
    h2: 1 partition, 1.0 MiB without the network, 0 B over it
    """
    if balance < 1:
        raise ValueError(f"balance is {balance}: a host can't be held below its share")
    known = by_name(hosts)
    live = frozenset(host.name for host in known)
    usable = frozenset(live - set(avoid)) or live
    bound = [_bound(copies, live, usable) for copies in needs]
    limit = _limits(len(needs), known, usable, balance)
    if known:
        chosen = divide(
            scores(needs, known),
            _allowed(bound, known, usable),
            [limit],
            np.array([host.slots for host in known], np.int64),
            _previous(len(needs), known, previous),
        )
        names: list[str | None] = [known[number].name for number in chosen.tolist()]
    else:
        names = [None] * len(needs)
    load = Counter(names)
    full = frozenset(
        host.name
        for host, most in zip(known, limit.tolist(), strict=True)
        if load[host.name] >= most
    )
    assignments = []
    avoided = avoid if isinstance(avoid, Mapping) else dict.fromkeys(avoid, "")
    for partition, copies in enumerate(needs):
        name = names[partition]
        read = reading(copies, name, live)
        situation = Situation(
            live, usable, avoided, full, bound[partition], previous.get(partition)
        )
        why = reason(copies, name, read, situation)
        assignments.append(_assignment(partition, name, read, why))
    return PartitionPlan(tuple(assignments))


def _limits(
    partitions: int, hosts: Sequence[Host], usable: Collection[str], balance: float
) -> Integers:
    """The most partitions that each host should get; none for those that aren't usable."""
    total = sum(host.slots for host in hosts if host.name in usable)
    # Rounded first: 1.1 × 10 is a little more than 11 in floating point.
    most = [
        max(1, math.ceil(round(balance * partitions * host.slots / total, 9)))
        if host.name in usable
        else 0
        for host in hosts
    ]
    return np.array(most, np.int64)


def _bound(copies: Sequence[Copy], live: frozenset[str], usable: frozenset[str]) -> frozenset[str]:
    """The hosts to which unsaved state binds the partition; usable ones, if there is a choice."""
    holders = unsaved_holders(copies, live)
    return holders & usable or holders


def _allowed(
    bound: Sequence[frozenset[str]], hosts: Sequence[Host], usable: frozenset[str]
) -> Booleans:
    index = {host.name: number for number, host in enumerate(hosts)}
    allowed = np.zeros((len(bound), len(hosts)), np.bool_)
    allowed[:, [index[name] for name in usable]] = True
    for partition, names in enumerate(bound):
        if names:
            allowed[partition] = False
            allowed[partition, [index[name] for name in names]] = True
    return allowed


def _previous(partitions: int, hosts: Sequence[Host], previous: Mapping[int, str]) -> Integers:
    index = {host.name: number for number, host in enumerate(hosts)}
    stay = [index.get(previous.get(partition, ""), -1) for partition in range(partitions)]
    return np.array(stay, np.int64)


def _assignment(partition: int, host: str | None, read: BytesByTier, why: str) -> Assignment:
    return Assignment(
        partition, host, read.local, read.replica, read.remote, read.lost, why, read.stranded
    )
