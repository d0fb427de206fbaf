"""Who lives, asked of Spark by one thread for all that have to know while they work on hosts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError

from holdfast.spark.jvm.hosts import LiveHosts

__all__ = ["HostWatch"]

logger = logging.getLogger("holdfast.cluster")

_POLL_S = 0.1
Listener = Callable[[frozenset[str]], None]


class HostWatch:
    """Looks while somebody listens; asks and tells without a lock."""

    def __init__(self, hosts: LiveHosts) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._listeners: dict[object, Listener] = {}
        self._looks = False

    @contextmanager
    def told(self, listener: Listener) -> Iterator[None]:
        """In here a listener is told, again and again, the names of the hosts that live."""
        key = object()
        with self._lock:
            self._listeners[key] = listener
            begins, self._looks = not self._looks, True
        if begins:
            threading.Thread(target=self._look, name="holdfast-hosts", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                del self._listeners[key]

    def _look(self) -> None:
        while True:
            time.sleep(_POLL_S)
            with self._lock:
                listeners = list(self._listeners.values())
                self._looks = bool(listeners)
            if not listeners:
                return
            try:
                alive = frozenset(host.name for host in self._hosts.hosts())
                for listener in listeners:
                    listener(alive)
            except Py4JError as error:
                # Spark is being stopped, perhaps: the jobs end by themselves then.
                logger.debug("hosts could not be looked at: %s", error)
