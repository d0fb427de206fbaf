"""The small storage interface that every back end implements.

Object names are relative, ``/``-separated paths of safe characters (checked by :func:`check_name`).
An object is complete when it is visible and never changes afterwards: there is no append and no
rename. That is what object stores (conditional put) and HDFS (temporary file, close, rename
without overwriting) can both promise.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import msgspec

from holdfast.errors import InputError

__all__ = [
    "Buffer",
    "NotFoundError",
    "ObjectInfo",
    "Storage",
    "check_name",
    "check_prefix",
    "check_range",
    "is_safe_name",
    "is_safe_part",
]

Buffer = bytes | bytearray | memoryview

_SAFE_PART = re.compile(r"[A-Za-z0-9_=][A-Za-z0-9_.=+-]{0,199}")
_KNOWN_NAMES = 1 << 12


class NotFoundError(KeyError):
    """There is no object of that name."""


class ObjectInfo(msgspec.Struct, frozen=True):
    """An object's name, size and time of last change (seconds since 1970)."""

    name: str
    size_bytes: int
    modified: float


def check_name(name: str) -> str:
    """Return ``name`` if it is a safe relative object name, else raise ``InputError``.

    >>> check_name("log/00000000000000000007.json")
    'log/00000000000000000007.json'
    """
    if not is_safe_name(name):
        raise InputError(
            f"{name!r} is not a valid object name",
            hint="use letters, digits and ._=+- in parts separated by /",
        )
    return name


def is_safe_part(part: str) -> bool:
    """Whether this may stand between the slashes of an object name.

    >>> is_safe_part("7-3f9a.parquet"), is_safe_part(".tmp"), is_safe_part("")
    (True, False, False)
    """
    return _SAFE_PART.fullmatch(part) is not None


@lru_cache(_KNOWN_NAMES)
def is_safe_name(name: str) -> bool:
    """Whether an object can have this name: entries name the same ones again and again.

    >>> is_safe_name("runs/7-3f9a.parquet"), is_safe_name("runs/../log")
    (True, False)
    """
    return all(map(is_safe_part, name.split("/")))


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if names can begin with it, else raise ``InputError``.

    >>> check_prefix("log/000")
    'log/000'
    """
    check_name(prefix + "x" if not prefix or prefix.endswith("/") else prefix)
    return prefix


def check_range(start: int, length: int) -> None:
    """Raise ``InputError`` unless this describes a range of bytes."""
    if start < 0 or length < 0:
        raise InputError(
            f"no object has a range of {length} bytes from {start}",
            hint="ask for a start and a length that are not negative",
        )


class Storage(ABC):
    """Where checkpoints live. Safe to use from several threads; cheap to pickle (it reconnects).

    What can't be done raises ``StorageError``. A write that raises may or may not have happened
    (its reply may be lost), and may happen later still, but never in part: whoever must know reads
    the object back. A name must not also be the folder of another (``a`` and ``a/b``): back ends
    may refuse that.
    """

    url: str
    """What :func:`holdfast.storage.open_storage` would open again."""
    packages: ClassVar[Mapping[str, tuple[int, ...]]] = MappingProxyType({})
    """Python packages that whoever uses it needs besides Holdfast's own, and their lowest versions."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The whole object; ``NotFoundError`` if there is none."""

    @abstractmethod
    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` (less at the end of the object)."""

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """``get_range`` of one object that is never replaced, so that where it is need be asked only once.

        >>> from holdfast.storage import MemoryStorage
        >>> storage = MemoryStorage("reader")
        >>> storage.put("runs/a", b"abcdef")
        >>> storage.reader("runs/a")(2, 3)
        b'cde'
        """
        return lambda start, length: self.get_range(name, start, length)

    @abstractmethod
    def put(self, name: str, data: Buffer) -> None:
        """Create or replace an object; durable and complete when this returns."""

    @abstractmethod
    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Create an object; False, changing nothing, if there is one. Exactly one racer wins."""

    def create(self, name: str, data: Buffer) -> bool:
        """The same, without a look whether there is one: refusing is left to where objects are kept.

        A back end whose ``put_if_absent`` looks first has one of its own, for a look hides a server
        that doesn't refuse.
        """
        return self.put_if_absent(name, data)

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with ``prefix``, in order of name. Never half-written ones."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that don't exist are no error."""

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name."""
        try:
            self.size(name)
        except NotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        """The object's size in bytes; ``NotFoundError`` if there is none."""
        for info in self.list(name):
            if info.name == name:
                return info.size_bytes
        raise NotFoundError(name)

    def expect_faults(self, seconds: float) -> None:
        """Hosts were lost just now: for so long, requests may meet some that are dead.

        Others of the same storage know it too, in this process and wherever they are sent to. By
        default nothing follows from it.
        """
        del seconds

    def locations(self, name: str) -> tuple[str, ...]:
        """The hosts that can read the object without the network; none if that means nothing.

        None too if nobody can tell, or there is no such object: where something runs is a matter of speed.
        """
        del name
        return ()

    def sweep(self, older_than_s: float) -> int:
        """Remove what writers that died left behind (never visible objects); how many."""
        del older_than_s
        return 0
