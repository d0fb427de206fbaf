"""Storage in this process's memory, for tests and notebooks: gone when the process ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.errors import ConfigurationError
from holdfast.storage.base import (
    Buffer,
    NotFoundError,
    ObjectInfo,
    Storage,
    check_name,
    check_prefix,
    check_range,
    is_safe_part,
)

__all__ = ["MemoryStorage"]


@dataclass(slots=True)
class _Objects:
    lock: threading.Lock = field(default_factory=threading.Lock)
    by_name: dict[str, tuple[bytes, float]] = field(default_factory=dict)


_everything: dict[str, _Objects] = {}


class MemoryStorage(Storage):
    """All ``MemoryStorage`` of one name in a process are the same storage.

    >>> MemoryStorage("docs").put("a/b", b"hello")
    >>> MemoryStorage("docs").get_range("a/b", 1, 3)
    b'ell'
    """

    def __init__(self, name: str) -> None:
        if not is_safe_part(name):
            raise ConfigurationError(
                f"{name!r} can't name a memory storage",
                hint="use letters, digits and ._=+-, as in memory://test-1",
            )
        self.url = f"memory://{name}"
        # setdefault is atomic: two threads that open a new name get the same objects.
        self._objects = _everything.setdefault(name, _Objects())

    def __repr__(self) -> str:
        return f"MemoryStorage({self.url.removeprefix('memory://')!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (MemoryStorage, (self.url.removeprefix("memory://"),))

    def get(self, name: str) -> bytes:
        """The whole object."""
        with self._objects.lock:
            found = self._objects.by_name.get(check_name(name))
        if found is None:
            raise NotFoundError(name)
        return found[0]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` (less at the end of the object)."""
        check_range(start, length)
        return self.get(name)[start : start + length]

    def put(self, name: str, data: Buffer) -> None:
        """Create or replace an object."""
        value = (bytes(data), time.time())
        with self._objects.lock:
            self._objects.by_name[check_name(name)] = value

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Create an object; False if there is one."""
        value = (bytes(data), time.time())
        with self._objects.lock:
            return self._objects.by_name.setdefault(check_name(name), value) is value

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with ``prefix``, in order of name."""
        check_prefix(prefix)
        with self._objects.lock:
            found = [(n, v) for n, v in self._objects.by_name.items() if n.startswith(prefix)]
        return (ObjectInfo(name, len(data), when) for name, (data, when) in sorted(found))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that don't exist are no error."""
        for name in names:
            with self._objects.lock:
                self._objects.by_name.pop(check_name(name), None)

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name."""
        with self._objects.lock:
            return check_name(name) in self._objects.by_name

    def size(self, name: str) -> int:
        """The object's size in bytes."""
        return len(self.get(name))
