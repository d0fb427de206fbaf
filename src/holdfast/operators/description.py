"""What a log entry keeps of an operator in words, and whether operators have changed places.

Only the first part, what an operator computes, must be the same after a restart. The rest tells
operators without a name apart, which are called by their kind and place in the program: if each of
two looks like what the entry has under the other's name, the state would go to the wrong one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from holdfast.operators.base import Operator

__all__ = ["Description", "digest", "find_alike", "find_moved"]

_MARKS = ("  state ", "  code ", "  reads ")
_PLAIN = (str, bytes, int, float, bool)
_CODE = (FunctionType, MethodType, BuiltinFunctionType, partial, type)


@dataclass(frozen=True, slots=True)
class Description:
    """An operator in words.

    >>> words = str(Description("process by user: string", ("total: value double",), "1f", "2e"))
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
    reads: str = ""
    """A digest of what it reads; empty if nobody noted it."""

    @classmethod
    def of(cls, operator: Operator) -> Description:
        """That of an operator, wherever it stands."""
        states = tuple(" ".join(state.splitlines()) for state in operator.describe_states())
        return cls(operator.describe(), states, _code(operator.code))

    @classmethod
    def parse(cls, words: str) -> Description:
        """That of a log entry, also of one in which only what an operator computes is noted."""
        lines = words.split("\n")
        rest: dict[str, list[str]] = {mark: [] for mark in _MARKS}
        while len(lines) > 1 and (mark := _mark(lines[-1])) is not None:
            rest[mark].insert(0, lines.pop()[len(mark) :])
        states, code, reads = rest.values()
        return cls("\n".join(lines), tuple(states), "".join(code), "".join(reads))

    def reading(self, reads: str) -> Description:
        """The same, with what it reads."""
        return replace(self, reads=reads)

    def __str__(self) -> str:
        lines = [self.what, *(f"  state {state}" for state in self.states)]
        lines += [f"  code {self.code}"] if self.code else []
        return "\n".join([*lines, *([f"  reads {self.reads}"] if self.reads else [])])

    def shared(self, other: Description | None) -> frozenset[str]:
        """What it has in common with another, of what tells operators apart."""
        if other is None or other.what != self.what:
            return frozenset()
        names = ("states", "code", "reads")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return frozenset(name for name, mine, theirs in pairs if mine and mine == theirs)


def _mark(line: str) -> str | None:
    return next((mark for mark in _MARKS if line.startswith(mark)), None)


def find_moved(
    before: Mapping[str, Description], now: Mapping[str, Description], unnamed: Collection[str]
) -> tuple[str, str] | None:
    """An operator of an entry that the program has under another name: the old one and the new.

    ``unnamed`` are those that got their name from their place. Only what an operator shares with
    more reason with another than with its namesake counts: code, input and states may all change.
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
    """By its name, parameters and, of a function, what it does: two may differ in no more."""
    return "" if code is None else digest(_object(code))


def _object(code: object, within: tuple[object, ...] = ()) -> str:
    """A function, or an instance with those of its parameters that have words."""
    if any(code is outer for outer in within):
        return "itself"
    name = getattr(code, "__qualname__", type(code).__qualname__)
    given = {} if isinstance(code, type) else getattr(code, "__dict__", {})
    words = ((str(k), _words(v, (*within, code))) for k, v in given.items())
    known = sorted((k, v) for k, v in words if v is not None)
    # Two lambdas of one line have one name.
    does = _does(code, within)
    return f"{name} {known}" if does is None else f"{name} {known} {does}"


def _does(code: object, within: tuple[object, ...]) -> object:
    """Of a function: its body, and what it has of where it was made; None of anything else."""
    if isinstance(code, partial):
        bound = (code.args, code.keywords)
        return _object(code.func, within), [_words(each, within) for each in bound]
    if isinstance(code, MethodType):
        return _does(code.__func__, within), _object(code.__self__, within)
    if not isinstance(code, FunctionType):
        return None
    kept = [cell.cell_contents for cell in code.__closure__ or () if _is_filled(cell)]
    given = [each for each in (code.__defaults__, code.__kwdefaults__) if each]
    body = _body(code.__code__)
    return body + tuple(_words(each, (*within, code)) for each in given + kept)


def _body(code: CodeType) -> tuple[object, ...]:
    inner = (
        _body(each) if isinstance(each, CodeType) else _words(each, ()) for each in code.co_consts
    )
    return (code.co_code, code.co_names, *inner)


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is what raises
    except ValueError:
        return False
    return True


def _words(value: object, within: tuple[object, ...]) -> str | None:
    """A value in words that are the same in every process; None for what has none."""
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if any(value is outer for outer in within):
        # A function that calls itself, say.
        return "itself"
    if isinstance(value, _CODE):
        return _object(value, within)
    return _contents(value, (*within, value))


def _contents(value: object, within: tuple[object, ...]) -> str | None:
    if isinstance(value, Mapping):
        pairs = [(_words(k, within), _words(v, within)) for k, v in value.items()]
        known = all(k is not None and v is not None for k, v in pairs)
        return f"{{{sorted(map(str, pairs))}}}" if known else None
    if isinstance(value, (list, tuple, set, frozenset)):
        each = [_words(v, within) for v in value]
        in_order = sorted(map(str, each)) if isinstance(value, (set, frozenset)) else each
        return None if None in each else str(in_order)
    if is_dataclass(value):
        names = (field.name for field in fields(value))
        held = [(name, _words(getattr(value, name, None), within)) for name in names]
        return f"{type(value).__qualname__} {held}"
    return None
