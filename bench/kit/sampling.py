"""Watching a trial from outside: memory peaks, CPU time, and bytes that reached its checkpoints."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.kit import proc

__all__ = ["Sample", "Sampler", "Written", "group_of"]

_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far, at one instant."""

    at: float
    own_s: dict[str, float]
    """Of the trial's processes, by whose they are."""
    machine_s: float
    """Of everything on this machine."""


@dataclass
class Written:
    """Every object ever seen in a folder, with its greatest size: deleted ones count too."""

    folder: Path
    sizes: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Note what is there now."""
        for base, _, names in os.walk(self.folder):
            for name in names:
                # Files on their way to their name are seen again under it.
                if name.startswith(".") or name.endswith((".tmp", ".crc")):
                    continue
                path = Path(base, name)
                try:
                    size = path.stat().st_size
                except OSError:
                    continue  # deleted meanwhile
                key = str(path.relative_to(self.folder))
                self.sizes[key] = max(size, self.sizes.get(key, 0))

    def total(self, under: str = "") -> int:
        """Bytes of all objects below a folder of this one."""
        return sum(size for name, size in self.sizes.items() if name.startswith(under))


def group_of(process: proc.Process, root: int) -> str:
    """Whose memory it is: the driver's Python, the JVM's or the Python workers'."""
    if process.pid == root:
        return "driver"
    # A child that the JVM has forked for a moment bears the name of a thread and the JVM's size.
    return {"java": "jvm"}.get(process.name, "workers" if "python" in process.name else "other")


class Sampler:
    """A thread that samples a process tree until it is stopped."""

    def __init__(self, root: int, folder: Path) -> None:
        self.peak_rss: dict[str, int] = {}
        self.peak_anonymous: dict[str, int] = {}
        self.written = Written(folder)
        self.samples: list[Sample] = []
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End sampling, after a last look at the folder."""
        self._stop.set()
        self._thread.join()
        self.written.look()

    def cpu_between(self, began: float, ended: float) -> dict[str, float]:
        """CPU seconds in this time: by whose of the trial, and ``others`` of everything else."""
        at = [s.at for s in self.samples]
        if len(at) < 2:
            return {}

        def spent(series: list[float]) -> float:
            return float(np.interp(ended, at, series) - np.interp(began, at, series))

        groups = sorted({group for s in self.samples for group in s.own_s})
        own = {g: spent([s.own_s.get(g, 0.0) for s in self.samples]) for g in groups}
        machine = spent([s.machine_s for s in self.samples])
        return {**own, "others": max(0.0, machine - sum(own.values()))}

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            processes = proc.tree(self._root)
            if not processes:
                return
            own: dict[str, float] = {}
            for process in processes:
                group = group_of(process, self._root)
                own[group] = own.get(group, 0.0) + process.cpu_s
            self.samples.append(Sample(time.time(), own, proc.busy_seconds()))
            self._note_memory(processes)
            self.written.look()

    def _note_memory(self, processes: Iterable[proc.Process]) -> None:
        rss: dict[str, int] = {}
        anonymous: dict[str, int] = {}
        for process in processes:
            group = group_of(process, self._root)
            resident, private = proc.memory_of(process.pid)
            rss[group] = rss.get(group, 0) + resident
            anonymous[group] = anonymous.get(group, 0) + private
        for peaks, now in ((self.peak_rss, rss), (self.peak_anonymous, anonymous)):
            for group, size in now.items():
                peaks[group] = max(size, peaks.get(group, 0))
