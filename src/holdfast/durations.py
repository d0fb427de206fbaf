"""Lengths of time as people write them: one rule wherever a time is asked for."""

from __future__ import annotations

import math
import re
import threading
from datetime import timedelta
from typing import TypeAlias

from holdfast.errors import InputError

__all__ = ["Duration", "parse_duration", "parse_ms", "parse_timeout"]

Duration: TypeAlias = str | float | timedelta
"""A length of time: ``"10 s"``, a number of seconds, or a ``timedelta``."""

_UNITS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "week": 604800.0,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def parse_duration(value: Duration, what: str = "a duration", *, negative: bool = False) -> float:
    """Seconds from ``"10 s"``, ``"500 ms"``, ``"1 hour 30 minutes"``, a number or a ``timedelta``.

    >>> parse_duration("500 ms"), parse_duration("2 minutes"), parse_duration(3)
    (0.5, 120.0, 3.0)
    >>> parse_duration("1 hour 30 minutes"), parse_duration("-10 s", negative=True)
    (5400.0, -10.0)
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        found = _seconds(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise InputError(
                f"{what} can't be {value!r}",
                hint='write it like "10 s", "500 ms" or "2 minutes", or give a number of seconds',
            )
        seconds = found
    if not math.isfinite(seconds):
        raise InputError(f"{what} can't be {value!r}", hint="give a time that has an end")
    if seconds < 0 and not negative:
        raise InputError(f"{what} can't be negative: {value!r}", hint="give a time of 0 or more")
    return seconds


def _seconds(text: str) -> float | None:
    sign, rest = (-1, text[1:].lower()) if text.startswith("-") else (1, text.lower())
    seconds, place = 0.0, 0
    while place < len(rest):
        match = _PART.match(rest, place)
        unit = match[2] if match else ""
        scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if match is None or scale is None:
            return None
        seconds, place = seconds + float(match[1]) * scale, match.end()
    return sign * seconds if rest else None


def parse_ms(value: Duration, what: str = "a duration", *, negative: bool = False) -> int:
    """The same in whole milliseconds.

    >>> parse_ms("1.5 s")
    1500
    """
    return round(parse_duration(value, what, negative=negative) * 1000)


def parse_timeout(value: Duration | None) -> float | None:
    """How many seconds to wait; None is for ever.

    >>> parse_timeout("1 minute"), parse_timeout(0), parse_timeout(None)
    (60.0, 0.0, None)
    """
    # No lock waits longer than this, and nobody either.
    return None if value is None else min(parse_duration(value, "timeout"), threading.TIMEOUT_MAX)
