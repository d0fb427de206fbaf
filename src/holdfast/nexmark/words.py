"""The words of NEXMark's events: names, places, addresses and texts of letters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

__all__ = [
    "CITIES",
    "FIRST_NAMES",
    "LAST_NAMES",
    "PLACES",
    "STATES",
    "element",
    "letters",
    "text",
    "url",
]

# Few, so that queries find something among few events.
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
    "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = (
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
)  # fmt: skip
LAST_NAMES = (
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
)  # fmt: skip

_TEXTS = 64
_OFFSETS = 16
PLACES = _TEXTS * _OFFSETS
"""From so many places texts can be cut."""
_LONGEST = 640
_SHORTEST = 3
_ONE_SPACE_OF = 13

Draw = Callable[[int, int], Column]


def _letters(seed: str, length: int, space: str = "") -> str:
    """Letters that look random and are always the same; one of 13 is the space, if there is one."""
    digest = hashlib.shake_256(seed.encode()).digest(2 * length)
    pairs = zip(digest[::2], digest[1::2], strict=True)
    return "".join(
        space if space and chance % _ONE_SPACE_OF == 0 else chr(ord("a") + letter % 26)
        for chance, letter in pairs
    )


def _texts(seed: str, length: int, space: str = "") -> tuple[str, ...]:
    return tuple(_letters(f"{seed} {i}", length, space) for i in range(_TEXTS))


# Texts are cut from these, near their beginning: far cheaper than making every letter (or finding a
# place far behind in UTF-8), and as good to a query.
_PLAIN = _texts("plain", _OFFSETS + _LONGEST)
_SPACED = _texts("spaced", _OFFSETS + 100, " ")
_FOLDERS = tuple(text[: _SHORTEST + i % 2] for i, text in enumerate(_texts("folders", 5, "_")))
# 7 bits, the last one first.
_REVERSED = tuple(int(f"{number:07b}"[::-1], 2) for number in range(128))


def element(values: Sequence[str] | Sequence[int], place: Column) -> Column:
    """One of some values, counted from 0."""
    return F.element_at(F.array(*map(F.lit, values)), (place + 1).cast("int"))


def letters(place: Column, length: Column) -> Column:
    """So many letters (none if the length is negative)."""
    return _cut(_PLAIN, place, length)


def text(draw: Draw, field: int, longest: int, *, spaces: bool = False) -> Column:
    """From 3 to fewer than ``longest`` letters by two draws; with spaces between them or without."""
    length = (draw(field, longest - _SHORTEST) + _SHORTEST).cast("int")
    place = draw(field + 1, PLACES)
    return F.trim(_cut(_SPACED, place, length)) if spaces else _cut(_PLAIN, place, length)


def _cut(texts: Sequence[str], place: Column, length: Column) -> Column:
    offset = F.shiftright(place, _TEXTS.bit_length() - 1) + 1
    return F.substring(element(texts, place % _TEXTS), offset.cast("int"), length)


def url(channel: Column, plain_channels: int) -> Column:
    """The address of a channel; of 10 plain ones 9 name their number in it, its bits reversed."""
    chance = F.xxhash64(channel)
    folders = [F.shiftrightunsigned(chance, 8 * i) % _TEXTS for i in range(3)]
    address = F.concat_ws(
        "/",
        F.lit("https://www.nexmark.com"),
        *(element(_FOLDERS, F.abs(folder)) for folder in folders),
        F.lit("item.htm?query=1"),
    )
    named = (channel < plain_channels) & (F.pmod(chance, F.lit(10)) > 0)
    number = F.concat(F.lit("&channel_id="), _reversed_bits(channel).cast("string"))
    return F.when(named, F.concat(address, number)).otherwise(address)


def _reversed_bits(number: Column) -> Column:
    """The amount of the 32-bit number whose bits are those of one below 2**14, the last one first."""
    low, high = element(_REVERSED, number % 128), element(_REVERSED, F.shiftright(number, 7))
    whole = F.shiftleft((low * 128 + high).cast("bigint"), 18)
    # Its highest bit is a sign.
    return F.when(whole >= 2**31, F.lit(2**32) - whole).otherwise(whole)
