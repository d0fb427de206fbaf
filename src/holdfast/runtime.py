"""Clock, waiting, threads, locks, randomness and ids: everything of a driver that isn't a function.

The rooms that decide, commit, delete, recover or move ask for these here and nowhere else
(``tests/test_repository.py``). So the very same code runs on real threads and real time, or on the
simulator's (:mod:`holdfast.testing.simulation`), where a seed decides who goes on when, and an hour
takes a millisecond.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

__all__ = [
    "Condition",
    "Event",
    "Lock",
    "ReentrantLock",
    "Result",
    "Runtime",
    "Thread",
    "ahead",
    "beside",
    "condition",
    "current_thread",
    "each",
    "event",
    "file_lock",
    "hold",
    "lock",
    "monotonic",
    "new_id",
    "now_ms",
    "rlock",
    "running_on",
    "sleep",
    "thread",
    "whoami",
]

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
U = TypeVar("U")


class ReentrantLock(Protocol):
    """Held by one thread, as often as it likes."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; whether it was to be had."""

    def release(self) -> None:
        """Give it back."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error: Any) -> None: ...


class Lock(ReentrantLock, Protocol):
    """Held by one thread, once."""

    def locked(self) -> bool:
        """Whether somebody holds it."""


class Event(Protocol):
    """Something that has happened or not."""

    def is_set(self) -> bool:
        """Whether it has."""

    def set(self) -> None:
        """It has."""

    def clear(self) -> None:
        """It has not, after all."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, so long at most; whether it has happened."""


class Condition(Protocol):
    """A lock, and a place to wait at for what others change while they hold it."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error: Any) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody says that something has changed."""

    def wait_for(self, predicate: Callable[[], U], timeout: float | None = None) -> U:
        """Wait until it is so, so long at most; whether it is."""

    def notify_all(self) -> None:
        """Something has changed."""


class Thread(Protocol):
    """Goes on by itself once it is started, and doesn't keep the process from ending."""

    def start(self) -> None:
        """Go on."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, so long at most."""

    def is_alive(self) -> bool:
        """Whether it has begun and not ended."""


class Result(Protocol[R_co]):
    """What a function that was called beside others comes to."""

    def result(self) -> R_co:
        """Wait for it."""


class Runtime:
    """The real one."""

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since 1970, by a clock that somebody may set."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Do nothing for a while."""
        time.sleep(seconds)

    def lock(self) -> Lock:
        """A lock."""
        return threading.Lock()

    def rlock(self) -> ReentrantLock:
        """A lock that whoever has it may take again."""
        return threading.RLock()

    def condition(self) -> Condition:
        """A place to wait at."""
        return threading.Condition()

    def event(self) -> Event:
        """An event that has not happened."""
        return threading.Event()

    def thread(self, target: Callable[[], object], name: str) -> Thread:
        """A thread that has not begun."""
        return threading.Thread(target=target, daemon=True, name=name)

    def current_thread(self) -> object:
        """The thread that asks."""
        return threading.current_thread()

    def new_id(self) -> str:
        """Sixteen hexadecimal digits that nobody else gets."""
        return secrets.token_hex(8)

    def whoami(self) -> str:
        """This process, as people find it."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def each(self, function: Callable[[T], U], items: Iterable[T], at_once: int) -> list[U]:
        """What a function says of each item, some at once; raises what the first of them raises."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(function, items))

    def ahead(self, function: Callable[[T], U], items: Iterable[T], at_once: int) -> Iterator[U]:
        """The same one by one, the next ones being worked on meanwhile, and no more of them."""
        coming: deque[Future[U]] = deque()
        with ThreadPoolExecutor(at_once) as pool:
            try:
                for item in items:
                    coming.append(pool.submit(function, item))
                    if len(coming) > at_once:
                        yield coming.popleft().result()
                while coming:
                    yield coming.popleft().result()
            finally:
                for late in coming:
                    late.cancel()

    @contextmanager
    def file_lock(self, path: Path) -> Iterator[None]:
        """Hold a file's lock, also against other processes of this host."""
        with path.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def hold(self, folder: Path, *, wait: bool) -> Callable[[], None] | None:
        """Lock a folder until the process ends or calls what this gives; see :func:`hold`."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(folder, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return partial(os.close, descriptor)

    @contextmanager
    def beside(self, function: Callable[[], T]) -> Iterator[Result[T]]:
        """Have a function called beside the block, which doesn't end before it."""
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(function)


_current = Runtime()


@contextmanager
def running_on(runtime: Runtime) -> Iterator[None]:
    """Everything in this process runs on another runtime until the block ends.

    >>> class Sundial(Runtime):
    ...     def monotonic(self):
    ...         return 12.0
    >>> with running_on(Sundial()):
    ...     monotonic()
    12.0
    """
    global _current
    before, _current = _current, runtime
    try:
        yield
    finally:
        _current = before


def monotonic() -> float:
    """Seconds that only ever grow."""
    return _current.monotonic()


def now_ms() -> int:
    """Milliseconds since 1970, by a clock that somebody may set."""
    return _current.now_ms()


def sleep(seconds: float) -> None:
    """Do nothing for a while."""
    _current.sleep(seconds)


def lock() -> Lock:
    """A lock."""
    return _current.lock()


def rlock() -> ReentrantLock:
    """A lock that whoever has it may take again."""
    return _current.rlock()


def condition() -> Condition:
    """A place to wait at."""
    return _current.condition()


def event() -> Event:
    """An event that has not happened."""
    return _current.event()


def thread(target: Callable[[], object], name: str) -> Thread:
    """A thread that has not begun."""
    return _current.thread(target, name)


def current_thread() -> object:
    """The thread that asks."""
    return _current.current_thread()


def new_id() -> str:
    """Sixteen hexadecimal digits that nobody else gets."""
    return _current.new_id()


def whoami() -> str:
    """This process, as people find it."""
    return _current.whoami()


def each(function: Callable[[T], U], items: Iterable[T], at_once: int) -> list[U]:
    """What a function says of each item, some at once; raises what the first of them raises.

    >>> each(str.upper, ["a", "b"], at_once=2)
    ['A', 'B']
    """
    return _current.each(function, items, at_once)


def ahead(function: Callable[[T], U], items: Iterable[T], at_once: int) -> Iterator[U]:
    """The same one by one, the next ones being worked on meanwhile, and no more of them.

    >>> list(ahead(str.upper, iter("abc"), at_once=2))
    ['A', 'B', 'C']
    """
    return _current.ahead(function, items, at_once)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a file's lock, also against other processes of this host; the file is made if need be."""
    with _current.file_lock(path):
        yield


def hold(folder: Path, *, wait: bool) -> Callable[[], None] | None:
    """Lock a folder until this process ends, or calls what this gives.

    None if another process of this host has it, unless it is waited for.
    """
    return _current.hold(folder, wait=wait)


@contextmanager
def beside(function: Callable[[], T]) -> Iterator[Result[T]]:
    """Have a function called beside the block, which doesn't end before it.

    >>> with beside(lambda: 6 * 7) as answer:
    ...     pass
    >>> answer.result()
    42
    """
    with _current.beside(function) as result:
        yield result
