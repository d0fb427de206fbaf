"""Storage as a simulated process sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from holdfast.errors import StorageError
from holdfast.storage import NotFoundError, ObjectInfo, Storage, open_storage
from holdfast.storage.base import Buffer, check_name, check_prefix, check_range
from holdfast.testing.simulation.processes import Process
from holdfast.testing.simulation.requests import Request
from holdfast.testing.simulation.store import SimulatedStore

__all__ = ["SimulatedStorage"]

T = TypeVar("T")


class SimulatedStorage(Storage):
    """A ``SimulatedStore`` as seen by the process whose thread calls it.

    Outside of all threads of the world every call is done at once, and nothing goes wrong.
    """

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self.url = store.url
        self._store = store
        self._process = process

    def __repr__(self) -> str:
        return f"SimulatedStorage({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (open_storage, (self.url,))

    def get(self, name: str) -> bytes:
        """The whole object."""
        return self._ask("get", check_name(name), partial(self._store.get, name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` (less at the end of the object)."""
        check_range(start, length)
        read = partial(self._store.get, check_name(name))
        return self._ask("get_range", name, lambda: read()[start : start + length])

    def put(self, name: str, data: Buffer) -> None:
        """Create or replace an object."""
        act = partial(self._store.put, check_name(name), bytes(data), self._caller())
        self._ask("put", name, act)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Create an object; False if there is one."""
        act = partial(self._store.put_if_absent, check_name(name), bytes(data), self._caller())
        return self._ask("put_if_absent", name, act)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with ``prefix``, in order of name."""
        act = partial(self._store.list, check_prefix(prefix))
        return iter(self._ask("list", prefix, act))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that don't exist are no error. One that fails may have done a part."""
        wanted = tuple(map(check_name, names))
        if wanted:
            delete, process, shown = self._store.delete, self._caller(), self._store.shown()
            parts = tuple(partial(delete, (name,), process, shown) for name in wanted)
            act = partial(delete, wanted, process, shown)
            self._ask("delete", " ".join(wanted), act, parts)

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name."""
        check_name(name)
        return self._ask("exists", name, lambda: name in self._store.objects)

    def size(self, name: str) -> int:
        """The object's size in bytes."""
        read = partial(self._store.get, check_name(name))
        return self._ask("size", name, lambda: len(read()))

    def locations(self, name: str) -> tuple[str, ...]:
        """The hosts that keep the object, if it is that kind of storage."""
        if not self._store.hosts:
            return ()
        act = partial(self._store.locations, check_name(name))
        try:
            return self._ask("locations", name, act)
        except (StorageError, NotFoundError):
            # As HDFS's: where something is is a matter of speed.
            return ()

    def sweep(self, older_than_s: float) -> int:
        """Nothing is ever left behind."""
        del older_than_s
        return self._ask("sweep", "", lambda: 0)

    def _caller(self) -> Process:
        world = self._store.world
        return self._process if world.current is world.outside else world.current.process

    def _ask(
        self,
        verb: str,
        name: str,
        act: Callable[[], T],
        parts: tuple[Callable[[], None], ...] = (),
    ) -> T:
        store, world = self._store, self._store.world
        if world.closed:
            world.refuse()
        if world.current is world.outside:
            with store.mutex:
                return act()
        world.points.passed(f"storage.{verb}", quietly=True)
        store.asks(verb, name)
        answer = Request(store, verb, name, act, parts).answer()
        store.answered(verb, name, answer)
        world.points.passed(f"storage.{verb}.answered", quietly=True)
        return answer
