"""How a program declares its state: as class attributes, typed as Spark types are written.

A declaration is a plain value. When a task runs, the attribute of the process instance is a *bound*
state of the same interface (:mod:`holdfast.operators.process.bound`), so editors and type checkers
know its methods.
"""

# ruff: noqa: ARG002, PLE0303, PLE0304 - an unbound state has no use for its arguments, and only raises

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from holdfast.choices import MergeName, TimeKind, TtlOn, check_choice
from holdfast.durations import Duration, parse_ms
from holdfast.errors import InputError
from holdfast.operators.process.convert import MISFITS, normalizer, to_arrow
from holdfast.state.schema import check_key_type
from holdfast.types import parse_type, type_words

__all__ = [
    "AggregatingState",
    "ListState",
    "MapState",
    "ReducingState",
    "State",
    "Ttl",
    "ValueState",
    "declared_states",
]


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long a value lives after it was written, or last read or written."""

    ms: int
    clock: TimeKind
    on_read: bool

    def __str__(self) -> str:
        return f"ttl {self.ms} ms {self.clock}{' on read' if self.on_read else ''}"


class State:
    """A declared state. Its name is that of the class attribute it is assigned to."""

    kind = "state"
    name: str = ""
    ttl: Ttl | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        # An error raised here would reach the user wrapped in another: declared_states() raises it.
        self.name = self.name or name

    def describe(self) -> str:
        """The declaration in words: equal words mean equal state."""
        raise NotImplementedError

    def _unbound(self) -> NoReturn:
        raise InputError(
            f"state {self.name!r} was used outside of its process",
            hint="state belongs to a key: use it in process, on_timer and the like",
        )

    def _words(self, types: str) -> str:
        return f"{self.name}: {self.kind} {types}" + (f", {self.ttl}" if self.ttl else "")


class ValueState(State):
    """One value per key.

    >>> total = ValueState("double", default=0.0)
    >>> total.describe()
    ': value double'
    """

    kind = "value"

    def __init__(
        self,
        type: object,  # noqa: A002 - what it is
        *,
        default: Any = None,
        ttl: Duration | None = None,
        ttl_clock: TimeKind = "processing",
        ttl_on: TtlOn = "write",
    ) -> None:
        self.type = parse_type(type)
        self.default = _checked_default(self.type, default)
        self.ttl = _ttl(ttl, ttl_clock, ttl_on)

    @property
    def value(self) -> Any:
        """The value; the default if there is none."""
        self._unbound()

    @value.setter
    def value(self, value: Any) -> None:
        self._unbound()

    def exists(self) -> bool:
        """Whether a value is set."""
        self._unbound()

    def clear(self) -> None:
        """Forget the value."""
        self._unbound()

    def describe(self) -> str:
        """Kind, type and time to live."""
        return self._words(type_words(self.type))


class ReducingState(State):
    """One value per key into which others are merged: ``sum``, ``min``, ``max`` or a function.

    >>> ReducingState("long", "max").merge(3, 5)
    5
    """

    kind = "reducing"
    _NAMED: Mapping[str, Callable[[Any, Any], Any]] = {
        "sum": lambda a, b: a + b,
        "min": lambda a, b: b if b < a else a,
        "max": lambda a, b: b if b > a else a,
    }

    def __init__(
        self,
        type: object,  # noqa: A002
        merge: MergeName | Callable[[Any, Any], Any] = "sum",
        *,
        ttl: Duration | None = None,
        ttl_clock: TimeKind = "processing",
        ttl_on: TtlOn = "write",
    ) -> None:
        self.type = parse_type(type)
        if not callable(merge) and (not isinstance(merge, str) or merge not in self._NAMED):
            raise InputError(
                f"merge can't be {merge!r}",
                hint='it is "sum", "min" or "max", or a function of two values',
            )
        self.merged_by = merge if isinstance(merge, str) else "function"
        self.merge = merge if callable(merge) else self._NAMED[merge]
        self.ttl = _ttl(ttl, ttl_clock, ttl_on)

    def __getstate__(self) -> dict[str, Any]:
        # The named functions are made anew where the state is used.
        given = dict(self.__dict__)
        if self.merged_by in self._NAMED:
            del given["merge"]
        return given

    def __setstate__(self, given: dict[str, Any]) -> None:
        self.__dict__.update(given)
        if self.merged_by in self._NAMED:
            self.merge = self._NAMED[self.merged_by]

    @property
    def value(self) -> Any:
        """What all added values came to; None if there were none."""
        self._unbound()

    def add(self, value: Any) -> None:
        """Merge a value in."""
        self._unbound()

    def clear(self) -> None:
        """Begin anew."""
        self._unbound()

    def describe(self) -> str:
        """Kind, type, merge and time to live."""
        return self._words(f"{type_words(self.type)} by {self.merged_by}")


class AggregatingState(State):
    """An accumulator per key: ``add(accumulator, value)`` gives the next, ``result`` what is read.

    >>> mean = AggregatingState("struct<s:double,n:long>", create=lambda: {"s": 0.0, "n": 0},
    ...     add=lambda a, x: {"s": a["s"] + x, "n": a["n"] + 1}, result=lambda a: a["s"] / a["n"])
    >>> mean.kind
    'aggregating'
    """

    kind = "aggregating"

    def __init__(
        self,
        type: object,  # noqa: A002
        *,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] = lambda accumulator: accumulator,
        ttl: Duration | None = None,
        ttl_clock: TimeKind = "processing",
        ttl_on: TtlOn = "write",
    ) -> None:
        self.type = parse_type(type)
        self.create, self.add_to, self.result_of = create, add, result
        self.ttl = _ttl(ttl, ttl_clock, ttl_on)

    @property
    def value(self) -> Any:
        """The result of what was added; None if nothing was."""
        self._unbound()

    def add(self, value: Any) -> None:
        """Add a value to the accumulator."""
        self._unbound()

    def clear(self) -> None:
        """Begin anew."""
        self._unbound()

    def describe(self) -> str:
        """Kind, type and time to live."""
        return self._words(type_words(self.type))


class ListState(State):
    """A list per key. Appending doesn't read what is there.

    >>> pages = ListState("string", ttl="7 days")
    >>> pages.describe()
    ': list string, ttl 604800000 ms processing'
    """

    kind = "list"

    def __init__(
        self,
        type: object,  # noqa: A002
        *,
        ttl: Duration | None = None,
        ttl_clock: TimeKind = "processing",
    ) -> None:
        self.type = parse_type(type)
        self.ttl = _ttl(ttl, ttl_clock, "write")

    def append(self, value: Any) -> None:
        """Add an item at the end."""
        self._unbound()

    def extend(self, values: Any) -> None:
        """Add items at the end."""
        self._unbound()

    def set(self, values: Any) -> None:
        """Replace all items."""
        self._unbound()

    def clear(self) -> None:
        """Remove all items, without reading them."""
        self._unbound()

    def __iter__(self) -> Iterator[Any]:
        self._unbound()

    def __len__(self) -> int:
        self._unbound()

    def __bool__(self) -> bool:
        self._unbound()

    def describe(self) -> str:
        """Kind, type and time to live."""
        return self._words(type_words(self.type))


class MapState(State):
    """A map per key. Reading or writing one entry doesn't read the others.

    >>> items = MapState("string", "long")
    >>> items.kind
    'map'
    """

    kind = "map"

    def __init__(
        self,
        key: object,
        value: object,
        *,
        ttl: Duration | None = None,
        ttl_clock: TimeKind = "processing",
        ttl_on: TtlOn = "write",
    ) -> None:
        self.key_type = _entry_type(parse_type(key))
        self.type = parse_type(value)
        self.ttl = _ttl(ttl, ttl_clock, ttl_on)

    def __getitem__(self, key: Any) -> Any:
        self._unbound()

    def __setitem__(self, key: Any, value: Any) -> None:
        self._unbound()

    def __delitem__(self, key: Any) -> None:
        self._unbound()

    def __contains__(self, key: Any) -> bool:
        self._unbound()

    def __iter__(self) -> Iterator[Any]:
        self._unbound()

    def __len__(self) -> int:
        self._unbound()

    def __bool__(self) -> bool:
        self._unbound()

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of an entry, or the default."""
        self._unbound()

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove an entry and return its value, or the default."""
        self._unbound()

    def update(self, entries: Mapping[Any, Any]) -> None:
        """Set many entries."""
        self._unbound()

    def keys(self) -> Iterator[Any]:
        """All keys, in no particular order."""
        self._unbound()

    def values(self) -> Iterator[Any]:
        """All values."""
        self._unbound()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All entries."""
        self._unbound()

    def clear(self) -> None:
        """Remove all entries, without reading them."""
        self._unbound()

    def describe(self) -> str:
        """Kind, types and time to live."""
        return self._words(f"{type_words(self.key_type)} to {type_words(self.type)}")


def _entry_type(kind: pa.DataType) -> pa.DataType:
    try:
        check_key_type("", kind)
    except InputError:
        raise InputError(
            f"the entries of a map can't be found by {type_words(kind)}",
            hint="take a boolean, number, string, binary, date or timestamp, or a struct of those",
        ) from None
    return kind


def _ttl(ttl: Duration | None, clock: str, on: str) -> Ttl | None:
    check_choice("ttl_clock", clock, TimeKind)
    check_choice("ttl_on", on, TtlOn)
    if ttl is None:
        return None
    ms = parse_ms(ttl, "ttl")
    if ms <= 0:
        raise InputError(
            f"a ttl of {ttl!r} would forget every value at once",
            hint="give at least a millisecond, or None to keep values for ever",
        )
    return Ttl(ms, "processing" if clock == "processing" else "event", on == "read")


def _checked_default(kind: pa.DataType, default: Any) -> Any:
    try:
        # As a value that was set would be read.
        value = normalizer(kind)(default)
        to_arrow([value], kind)
    except MISFITS as error:
        raise InputError(
            f"the default {default!r} is no {type_words(kind)}: {error}",
            hint="give a default of the declared type",
        ) from None
    return value


def declared_states(owner: type) -> dict[str, State]:
    """The states that a class and its bases declare, by name."""
    found: dict[str, State] = {}
    for cls in reversed(owner.__mro__):
        for name, state in vars(cls).items():
            if not isinstance(state, State):
                continue
            if name in found:
                raise InputError(
                    f"{owner.__name__} declares state {name!r} twice: in {cls.__name__} and in a "
                    "class that it derives from",
                    hint="give one of them another name",
                )
            if state.name != name:
                raise InputError(
                    f"{owner.__name__} declares one state twice: as {state.name!r} and as {name!r}",
                    hint=f"declare a state of its own: {name} = hf.{type(state).__name__}(…)",
                )
            found[name] = state
    return found
