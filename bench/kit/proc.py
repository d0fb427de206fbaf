"""What Linux says of processes, read straight from /proc: sampling must not cost what it measures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "busy_seconds", "memory_of", "parse_stat", "tree"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    name: str
    cpu_s: float
    """Its own time and that of children it has waited for."""


def parse_stat(text: str) -> Process:
    """Read /proc/PID/stat.

    >>> parse_stat("7 (a) b) S 3 " + " ".join(str(n) for n in range(5, 40))).parent
    3
    """
    # The name is in brackets and may hold anything, brackets too.
    pid, _, rest = text.partition(" (")
    name, _, rest = rest.rpartition(") ")
    fields = rest.split()
    ticks = sum(int(field) for field in fields[11:15])
    return Process(int(pid), int(fields[1]), name, ticks / _TICKS)


def _table() -> list[Process]:
    found = []
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            try:
                found.append(parse_stat((_PROC / entry.name / "stat").read_text()))
            except (OSError, ValueError):
                continue  # it has ended meanwhile
    return found


def tree(root: int) -> list[Process]:
    """A process and everything below it, parents before children."""
    table = _table()
    children: dict[int, list[Process]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    found = [process for process in table if process.pid == root]
    for process in found:  # grows while we go
        found += children.get(process.pid, [])
    return found


def memory_of(pid: int) -> tuple[int, int]:
    """Resident and anonymous bytes of a process; zeros if it has ended."""
    try:
        text = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0, 0
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            sizes[name] = int(value.split()[0]) * 1024
    return sizes.get("VmRSS", 0), sizes.get("RssAnon", 0)


def busy_seconds() -> float:
    """CPU seconds that the whole machine has spent on anything but idling."""
    fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(f) for f in fields[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS
