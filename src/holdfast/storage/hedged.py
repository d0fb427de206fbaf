"""A call that is repeated beside itself while it doesn't move: the first that is done counts.

After the loss of a host a call may have met that host, and another one made now may meet others.
Waiting until the first is given up would cost that time for every object.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from holdfast.storage.bounded import Progress
from holdfast.storage.calls import in_thread

__all__ = ["hedged"]

T = TypeVar("T")

_MOST = 6  # under way: the same trouble six times over is not one host's


class _Attempt(Generic[T]):
    """The call in a thread of its own; puts itself into ``done`` when it ends."""

    def __init__(
        self,
        call: Callable[[Progress], T],
        progress: Progress,
        done: SimpleQueue[_Attempt[T]],
    ) -> None:
        self.progress = progress
        self.result: list[T] = []
        self.error: BaseException | None = None
        self._call = call
        self._done = done
        in_thread(self._run)

    def _run(self) -> None:
        try:
            self.result.append(self._call(self.progress))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        self._done.put(self)


def hedged(
    call: Callable[[Progress], T],
    progress: Progress,
    stagger_s: float,
    is_final: Callable[[BaseException], bool],
) -> T:
    """What the first attempt at ``call`` that succeeds returns; the others are given up.

    Another attempt starts when nothing has moved in any for ``stagger_s``, or when all have failed.
    Six may do so at that pace; after that each waits longer than the one before and takes the
    oldest one's place, so that a storage in trouble is not flooded. Raises an error that
    ``is_final`` at once, the last of others when six or more have failed, and ``TimeoutError`` when
    ``progress`` was given up: whoever made that decides how long all of this may take.

    >>> hedged(lambda _: 6 * 7, Progress(), stagger_s=5, is_final=lambda _: True)
    42
    """
    done: SimpleQueue[_Attempt[T]] = SimpleQueue()
    under_way: list[_Attempt[T]] = []
    try:
        for started in itertools.count(1):
            progress.check()
            newest = _Attempt(call, progress.part(), done)
            under_way.append(newest)
            if len(under_way) > _MOST:
                under_way.pop(0).progress.give_up()
            pause_s = stagger_s * max(1, started / _MOST)
            while ended := _next(done, [newest, *under_way], pause_s):
                if ended.error is None:
                    return ended.result[0]
                if ended not in under_way:
                    continue
                under_way.remove(ended)
                if is_final(ended.error) or (started >= _MOST and not under_way):
                    raise ended.error
                if not under_way:
                    break
        raise AssertionError("never left but by return or raise")
    finally:
        for attempt in under_way:
            attempt.progress.give_up()


def _next(
    done: SimpleQueue[_Attempt[T]], under_way: list[_Attempt[T]], pause_s: float
) -> _Attempt[T] | None:
    """The next attempt that ends; None once nothing has moved in any for ``pause_s``."""
    while (left_s := pause_s - min(each.progress.idle_s() for each in under_way)) > 0:
        with contextlib.suppress(Empty):
            return done.get(timeout=left_s)
    return None
