"""What goes wrong with a simulated storage, and when: drawn for every call, or planned.

A call has a number, and what is drawn for it depends on nothing else. So leaving out one fault
(``Faults.only``) leaves the others as they are: that is how a failing course is made short.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from holdfast.testing.simulation.processes import Process

if TYPE_CHECKING:
    from holdfast.testing.simulation.world import World

__all__ = ["FAULTS", "Fault", "Faults", "Rates"]

_READS_BYTES = ("get", "get_range")
_CREATES = ("put", "put_if_absent")
_WRITES = (*_CREATES, "delete")


@dataclass(slots=True)
class Rates:
    """How likely each fault is, per call; by default the seed decides."""

    fails: float = 0.0
    """Nothing is done, and an error raised."""
    lost: float = 0.0
    """It is done, and an error raised."""
    later: float = 0.0
    """Of writes: an error is raised, and it is done up to a quarter of an hour later."""
    slow: float = 0.0
    """It takes seconds or minutes."""
    repeated: float = 0.0
    """Of ``put_if_absent`` of log entries: the request arrives twice, and the second is answered."""
    flipped: float = 0.0
    """Of reads: some bits of the answer are wrong; what is stored is right."""
    full: float = 0.0
    """Of ``put`` and ``put_if_absent``: from now on, for a while, there is no space for more."""
    outage: float = 0.0
    """From now on, for a while, all calls fail, done or not."""


_KINDS = tuple(field.name for field in fields(Rates))
FAULTS = {
    "fails": "a call that does nothing and raises",
    "lost": "a call that is done and raises",
    "later": "a write that raises and is done later",
    "slow": "a call that takes long",
    "repeated": "a request that arrives twice",
    "flipped": "an answer with wrong bits",
    "full": "no space is left for a while",
    "outage": "nothing is answered for a while",
}
"""What each kind is, in a few words."""
_OF = {
    "later": _WRITES,
    "repeated": ("put_if_absent",),
    "flipped": _READS_BYTES,
    "full": _CREATES,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that strikes a call."""

    number: int
    kind: str
    verb: str
    name: str
    when: float

    def __str__(self) -> str:
        return f"fault {self.number} at {self.when:.6f} s: {self.kind}, {self.verb} {self.name}"


@dataclass(slots=True)
class _Plan:
    kind: str
    verb: str
    name: str
    at: int
    process: Process | None


class Faults:
    """The faults of a storage."""

    def __init__(self, world: World, store: str) -> None:
        """A ``SimulatedStore`` has one."""
        self._world = world
        self._store = store
        self._draw = world.random(f"faults/{store}").random
        self._plans: list[_Plan] = []
        self._on = True
        self._until = {"full": 0.0, "outage": 0.0}
        self.calls = 0
        """How many calls there were."""
        self.struck: list[Fault] = []
        """Those that have struck."""
        self.only: frozenset[int] | None = None
        """The numbers of those that may strike, if not all."""
        self.rates = Rates()
        for kind in _KINDS:
            # Half of the kinds never, for some of them hide others.
            often, much = self._draw() < 0.5, self._draw()
            rarer = 1.0 if kind in ("full", "outage", "slow") else 0.0
            setattr(self.rates, kind, 10 ** (-3.0 - rarer + 1.5 * much) if often else 0.0)

    def off(self) -> None:
        """By chance nothing strikes from now on, and what strikes for a while ends.

        What is planned still strikes, and writes that were to be late still come.
        """
        self._on = False
        self._until = {"full": 0.0, "outage": 0.0}

    def on(self) -> None:
        """From now on things strike by chance again."""
        self._on = True

    def plan(
        self,
        kind: str,
        verb: str = "*",
        name: str = "*",
        at: int = 1,
        *,
        process: Process | None = None,
    ) -> None:
        """Have something strike the ``at``-th call from now on that fits these patterns."""
        if kind not in _KINDS:
            raise ValueError(f"{kind!r} is no fault; there are {', '.join(_KINDS)}")
        self._plans.append(_Plan(kind, verb, name, at, process))

    def decide(self, verb: str, name: str, process: Process) -> Fault | None:
        """What strikes this call, if anything."""
        self.calls += 1
        drawn = self._draw()
        kind = self._planned(verb, name, process) if self._plans else None
        if kind is None and self._on and (self.only is None or self.calls in self.only):
            kind = self._drawn(drawn, verb, name)
        if kind is None:
            return None
        fault = Fault(self.calls, kind, verb, name, self._world.now)
        self.struck.append(fault)
        if kind in self._until:
            until = self._world.now + 10 ** self.details(self.calls).uniform(0.0, 2.3)
            self._until[kind] = max(self._until[kind], until)
        return fault

    def details(self, number: int) -> random.Random:
        """What more is to be drawn for the call of this number."""
        return random.Random(f"{self._world.seed}/{self._store}/{number}")  # noqa: S311

    def under_way(self, kind: str, verb: str) -> bool:
        """Whether storage is full, or out, for this."""
        return self._until[kind] > self._world.now and verb in _OF.get(kind, (verb,))

    def _planned(self, verb: str, name: str, process: Process) -> str | None:
        due = []
        for plan in self._plans:
            of_process = plan.process in (None, process)
            if of_process and fnmatchcase(verb, plan.verb) and fnmatchcase(name, plan.name):
                plan.at -= 1
                if plan.at == 0:
                    due.append(plan)
        self._plans = [plan for plan in self._plans if plan.at > 0]
        return due[0].kind if due else None

    def _drawn(self, drawn: float, verb: str, name: str) -> str | None:
        for kind in _KINDS:
            drawn -= getattr(self.rates, kind)
            if drawn < 0:
                fits = verb in _OF.get(kind, (verb,))
                return kind if fits and (kind != "repeated" or name.startswith("log/")) else None
        return None
