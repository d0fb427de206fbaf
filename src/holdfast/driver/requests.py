"""What the threads of a running pipeline ask of each other and wait for: checkpoints, and steps."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import runtime

__all__ = ["Requests"]


class Requests:
    """One place to wait at; whoever changes what others may be waiting for wakes all of them.

    >>> requests = Requests()
    >>> requests.ask(given_up=lambda: False, timeout=0.0)
    False
    >>> asked = requests.await_asked(lambda: False, None)
    >>> requests.answer(asked)
    >>> requests.await_asked(lambda: False, 0.0) == asked
    True
    """

    def __init__(self) -> None:
        self._changed = runtime.condition()
        self._asked = 0
        self._answered = 0
        self._steps = 0
        self._stepping = False

    def wake(self) -> None:
        """Whoever waits looks again whether there is still something to wait for."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is so; whether it is."""
        with self._changed:
            return self._changed.wait_for(until, timeout)

    # ---- checkpoints

    def ask(self, given_up: Callable[[], bool], timeout: float | None = None) -> bool:
        """Ask for a checkpoint and wait; whether it was taken.

        Those who ask while one is under way are answered together by the next.
        """
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered >= mine or given_up(), timeout)
            return self._answered >= mine

    def ask_again(self, wait_s: float) -> None:
        """See to it that one is under way, and wait a moment."""
        with self._changed:
            if self._answered >= self._asked:
                self._asked += 1
            self._changed.notify_all()
            self._changed.wait(wait_s)

    def await_asked(self, given_up: Callable[[], bool], timeout: float | None) -> int:
        """Wait until somebody asks, or so long; what to answer with."""
        with self._changed:
            self._changed.wait_for(lambda: self._asked > self._answered or given_up(), timeout)
            return self._asked

    def answer(self, asked: int) -> None:
        """All that was asked for up to then is there."""
        with self._changed:
            self._answered = max(self._answered, asked)
            self._changed.notify_all()

    # ---- steps

    def allow_step(self) -> None:
        """Let one more epoch run, with ``trigger="manual"``."""
        with self._changed:
            self._steps += 1
            self._changed.notify_all()

    def take_step_back(self) -> None:
        """No epoch came for it."""
        with self._changed:
            self._steps = max(0, self._steps - 1)

    def forget_steps(self) -> None:
        """Nothing is allowed any more: whoever waits for an epoch allows another."""
        with self._changed:
            self._steps = 0

    def wait_for_step(self, given_up: Callable[[], bool]) -> None:
        """Wait until an epoch is allowed, and use that up."""
        with self._changed:
            self._changed.wait_for(lambda: self._steps > 0 or given_up())
            if not given_up():
                self._steps -= 1
                self._stepping = True

    def step_is_over(self) -> None:
        """The epoch that was allowed has ended, in whatever way."""
        with self._changed:
            self._stepping = False
            self._changed.notify_all()

    def await_no_step(self, given_up: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until no epoch is under way that was allowed; whether none is."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stepping or given_up(), timeout)
            return not self._stepping
