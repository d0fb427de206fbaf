"""Named places in the code where a test can make the process die, stop or fail.

Production code calls ``failpoint("log.before_entry")``; that costs one dictionary look-up unless
something is armed. Tests arm points in their own process with :func:`arm`, and in others with the
environment variable ``HOLDFAST_FAILPOINTS="name=action[@n],…"``: at the n-th passage (the first
unless told) ``kill`` sends SIGKILL to the process itself, ``stop`` SIGSTOP, ``fail`` raises
``OSError(EIO)`` and ``full`` ``OSError(ENOSPC)``.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

__all__ = ["arm", "disarm", "failpoint"]

_armed: dict[str, Callable[[], None]] = {}


def failpoint(name: str) -> None:
    """Do what is armed at this point, usually nothing.

    >>> failpoint("nothing.armed.here")
    """
    if _armed and (action := _armed.get(name)) is not None:
        action()


def arm(name: str, action: Callable[[], None] | str, at: int = 1) -> None:
    """Make the ``at``-th passage through point ``name`` run ``action`` (a function or a word above).

    >>> seen = []
    >>> arm("docs.example", lambda: seen.append("passed"), at=2)
    >>> failpoint("docs.example"); failpoint("docs.example"); seen
    ['passed']
    >>> disarm("docs.example")
    """
    act = _ACTIONS[action] if isinstance(action, str) else action
    passages = 0

    def count() -> None:
        nonlocal passages
        passages += 1
        if passages == at:
            act()

    _armed[name] = count


def disarm(name: str | None = None) -> None:
    """Disarm one point, or all of them."""
    if name is None:
        _armed.clear()
    else:
        _armed.pop(name, None)


def _fail(code: int) -> Callable[[], None]:
    def act() -> None:
        raise OSError(code, f"{os.strerror(code)} (failpoint)")

    return act


_ACTIONS: dict[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "fail": _fail(errno.EIO),
    "full": _fail(errno.ENOSPC),
}


def _arm_from_environment(text: str) -> None:
    for part in filter(None, text.split(",")):
        name, _, action = part.partition("=")
        word, _, at = action.partition("@")
        arm(name.strip(), word.strip(), int(at or 1))


_arm_from_environment(os.environ.get("HOLDFAST_FAILPOINTS", ""))
