"""What runs on a host: found by network namespace, so nothing else can be meant by mistake."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

from bench.services.daemon import wait_until

__all__ = ["commands_in", "descendants", "kill", "kill_all"]

_NAMESPACES = Path("/run/netns")


def commands_in(namespace: str) -> dict[int, str]:
    """The processes in a network namespace: id and command line."""
    try:
        wanted = (_NAMESPACES / namespace).stat()
    except FileNotFoundError:
        return {}
    return {pid: _command(pid) for pid in _processes() if _is_in(pid, wanted)}


def _processes() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())  # noqa: PTH208


def _is_in(pid: int, namespace: os.stat_result) -> bool:
    try:
        its = os.stat(f"/proc/{pid}/ns/net")  # noqa: PTH116
    except OSError:  # gone, or waiting for its parent to look: it runs nowhere any more
        return False
    return (its.st_dev, its.st_ino) == (namespace.st_dev, namespace.st_ino)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def descendants(pids: Collection[int]) -> list[int]:
    """These processes, their children, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for pid in _processes():
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        # The name in brackets may hold anything; the parent is the second field behind it.
        children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(pid)
    found = list(pids)
    for pid in found:  # grows as it is walked
        found += children.get(pid, [])
    return found


def kill(pids: Collection[int]) -> None:
    """SIGKILL, whatever of them is still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def kill_all(namespace: str, within_s: float = 30) -> None:
    """End every process of a host, also those that are being started meanwhile."""

    def emptied() -> bool:
        pids = commands_in(namespace)
        kill(pids)
        return not pids

    wait_until(emptied, f"the end of all processes in {namespace}", within_s)
