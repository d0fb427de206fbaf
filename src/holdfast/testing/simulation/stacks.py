"""Where the threads of a world stand, for people."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from holdfast.testing.simulation.processes import Process, SimulatedThread

__all__ = ["standing"]

_MOST_FRAMES = 4
_HERE = str(Path(__file__).parent)
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]


def standing(processes: list[Process]) -> str:
    """Every thread of living processes, what it waits for, and where."""
    lines = []
    for process in processes:
        if not process.alive:
            lines.append(f"{process.label} is dead")
            continue
        for thread in process.threads.values():
            lines.append(f"{thread!r} {_waits(thread)}")
            lines += [f"    {frame}" for frame in _frames(thread)]
    return "\n".join(lines or ["there are no threads"])


def _waits(thread: SimulatedThread) -> str:
    stopped = " (its process is paused)" if thread.process.paused else ""
    what = thread.waits_for
    if not thread.blocked or what is None:
        return f"could go on{stopped}"
    words = what if isinstance(what, str) else getattr(what, "waits_for_words", what.__repr__)()
    return f"waits for {words}{stopped}"


def _frames(thread: SimulatedThread) -> Iterator[str]:
    """The innermost frames of the code under test."""
    frame: FrameType | None = thread.greenlet.gr_frame if thread.greenlet is not None else None
    shown = 0
    while frame is not None and shown < _MOST_FRAMES:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith((_HERE, _STANDARD_LIBRARY, "<")):
            source = linecache.getline(file, line).strip()
            yield f"{Path(file).name}:{line} in {frame.f_code.co_name}: {source}"
            shown += 1
        frame = frame.f_back
