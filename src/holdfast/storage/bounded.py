"""Calls into a client library that may hang, bounded in time.

A client waits for as long as a cut cable lets it, which can be for ever. Here its call runs in a
thread of its own; when nothing has moved for some seconds, the caller gets a ``TimeoutError`` and
the thread is left to its fate: should its call come back, the next :meth:`Progress.moved` ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.storage.calls import in_thread

__all__ = ["Progress", "bounded"]

T = TypeVar("T")


class Progress:
    """Told by a call whenever something has moved."""

    __slots__ = ("_clock", "_given_up", "_last", "_steps", "_whole")

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, whole: Progress | None = None
    ) -> None:
        self._clock = clock
        self._whole = whole
        self._steps = 0
        self._last = clock()
        self._given_up = False

    def part(self) -> Progress:
        """For one of several calls to the same end: here only what gets furthest has moved."""
        return Progress(clock=self._clock, whole=self)

    def moved(self) -> None:
        """Something has; raises if nobody waits any more."""
        self.reached(self._steps + 1)

    def reached(self, steps: int) -> None:
        """Somebody has moved so often by now."""
        self.check()
        if steps > self._steps:
            self._steps, self._last = steps, self._clock()
        if self._whole is not None:
            self._whole.reached(steps)

    def check(self) -> None:
        """Raise if nobody waits any more."""
        if self._given_up:
            raise TimeoutError("given up")

    def give_up(self) -> None:
        """Nobody waits any more."""
        self._given_up = True

    def idle_s(self) -> float:
        """Seconds since something moved."""
        return self._clock() - self._last


def bounded(call: Callable[[Progress], T], stall_s: float) -> T:
    """What ``call`` returns or raises; ``TimeoutError`` once nothing has moved for ``stall_s``.

    >>> bounded(lambda progress: 6 * 7, stall_s=5)
    42
    """
    progress = Progress()
    done = threading.Event()
    outcome: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call(progress))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)
        finally:
            done.set()

    in_thread(run)
    while not done.wait(max(0.001, stall_s - progress.idle_s())):
        if progress.idle_s() >= stall_s:
            progress.give_up()
            raise TimeoutError(f"no answer for {stall_s:g} s")
    if errors:
        raise errors[0]
    return outcome[0]
