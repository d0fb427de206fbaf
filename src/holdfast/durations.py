"""Lengths of time as people write them."""

from __future__ import annotations

import re

from holdfast.errors import InputError

__all__ = ["parse_duration"]

_UNITS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}


def parse_duration(value: str | float, what: str = "a duration") -> float:
    """Seconds from ``"10 s"``, ``"500 ms"``, ``"7 days"`` or a number of seconds.

    >>> parse_duration("500 ms"), parse_duration("2 minutes"), parse_duration(3)
    (0.5, 120.0, 3.0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", str(value).lower())
        unit = match[2] if match else ""
        scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if match is None or scale is None:
            raise InputError(
                f"{what} can't be {value!r}", hint='write it like "10 s", "500 ms" or "2 minutes"'
            )
        seconds = float(match[1]) * scale
    if seconds < 0:
        raise InputError(f"{what} can't be negative: {value!r}")
    return seconds
