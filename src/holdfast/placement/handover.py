"""Handing partitions over between living hosts: when one joins, and when one is drained."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.placement.balance import divide
from holdfast.placement.copies import Copy, Host, by_name, scores
from holdfast.placement.planner import Assignment

__all__ = ["Handover", "plan_handover"]


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition that should run on ``target`` once that has its state."""

    partition: int
    source: str
    target: str
    bytes: int
    """What the target's disk lacks: to be copied ahead, while the source goes on."""


def plan_handover(
    assignments: Sequence[Assignment],
    needs: Sequence[Sequence[Copy]],
    hosts: Sequence[Host],
    *,
    avoid: Collection[str] = (),
    balance: float = 1.0,
    limit: int | None = None,
) -> list[Handover]:
    """The moves that empty the hosts in ``avoid`` and give each other host its share of partitions.

    Of all such sets of moves the one with the fewest bytes to copy. ``balance`` is how far from
    its share (by slots) a host may be: 1.2 leaves alone who has a fifth more or less. At most
    ``limit`` moves are returned: first those off avoided hosts, small ones first. Ask again when
    they are done. Partitions on hosts that are gone are no handover: ``place`` recovers them.

    Once the target has the bytes, give it to ``place`` as the partition's ``previous`` host: there
    it stays, because it then scores as high as the source.

    >>> state = [[Copy(size, hosts=frozenset({"h1"}))] for size in (30, 10, 20)]
    >>> now = [Assignment(p, "h1", 0, 0, 0, 0, "") for p in range(3)]
    >>> plan_handover(now, state, [Host("h1", 2), Host("h2", 2)])
    [Handover(partition=1, source='h1', target='h2', bytes=10)]
    """
    if balance < 1:
        raise ValueError(f"balance is {balance}: not every host can have less than its share")
    known = by_name(hosts)
    index = {host.name: number for number, host in enumerate(known)}
    usable = np.array([host.name not in avoid for host in known], np.bool_)
    running = [a for a in assignments if a.host in index]
    if not usable.any() or not running:
        return []
    source = np.array([index[a.host] for a in running if a.host is not None], np.int64)
    worth = scores([needs[a.partition] for a in running], known)
    # Moving is never a gain in itself: staying is worth as much as any host could be.
    rows = np.arange(len(running))
    worth[rows, source] = np.maximum(worth.max(axis=1), worth[rows, source])
    allowed = np.broadcast_to(usable, worth.shape)
    slots = np.array([host.slots for host in known], np.int64)
    shares = len(running) * (slots * usable) / slots[usable].sum()
    # Few above the upper bound, and few above the lower one: so nobody is left below it.
    bounds = [
        np.array([math.floor(round(share / balance, 9)) for share in shares], np.int64),
        np.array([math.ceil(round(share * balance, 9)) for share in shares], np.int64),
    ]
    target = divide(worth, allowed, bounds, slots, source)
    moves = [
        Handover(
            a.partition, known[old].name, known[new].name, _lacking(needs[a.partition], known[new])
        )
        for a, old, new in zip(running, source.tolist(), target.tolist(), strict=True)
        if old != new
    ]
    moves.sort(key=lambda move: (move.source not in avoid, move.bytes, move.partition))
    return moves if limit is None else moves[: max(0, limit)]


def _lacking(copies: Sequence[Copy], host: Host) -> int:
    return sum(copy.bytes for copy in copies if host.name not in copy.hosts)
