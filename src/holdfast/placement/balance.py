"""Divides partitions among hosts: the best total score that the limits allow.

A transport problem, in whole numbers. What counts, in this order: that limits are kept, the total
score, how many partitions stay where they were, how evenly the slots are loaded. A greedy start
(who has most to lose chooses first) is improved along cycles: every partition of a cycle of hosts
moves one host on, until no such exchange gains anything, which proves the optimum.

Hosts are few and partitions many, so the search runs on a graph of the hosts alone: its edge from a
to b is what the cheapest move of a partition from a to b loses. One more node stands for the free
slots; a cycle through it changes how many partitions its neighbours have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Booleans", "Integers", "divide"]

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_LARGEST = 2**60
"""Sums along a path stay below this, so that nothing overflows."""
_NEVER = 2**61
_WORK = 200_000_000
"""Edges to look at (some tenths of a second) before a good answer must do; a count, not a time, so
that answers don't depend on the machine."""


def divide(
    scores: Integers,
    allowed: Booleans,
    limits: Sequence[Integers],
    slots: Integers,
    stay: Integers,
) -> Integers:
    """The host of each partition, as an index.

    ``scores`` (not negative) and ``allowed`` have a row per partition and a column per host; each
    row allows at least one host. Each of ``limits`` is a number of partitions per host that is
    exceeded as rarely as possible. ``stay`` is each partition's present host, or −1. Ties go to
    the host that comes first.

    >>> scores = np.array([[9, 0], [8, 0], [1, 0]])
    >>> everywhere, two_each = np.ones((3, 2), bool), np.array([2, 2])
    >>> divide(scores, everywhere, [two_each], np.array([1, 1]), np.full(3, -1)).tolist()
    [0, 0, 1]
    """
    return _Division(scores, allowed, limits, slots, stay).solve()


class _Division:
    def __init__(
        self,
        scores: Integers,
        allowed: Booleans,
        limits: Sequence[Integers],
        slots: Integers,
        stay: Integers,
    ) -> None:
        self.partitions, self.hosts = scores.shape
        evenness = _evenness(self.partitions, slots)
        # One number for several aims: a cycle has at most hosts + 1 moves, and each aim outweighs
        # all that a cycle can change of the lesser ones.
        staying = int(evenness.max(initial=0)) + 1
        score = staying * 2 * (self.hosts + 2)
        room = _LARGEST // (4 * (len(limits) + 1) * (self.hosts + 2) * score)
        highest = int(scores.max(initial=0))
        # Beyond 2**60 the last bits of scores must go: a few bytes in gigabytes.
        shift = max(0, highest.bit_length() - (room.bit_length() - 1))
        values = (scores >> shift) * score
        kept = np.flatnonzero(stay >= 0)
        values[kept, stay[kept]] += staying
        over = (self.hosts + 2) * (int(values.max(initial=0)) + staying)
        self.values: Integers = np.where(allowed, values, -_NEVER)
        counts = np.arange(1, self.partitions + 2)[:, None]
        self.prices: Integers = evenness + over * sum(counts > limit for limit in limits)
        """What the n-th partition of a host costs: row n − 1, a column per host."""
        self.load = np.zeros(self.hosts, np.int64)
        self.host = np.full(self.partitions, -1, np.int64)

    def solve(self) -> Integers:
        if self.hosts == 0 or self.partitions == 0:
            return self.host
        self._choose_greedily()
        losses = np.full((self.hosts + 1, self.hosts + 1), _NEVER, np.int64)
        changed: set[int] = set(range(self.hosts))
        work = _WORK
        while work > 0:
            self._update(losses, changed)
            cycles, steps = _negative_cycles(losses)
            if not cycles:
                break
            work -= steps * losses.size + int(self.load[list(changed)].sum()) * self.hosts
            changed = {host for cycle in cycles for host in cycle if host < self.hosts}
            for cycle in cycles:
                self._turn(cycle)
        return self.host

    def _choose_greedily(self) -> None:
        """Who loses most by not getting its best host chooses first."""
        if self.hosts == 1:
            regret = np.zeros(self.partitions, np.int64)
        else:
            top = np.partition(self.values, self.hosts - 2, axis=1)
            regret = top[:, -1] - top[:, -2]
        price = self.prices[0].copy()
        for partition in np.argsort(-regret, kind="stable").tolist():
            host = int(np.argmax(self.values[partition] - price))
            self.host[partition] = host
            self.load[host] += 1
            price[host] = self.prices[self.load[host], host]

    def _update(self, losses: Integers, changed: set[int]) -> None:
        """Compute the edges of the hosts that changed, and of the free slots."""
        for host in changed:
            members = np.flatnonzero(self.host == host)
            if len(members):
                mine = self.values[members]
                row = (mine[:, host, None] - mine).min(axis=0)
                losses[host, :-1] = np.minimum(row, _NEVER)
            else:
                losses[host, :-1] = _NEVER
            losses[host, host] = _NEVER
        hosts = np.arange(self.hosts)
        losses[:-1, -1] = self.prices[self.load, hosts]
        fewer = -self.prices[np.maximum(self.load - 1, 0), hosts]
        losses[-1, :-1] = np.where(self.load > 0, fewer, _NEVER)

    def _turn(self, cycle: list[int]) -> None:
        """Move one partition along each edge of the cycle."""
        moves: list[tuple[int, int]] = []
        for source, target in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if source < self.hosts and target < self.hosts:
                members = np.flatnonzero(self.host == source)
                lost = self.values[members, source] - self.values[members, target]
                moves.append((int(members[np.argmin(lost)]), target))
        for partition, target in moves:
            self.load[self.host[partition]] -= 1
            self.load[target] += 1
            self.host[partition] = target


def _evenness(partitions: int, slots: Integers) -> Integers:
    """What the n-th partition of a host costs if nothing else counts: more, the fuller it is."""
    least = int(slots.min(initial=1))
    unit = max(1, 2**13 * least // max(1, partitions))
    counts = np.arange(partitions + 1)[:, None]
    costs: Integers = (2 * counts + 1) * unit // slots
    return costs


def _negative_cycles(losses: Integers) -> tuple[list[list[int]], int]:
    """Cycles of negative length that share no node, and the steps it took to find them.

    There are none only if the graph has none (Bellman–Ford).
    """
    nodes = len(losses)
    every = np.arange(nodes)
    distance = np.zeros(nodes, np.int64)
    before = np.full(nodes, -1, np.int64)
    for step in range(1, nodes + 2):
        reached = distance[:, None] + losses
        nearest = reached.argmin(axis=0)
        shorter = reached[nearest, every]
        better = shorter < distance
        if not better.any():
            break
        distance = np.where(better, shorter, distance)
        before = np.where(better, nearest, before)
        cycles = _cycles(before.tolist())
        if cycles:
            return cycles, step
    return [], nodes


def _cycles(before: list[int]) -> list[list[int]]:
    """The cycles in a graph in which each node has at most one predecessor, in forward order."""
    seen = [0] * len(before)
    found = []
    for start in range(len(before)):
        node, path = start, []
        while node >= 0 and not seen[node]:
            seen[node] = start + 1
            path.append(node)
            node = before[node]
        if node >= 0 and seen[node] == start + 1 and path:
            found.append(path[path.index(node) :][::-1])
    return found
