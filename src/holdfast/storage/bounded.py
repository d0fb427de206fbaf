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

__all__ = ["Progress", "bounded"]

T = TypeVar("T")


class Progress:
    """Told by a call whenever something has moved."""

    __slots__ = ("_given_up", "_last")

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._given_up = False

    def moved(self) -> None:
        """Something has; raises if nobody waits any more."""
        if self._given_up:
            raise TimeoutError("given up")
        self._last = time.monotonic()

    def give_up(self) -> None:
        """Nobody waits any more."""
        self._given_up = True

    def idle_s(self) -> float:
        """Seconds since something moved."""
        return time.monotonic() - self._last


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

    threading.Thread(target=run, name="holdfast-storage", daemon=True).start()
    while not done.wait(max(0.001, stall_s - progress.idle_s())):
        if progress.idle_s() >= stall_s:
            progress.give_up()
            raise TimeoutError(f"no answer for {stall_s:g} s")
    if errors:
        raise errors[0]
    return outcome[0]
