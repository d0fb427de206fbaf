"""What a log entry keeps of an operator in words, and whether operators have changed places.

Only the first part, what an operator computes, must be the same after a restart. The rest tells
operators without a name apart, which are called by their kind and place in the program: if each of
two looks like what the entry has under the other's name, the state would go to the wrong one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import TYPE_CHECKING

import xxhash

from holdfast.operators.given import given_to

if TYPE_CHECKING:
    from holdfast.operators.base import Operator

__all__ = ["Description", "digest", "find_alike", "find_moved"]

_MARKS = ("  state ", "  code ", "  given ", "  reads ")
_DEEPEST = 8
_PLAIN = (str, bytes, int, float, bool)


@dataclass(frozen=True, slots=True)
class Description:
    """An operator in words.

    >>> words = str(Description("process by user: string", ("total: value double",), "1f", reads="2e"))
    >>> print(words)
    process by user: string
      state total: value double
      code 1f
      reads 2e
    >>> Description.parse(words).states
    ('total: value double',)
    """

    what: str
    """What it computes: a restart must bring the same."""
    states: tuple[str, ...] = ()
    """The states that user code declares, which may come and go."""
    code: str = ""
    """A digest of the user's code that it runs; empty if it runs none, or nobody noted it."""
    given: str = ""
    """A digest of the functions and objects that this code was given; empty if nobody noted it."""
    reads: str = ""
    """A digest of what it reads; empty if nobody noted it."""

    @classmethod
    def of(cls, operator: Operator) -> Description:
        """That of an operator, wherever it stands."""
        states = tuple(" ".join(state.splitlines()) for state in operator.describe_states())
        return cls(operator.describe(), states, _code(operator.code), given_to(operator.code))

    @classmethod
    def parse(cls, words: str) -> Description:
        """That of a log entry, also of one in which only what an operator computes is noted."""
        lines = words.split("\n")
        rest: dict[str, list[str]] = {mark: [] for mark in _MARKS}
        while len(lines) > 1 and (mark := _mark(lines[-1])) is not None:
            rest[mark].insert(0, lines.pop()[len(mark) :])
        states, *digests = rest.values()
        return cls("\n".join(lines), tuple(states), *map("".join, digests))

    def reading(self, reads: str) -> Description:
        """The same, with what it reads."""
        return replace(self, reads=reads)

    def __str__(self) -> str:
        lines = [self.what, *(f"  state {state}" for state in self.states)]
        for name, value in (("code", self.code), ("given", self.given), ("reads", self.reads)):
            lines += [f"  {name} {value}"] if value else []
        return "\n".join(lines)

    def shared(self, other: Description | None) -> frozenset[str]:
        """What it has in common with another, of what tells operators apart."""
        if other is None or other.what != self.what:
            return frozenset()
        names = ("states", "code", "given", "reads")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return frozenset(name for name, mine, theirs in pairs if mine and mine == theirs)


def _mark(line: str) -> str | None:
    return next((mark for mark in _MARKS if line.startswith(mark)), None)


def find_moved(
    before: Mapping[str, Description], now: Mapping[str, Description], unnamed: Collection[str]
) -> tuple[str, str] | None:
    """An operator of an entry that the program has under another name: the old one and the new.

    ``unnamed`` are those that got their name from their place. Only what an operator shares with
    more reason with another than with its namesake counts: code, what it was given, input and states may all change.
    """
    for old, then in before.items():
        if old in now and old not in unnamed:
            continue
        for new in unnamed:
            shared = then.shared(now[new])
            at_home = (then.shared(now.get(old)), now[new].shared(before.get(new)))
            known = old in now or new in before
            if new != old and known and all(shared > here for here in at_home):
                return old, new
    return None


def find_alike(now: Mapping[str, Description], unnamed: Collection[str]) -> tuple[str, str] | None:
    """Two operators without a name that nothing tells apart, should they change places.

    >>> one, other = Description("count by k"), Description("count by k", reads="1f")
    >>> find_alike({"a": one, "b": other, "c": other}, ["a", "b", "c"])
    ('b', 'c')
    """
    first: dict[Description, str] = {}
    for name in unnamed:
        known = first.setdefault(now[name], name)
        if known != name:
            return known, name
    return None


def digest(text: str) -> str:
    """A short name for a text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def _code(code: object) -> str:
    """By its name, plain parameters and, of a function, what it does: two may differ in no more."""
    if code is None:
        return ""
    name = getattr(code, "__qualname__", type(code).__qualname__)
    given = getattr(code, "__dict__", {})
    plain = sorted((str(k), words) for k, v in given.items() if (words := _plain(v)) is not None)
    body = getattr(code, "__code__", None)
    if isinstance(body, CodeType):
        # Two lambdas of one line have one name.
        does = (body.co_code, body.co_names, *map(_plain, body.co_consts))
        return digest(f"{name} {plain} {does}")
    return digest(f"{name} {plain}")


def _plain(value: object, deep: int = 0) -> str | None:
    """A value that is the same in every process, in words; None for others."""
    if deep == _DEEPEST:
        return None  # its words would be in quotes of quotes
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = [(_plain(k, deep + 1), _plain(v, deep + 1)) for k, v in value.items()]
        known = all(k is not None and v is not None for k, v in pairs)
        return f"{{{sorted(map(str, pairs))}}}" if known else None
    if isinstance(value, (list, tuple, set, frozenset)):
        each = [_plain(v, deep + 1) for v in value]
        if None in each:
            return None
        return str(sorted(map(str, each)) if isinstance(value, (set, frozenset)) else each)
    return None
