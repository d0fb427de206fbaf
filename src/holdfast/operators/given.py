"""A digest of what user code was given: functions, and objects that hold some.

Two processes of one class may differ in nothing else, and be told apart by that alone. It is the same in
every process, costs little whatever it is of, and never fails a start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import Any

import xxhash

__all__ = ["given_to"]

logger = logging.getLogger("holdfast.operators")

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_MOST = 10_000
_DEEPEST = 50


def given_to(code: object) -> str:
    """A digest of a function or an instance; empty if there is none, or it holds too much.

    >>> def over(n: int) -> object:
    ...     return lambda value: value > n
    >>> given_to(over(1)) == given_to(over(1)), given_to(over(1)) == given_to(over(2))
    (True, False)
    """
    if code is None:
        return ""
    try:
        return _Digests().of_code(code)
    except _TooMuchError:
        return ""
    except Exception:
        # It only tells operators apart, and asks objects of others for what they hold.
        logger.debug("%r has no digest", type(code), exc_info=True)
        return ""


class _TooMuchError(Exception):
    """An object holds more than it is worth looking at."""


class _Digests:
    """Digests of objects that may hold each other: one that was seen before is its number."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []
        self._left = _MOST
        self._depth = 0

    def of_code(self, code: object) -> str:
        """A function, or an instance with what it holds."""
        if isinstance(code, _FUNCTIONS):
            return self.of(code)
        return self._once(code, self._instance)

    def of(self, value: object) -> str:
        """Any value; of those that have no words only the type counts."""
        self._left -= 1
        if self._left < 0 or self._depth > _DEEPEST:
            raise _TooMuchError
        if isinstance(value, _PLAIN):
            return _digest(type(value).__qualname__, repr(value))
        # Methods are made anew whenever one is asked for, and of equal constants there may be one or two.
        made_anew = isinstance(value, (MethodType, tuple, frozenset))
        return self._deeper(value, self._held) if made_anew else self._once(value, self._held)

    def _once(self, value: object, how: Callable[[Any], str]) -> str:
        known = self._seen.get(id(value))
        if known is not None:
            return _digest("seen", str(known))
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._deeper(value, how)

    def _deeper(self, value: object, how: Callable[[Any], str]) -> str:
        self._depth += 1
        try:
            return how(value)
        finally:
            self._depth -= 1

    def _held(self, value: Any) -> str:
        name = type(value).__qualname__
        if isinstance(value, (BuiltinFunctionType, type)):
            parts = [str(value.__module__), value.__qualname__]
        elif isinstance(value, MethodType):
            parts = [self.of(value.__func__), self.of_code(value.__self__)]
        elif isinstance(value, FunctionType):
            parts = [value.__qualname__, *map(self.of, _made_of(value))]
        elif isinstance(value, CodeType):
            # Not the lines it stands on: they move with whatever is above.
            parts = [value.co_code.hex(), *value.co_names, *map(self.of, value.co_consts)]
        elif isinstance(value, partial):
            parts = [*map(self.of, (value.func, value.args, value.keywords))]
        elif isinstance(value, Mapping):
            parts = [self.of(each) for pair in value.items() for each in pair]
        elif isinstance(value, (list, tuple)):
            parts = [*map(self.of, value)]
        elif isinstance(value, (set, frozenset)):
            # In no order: so none can be known by the number of another.
            parts = sorted(self._alone(each) for each in value)
        elif is_dataclass(value):
            names = [field.name for field in fields(value)]
            parts = [part for each in names for part in (each, self.of(getattr(value, each, None)))]
        else:
            parts = []
        return _digest(name, *parts)

    def _alone(self, value: object) -> str:
        other = _Digests()
        other._left, other._depth = self._left, self._depth
        digest = other.of(value)
        self._left = other._left
        return digest

    def _instance(self, code: object) -> str:
        held = sorted(getattr(code, "__dict__", {}).items(), key=lambda pair: str(pair[0]))
        values = [_digest(str(name), self.of(value)) for name, value in held]
        return _digest("instance", type(code).__qualname__, *values)


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial, type)


def _made_of(function: FunctionType) -> list[object]:
    """What a function does, and what it has of where it was made."""
    kept = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, *kept]


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is what raises
    except ValueError:
        return False
    return True


def _digest(*parts: str) -> str:
    """Of parts of any length, always as long; none can be taken for two others."""
    return xxhash.xxh3_128_hexdigest(
        "\n".join(f"{len(each)} {each}" for each in parts).encode(errors="surrogateescape")
    )
