"""Why a partition runs where it does, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.placement.copies import BytesByTier, Copy

__all__ = ["Situation", "amount", "reason"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Situation:
    """What the planner knew of the hosts when it placed a partition."""

    live: frozenset[str]
    usable: frozenset[str]
    """Live, and not to be avoided (all of them, if all are)."""
    avoided: Mapping[str, str]
    """Why each host that is to be avoided is; empty if nobody said."""
    full: frozenset[str]
    """Hosts that got as many partitions as the balance limit allows."""
    bound: frozenset[str]
    """Hosts to which state that isn't stored binds the partition."""
    previous: str | None


def amount(size_bytes: int) -> str:
    """Bytes in binary units.

    >>> amount(0), amount(2047), amount(50 * 2**20)
    ('0 B', '2.0 KiB', '50.0 MiB')
    """
    unit = _unit(size_bytes)
    return f"{_number(size_bytes, unit)} {_UNITS[unit]}"


def reason(
    copies: Iterable[Copy], host: str | None, read: BytesByTier, situation: Situation
) -> str:
    """Why a partition that reads ``read`` on ``host`` was placed there."""
    copies = tuple(copies)
    if host is None:
        parts = ["no host is known"]
    else:
        parts = [_what_is_near(read, host, situation)]
        parts += _what_binds(copies, host, situation)
        parts += _who_had_more(copies, host, read, situation)
    if read.stranded:
        parts.append(f"{amount(read.stranded)} not yet stored have to be copied from other hosts")
    if read.lost:
        parts.append(f"{_part(read.lost, read.total)} are lost: on no live host, and never stored")
    return "; ".join(parts)


def _what_is_near(read: BytesByTier, host: str, situation: Situation) -> str:
    if not read.total:
        stays = host == situation.previous
        return "nothing to read, " + ("stays where it was" if stays else "fewest partitions")
    near = []
    if read.local:
        near.append(f"{_part(read.local, read.total)} are on its disk")
    if read.replica:
        part = _part(read.replica, read.total).removeprefix("all ")
        near.append(f"replica of {part} in HDFS")
    if not near and not read.remote:
        return "nothing is left to read"
    return ", ".join(near) or f"{_part(read.remote, read.total)} come over the network"


def _what_binds(copies: Iterable[Copy], host: str, situation: Situation) -> list[str]:
    if host not in situation.bound:
        return []
    unsaved = sum(copy.bytes for copy in copies if not copy.stored and host in copy.hosts)
    only = "only here" if len(situation.bound) == 1 else "only here and on few others"
    though = "" if host in situation.usable else f", though it is {_avoided(host, situation)}"
    return [f"{amount(unsaved)} of it, not yet stored, are {only}{though}"]


def _who_had_more(
    copies: Iterable[Copy], host: str, read: BytesByTier, situation: Situation
) -> list[str]:
    """Who has more of it on disk than the chosen host, and why it wasn't chosen."""
    if read.local == read.total:
        return []
    held: dict[str, int] = {}
    for copy in copies:
        for name in copy.hosts:
            held[name] = held.get(name, 0) + copy.bytes
    best = max(sorted(held), key=lambda name: held[name], default=host)
    if held.get(best, 0) <= read.local:
        return []
    if best not in situation.live:
        return [f"{best}, which had {_it(held[best], read)} on disk, is gone"]
    if best not in situation.usable:
        why = _avoided(best, situation)
        return [f"{best}, which has {_it(held[best], read)} on disk, is {why}"]
    if best in situation.full:
        return [f"{best}, which has {_it(held[best], read)} on disk, has its share of partitions"]
    return []


def _avoided(host: str, situation: Situation) -> str:
    why = situation.avoided.get(host)
    return f"to be avoided ({why})" if why else "to be avoided"


def _it(held: int, read: BytesByTier) -> str:
    return "it" if held == read.total else f"{amount(held)} of it"


def _part(part: int, whole: int) -> str:
    if part == whole:
        return f"all {amount(whole)}"
    unit = _unit(whole)
    if _number(part, unit) in ("0.0", _number(whole, unit)):
        return f"{amount(part)} of {amount(whole)}"
    return f"{_number(part, unit)} of {_number(whole, unit)} {_UNITS[unit]}"


def _unit(size_bytes: int) -> int:
    return min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)


def _number(size_bytes: int, unit: int) -> str:
    return f"{size_bytes / 1024**unit:.1f}" if unit else str(size_bytes)
