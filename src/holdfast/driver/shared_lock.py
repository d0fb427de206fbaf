"""A lock that many may hold together, or one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast import runtime

__all__ = ["SharedLock"]

_AGAIN_S = 0.1


class SharedLock:
    """Held by any number of threads with :meth:`shared`, or by one with :meth:`alone`.

    Whoever wants it alone waits for the others and doesn't keep further ones from sharing it: it is
    for others that come and go, some of whom can't wait.

    >>> lock = SharedLock()
    >>> with lock.shared(), lock.shared():
    ...     pass
    >>> with lock.alone():
    ...     pass
    """

    def __init__(self) -> None:
        self._changed = runtime.condition()
        self._sharing = 0
        self._alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it beside others; waits only for who has it alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, hurry: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold it while nobody else does; ``hurry`` is called now and then as long as others have it."""
        while not self._taken():
            hurry()
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    def _taken(self) -> bool:
        """Whether it was free within a moment, and is had alone now."""
        with self._changed:
            free = self._changed.wait_for(lambda: not self._alone and not self._sharing, _AGAIN_S)
            self._alone = self._alone or free
            return free
