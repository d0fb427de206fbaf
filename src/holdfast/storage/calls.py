"""Threads that are inside a client library, and what becomes of them when the process ends.

A thread whose call hangs can't be ended, and waiting for it at exit could take minutes: so it is a
daemon. But a call into native code that comes back while Python shuts down takes the whole process
with it (SIGABRT, up to Python 3.13). So at exit no new call begins, and those under way are waited
for as long as calls that don't hang take.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

from holdfast.errors import StorageError

__all__ = ["in_thread"]

_EXIT_S = 10.0
_lock = threading.Lock()
_under_way: set[threading.Thread] = set()
_ending = False


def in_thread(call: Callable[[], None]) -> None:
    """Begin a call in a thread of its own, which may be left to its fate.

    >>> called = threading.Event()
    >>> in_thread(called.set)
    >>> called.wait()
    True
    """

    def run() -> None:
        try:
            call()
        finally:
            _under_way.discard(threading.current_thread())

    thread = threading.Thread(target=run, name="holdfast-storage", daemon=True)
    with _lock:
        if _ending:
            raise StorageError("storage is not called any more: the process is ending")
        _under_way.add(thread)
        thread.start()


@atexit.register
def _end() -> None:
    global _ending
    with _lock:
        _ending = True
    deadline = time.monotonic() + _EXIT_S
    for thread in list(_under_way):
        thread.join(max(0.0, deadline - time.monotonic()))
