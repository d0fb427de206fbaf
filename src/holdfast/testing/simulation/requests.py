"""Calls of a simulated storage: requests and answers on their way, and what befalls them.

What was asked is done when it arrives, by the world and not by who asked: a process that is killed
or stopped meanwhile has asked all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import log
from typing import Generic, TypeVar, cast

from holdfast.errors import StorageError
from holdfast.storage import NotFoundError
from holdfast.testing.simulation.store import SimulatedStore, flip_bits

__all__ = ["Request"]

T = TypeVar("T")


class Request(Generic[T]):
    """One call of one thread."""

    __slots__ = (
        "_act",
        "_coin",
        "_details",
        "_error",
        "_fault",
        "_name",
        "_number",
        "_parts",
        "_store",
        "_thread",
        "_value",
        "_verb",
    )

    def __init__(
        self,
        store: SimulatedStore,
        verb: str,
        name: str,
        act: Callable[[], T],
        parts: tuple[Callable[[], None], ...],
    ) -> None:
        """``act`` is what is to be done, all of ``parts`` if it has several."""
        self._store = store
        self._verb, self._name = verb, name
        self._act, self._parts = act, parts
        self._thread = store.world.current
        self._value: T | None = None
        self._error: Exception | None = None
        self._fault = store.faults.decide(verb, name, self._thread.process)
        self._number = store.faults.calls
        self._details: random.Random | None = None
        self._coin = store.delays() < 0.5

    def waits_for_words(self) -> str:
        """What who waits for the answer waits for."""
        return f"the answer to {self._verb} {self._name} of {self._store.url}"

    def answer(self) -> T:
        """Send it, and wait."""
        world = self._store.world
        world.later(self._delay_s(), self._arrive)
        world.wait(self, None)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _delay_s(self) -> float:
        delay_s = -log(1.0 - self._store.delays()) * self._store.latency_s
        if self._fault is not None and self._fault.kind == "slow":
            delay_s += 10 ** self._random().uniform(0.0, 2.0)
        return delay_s

    def _arrive(self) -> None:
        store, process = self._store, self._thread.process
        if not store.reaches(process):
            self._go_unanswered()
        elif process.alive or self._coin:
            self._do()
            store.world.later(self._delay_s(), self._return)

    def _return(self) -> None:
        if self._store.reaches(self._thread.process):
            self._store.world.wake(self._thread)
        else:
            self._go_unanswered()

    def _go_unanswered(self) -> None:
        self._fail("there is no answer")
        world = self._store.world
        world.later(self._store.timeout_s, lambda: world.wake(self._thread))

    def _do(self) -> None:
        kind = self._kind()
        if kind == "full":
            self._fail("no space is left")
        elif kind == "fails":
            self._do_some()
            self._fail("the connection was refused")
        elif kind == "later":
            self._do_some()
            self._store.world.later(10 ** self._random().uniform(-1.0, 3.0), self._do_late)
            self._fail("there was no answer in time")
        else:
            try:
                self._value = self._act()
            except NotFoundError as error:
                self._error = error
            self._tell(_words(self._value) if self._error is None else "not there")
            self._spoil(kind)

    def _kind(self) -> str:
        faults = self._store.faults
        if faults.under_way("outage", self._verb):
            return "lost" if self._coin else "fails"
        if faults.under_way("full", self._verb):
            return "full"
        return "" if self._fault is None else self._fault.kind

    def _spoil(self, kind: str) -> None:
        """What was done is told otherwise."""
        if kind == "lost" and isinstance(self._value, list):
            # A listing may also break off.
            some = self._random().randint(0, len(self._value))
            self._value = cast("T", _Broken(self._value[:some], self._lost()))
        elif kind == "lost":
            self._fail("the connection was closed")
        elif kind == "repeated":
            self._tell("arrives once more")
            self._value = cast("T", False)
        elif kind == "flipped" and isinstance(self._value, bytes):
            self._tell("some bits of the answer are wrong")
            self._value = cast("T", flip_bits(self._value, self._random()))

    def _do_some(self) -> None:
        """Of several parts, some may be done whatever becomes of the others."""
        if len(self._parts) > 1:
            some = [part for part in self._parts if self._random().random() < 0.5]
            self._tell(f"{len(some)} of {len(self._parts)} are done")
            for part in some:
                part()

    def _do_late(self) -> None:
        self._tell("is done late")
        self._store.is_late = True
        try:
            self._act()
        finally:
            self._store.is_late = False

    def _fail(self, why: str) -> None:
        self._error = self._lost(why)
        self._tell(why)

    def _lost(self, why: str = "the connection was closed") -> StorageError:
        return StorageError(
            f"{self._verb} {self._name} on {self._store.url} failed: {why} (simulated)",
            hint="mend the storage and retry",
        )

    def _random(self) -> random.Random:
        if self._details is None:
            self._details = self._store.faults.details(self._number)
        return self._details

    def _tell(self, words: str) -> None:
        self._store.world.tell(f"{self._verb} {self._name}: {words}", self._thread)


class _Broken(list[T]):
    """What of a listing had come when it broke off."""

    def __init__(self, some: list[T], error: StorageError) -> None:
        super().__init__(some)
        self._error = error

    def __iter__(self) -> Iterator[T]:
        yield from super().__iter__()
        raise self._error


def _words(value: object) -> str:
    """An answer, in the trace."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, list):
        return f"{len(value)} objects"
    return "done" if value is None else str(value)
