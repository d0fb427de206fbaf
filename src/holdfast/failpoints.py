"""Named places in the code where a test can make the process die, stop or fail.

Production code calls ``failpoint("log.before_entry")``; that costs one look at a flag unless
something is armed or watches. Tests arm points in their own process with :func:`arm`, and in others with the
environment variable ``HOLDFAST_FAILPOINTS="name=action[@n],…"``: at the n-th passage (the first
unless told) ``kill`` sends SIGKILL to the process itself, ``stop`` SIGSTOP, ``fail`` raises
``OSError(EIO)`` and ``full`` ``OSError(ENOSPC)``. The simulator
(:mod:`holdfast.testing.simulation`) watches all passages, to do the like to simulated processes.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

__all__ = ["arm", "disarm", "failpoint", "watch"]

_armed: dict[str, Callable[[], None]] = {}
_watcher: Callable[[str], None] | None = None
# Whether anything is armed or watches: all that a passage looks at in production.
_heeded = False


def failpoint(name: str) -> None:
    """Do what is armed at this point, usually nothing.

    >>> failpoint("nothing.armed.here")
    """
    if _heeded:
        _heed(name)


def _heed(name: str) -> None:
    if _watcher is not None:
        _watcher(name)
    if (action := _armed.get(name)) is not None:
        action()


def watch(watcher: Callable[[str], None] | None) -> None:
    """Tell this of every passage through any point, before what is armed there; None: nobody.

    >>> seen = []
    >>> watch(seen.append)
    >>> failpoint("docs.watched"); failpoint("docs.other"); seen
    ['docs.watched', 'docs.other']
    >>> watch(None)
    """
    global _watcher, _heeded
    _watcher = watcher
    _heeded = bool(_armed) or watcher is not None


def arm(name: str, action: Callable[[], None] | str, at: int = 1) -> None:
    """Make the ``at``-th passage through point ``name`` run ``action`` (a function or a word above).

    >>> seen = []
    >>> arm("docs.example", lambda: seen.append("passed"), at=2)
    >>> failpoint("docs.example"); failpoint("docs.example"); seen
    ['passed']
    >>> disarm("docs.example")
    """
    global _heeded
    act = _ACTIONS[action] if isinstance(action, str) else action
    passages = 0

    def count() -> None:
        nonlocal passages
        passages += 1
        if passages == at:
            act()

    _armed[name] = count
    _heeded = True


def disarm(name: str | None = None) -> None:
    """Disarm one point, or all of them."""
    global _heeded
    if name is None:
        _armed.clear()
    else:
        _armed.pop(name, None)
    _heeded = bool(_armed) or _watcher is not None


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
