"""One thread looks who lives, for all who listen, and only while they do."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from py4j.protocol import Py4JError

from holdfast.spark.cluster.host_watch import HostWatch

LONG_S = 60.0


class Hosts:
    """Asked by whom, and who lives; the first answer is that Spark can't be asked."""

    def __init__(self) -> None:
        self.alive = ["h1", "h2"]
        self.askers: set[str] = set()
        self.failed = False

    def hosts(self) -> list[Any]:
        self.askers.add(str(threading.get_ident()))
        if not self.failed:
            self.failed = True
            raise Py4JError("Spark can't be asked just now")
        return [SimpleNamespace(name=name) for name in self.alive]


def test_all_who_listen_are_told_by_one_thread_who_lives() -> None:
    hosts = Hosts()
    watch = HostWatch(cast(Any, hosts))
    whole, less = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]

    def listener(number: int) -> Any:
        def told(alive: frozenset[str]) -> None:
            (whole if alive == {"h1", "h2"} else less)[number].set()

        return told

    with watch.told(listener(0)), watch.told(listener(1)):
        assert all(event.wait(LONG_S) for event in whole)
        hosts.alive = ["h1"]
        assert all(event.wait(LONG_S) for event in less)
    assert len(hosts.askers) == 1


def test_who_listens_after_others_have_gone_is_told_too() -> None:
    hosts = Hosts()
    watch = HostWatch(cast(Any, hosts))
    for _ in range(2):
        told = threading.Event()
        with watch.told(lambda _, told=told: told.set()):  # type: ignore[misc]
            assert told.wait(LONG_S)
