"""Faults at named points: the n-th passage of a failpoint kills, pauses or fails who passes."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from holdfast.testing.simulation.processes import Process

if TYPE_CHECKING:
    from holdfast.testing.simulation.world import World

__all__ = ["Points"]

_ERRORS = {"fail": errno.EIO, "full": errno.ENOSPC}


@dataclass(slots=True)
class _Strike:
    point: str
    action: str | Callable[[], None]
    at: int
    process: Process | None
    for_s: float | None


class Points:
    """The points of a world, how often each was passed, and what is going to strike where."""

    def __init__(self, world: World) -> None:
        """A world has one, ``world.points``."""
        self._world = world
        self._strikes: list[_Strike] = []
        self.passages: Counter[str] = Counter()
        self.by_chance: Callable[[str, Process], str | Callable[[], None] | None] | None = None
        """What strikes at a passage besides, if it is asked and says so."""

    def strike(
        self,
        point: str,
        action: str | Callable[[], None],
        at: int = 1,
        *,
        process: Process | None = None,
        for_s: float | None = None,
    ) -> None:
        """Do something at the ``at``-th passage from now on, of any process or of this one.

        ``kill`` and ``pause`` (``for_s`` seconds, or until somebody resumes it) are done to the
        process that passes, ``fail`` and ``full`` raise ``OSError``, a function is called in its
        thread. ``point`` may be a pattern such as ``log.*``.
        """
        if isinstance(action, str) and action not in ("kill", "pause", *_ERRORS):
            raise ValueError(f"{action!r} is nothing that can strike")
        self._strikes.append(_Strike(point, action, at, process, for_s))

    def passed(self, name: str, *, quietly: bool = False) -> None:
        """A thread passes a point: others may go on first, and what is to strike here does."""
        world = self._world
        self.passages[name] += 1
        if not quietly:
            world.tell(f"passes {name}")
            world.yield_now()
        if world.current is world.outside:
            return
        process = world.current.process
        for strike in self._due(name, process) if self._strikes else ():
            self._do(strike, name, process)
        if not quietly and self.by_chance is not None:
            action = self.by_chance(name, process)
            if action is not None:
                self._do(_Strike(name, action, 1, process, None), name, process)

    def _due(self, name: str, process: Process) -> list[_Strike]:
        """Count this passage; what strikes at it."""
        for strike in self._strikes:
            if strike.process in (None, process) and fnmatchcase(name, strike.point):
                strike.at -= 1
        due = [strike for strike in self._strikes if strike.at <= 0]
        self._strikes = [strike for strike in self._strikes if strike.at > 0]
        return due

    def _do(self, strike: _Strike, name: str, process: Process) -> None:
        world, action = self._world, strike.action
        if not isinstance(action, str):
            action()
            return
        world.tell(f"{action} strikes at {name}")
        if action == "kill":
            process.kill()
        elif action == "pause":
            if strike.for_s is not None:
                world.later(strike.for_s, process.resume)
            process.pause()
        else:
            code = _ERRORS[action]
            raise OSError(code, f"{os.strerror(code)} (simulated, at {name})")
