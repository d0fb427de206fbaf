"""Sizes in bytes as people write them: one rule wherever a size is asked for."""

from __future__ import annotations

import re
from typing import TypeAlias

from holdfast.errors import InputError

__all__ = ["Size", "parse_size"]

Size: TypeAlias = int | str
"""A size: a number of bytes, or a text such as ``"512 MiB"``."""

_LETTERS = "kmgtp"
_UNITS = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    **{f"{letter}ib": 1 << 10 * i for i, letter in enumerate(_LETTERS, 1)},
    # As in Spark's settings: "2g" is what the JVM takes it for.
    **{letter: 1 << 10 * i for i, letter in enumerate(_LETTERS, 1)},
    **{f"{letter}b": 1000**i for i, letter in enumerate(_LETTERS, 1)},
}


def parse_size(value: Size, what: str = "a size", *, least: int = 0) -> int:
    """Bytes from ``"512 MiB"``, ``"2 GB"``, ``"2g"`` or a number of bytes.

    KiB, MiB, GiB and TiB are powers of 1024, and so are the k, m, g and t of Spark's settings; kB, MB, GB
    and TB are powers of 1000.

    >>> parse_size("512 MiB"), parse_size("2 GB"), parse_size("1g"), parse_size(4096)
    (536870912, 2000000000, 1073741824, 4096)
    """
    size: float | None = None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", value.lower())
        scale = _UNITS.get(match[2]) if match else None
        size = float(match[1]) * scale if match and scale else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        size = value
    # What is no number, or none that ends, is on neither side of the bound.
    if size is None or not 0 <= size < 1 << 63:
        raise InputError(
            f"{what} can't be {value!r}",
            hint='give a number of bytes, or write it like "512 MiB" or "2 GB"',
        )
    if size < least:
        raise InputError(f"{what} must be at least {least:,} bytes, not {value!r}")
    return int(size)
