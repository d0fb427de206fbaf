"""How numbers, sizes and times look on a terminal."""

from __future__ import annotations

import os
import shlex

from rich.console import Console

__all__ = ["age", "command", "console", "count", "duration", "errors", "size"]

console = Console()
errors = Console(stderr=True)

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def command(*arguments: object) -> str:
    """A command of the command line, as whoever started this program can give it.

    In a clone that is ``./run holdfast``, and ``./run`` says so.
    """
    program = os.environ.get("HOLDFAST_COMMAND", "holdfast")
    return f"{program} {shlex.join(map(str, arguments))}"


def count(number: int) -> str:
    """A number of things.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def size(size_bytes: int) -> str:
    """A number of bytes, in decimal units.

    >>> size(999), size(1_500), size(20_000_000), size(0)
    ('999 B', '1.5 kB', '20 MB', '0 B')
    """
    value, unit = float(size_bytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 9.95 else f"{value:.0f} {_UNITS[unit]}"


def duration(milliseconds: int) -> str:
    """How long something took.

    >>> duration(12), duration(3_400), duration(75_000)
    ('12 ms', '3.4 s', '1 min 15 s')
    """
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds} s"


def age(seconds: float) -> str:
    """How long ago something was, in its two largest units.

    >>> age(5), age(200), age(7300), age(200_000), age(-3)
    ('5 s', '3 min 20 s', '2 h 1 min', '2 d 7 h', '0 s')
    """
    rest = max(0, int(seconds))
    parts: list[str] = []
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        value, rest = divmod(rest, length)
        if value or parts or name == "s":
            parts.append(f"{value} {name}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ") or len(parts) == 1)
