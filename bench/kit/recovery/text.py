"""Generated text whose words are mostly new: the state of a word count is of the order of its input.

A word is 24 letters out of 64, computed from its number, so it can't be compressed much below 18
bytes. Of the twelve words of a line nine have never occurred before; three are repeated, the word
of rank r with a probability that falls as 1/r (Zipf). The same part always has the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = [
    "LINE_BYTES",
    "PART_MB",
    "WORDS_PER_LINE",
    "Text",
    "ranks",
    "touched",
    "touching",
    "words",
]

Numbers = npt.NDArray[np.uint64]

_LETTERS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", dtype=np.uint8
)
_LENGTH = 24
WORDS_PER_LINE = 12
_NEW_PER_LINE = 9
LINE_BYTES = WORDS_PER_LINE * (_LENGTH + 1)
PART_MB = 10
_SEED = 20


def words(numbers: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """The words of these numbers, a row of 24 letters each.

    >>> words([0, 1]).shape, bytes(words([7])[0]) == bytes(words([7, 8])[0])
    ((2, 24), True)
    """
    given = np.asarray(numbers, dtype=np.uint64)
    letters = np.empty((len(given), _LENGTH), dtype=np.uint8)
    for third in range(3):
        bits = _mixed(given * np.uint64(3) + np.uint64(third))
        for place in range(8):
            index = (bits >> np.uint64(6 * place)) & np.uint64(63)
            letters[:, 8 * third + place] = _LETTERS[index.astype(np.uint8)]
    return letters


def _mixed(numbers: Numbers) -> Numbers:
    """splitmix64: every number becomes another that looks random."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = x ^ (x >> np.uint64(31))
    return mixed


def ranks(random: npt.NDArray[np.float64], known: npt.ArrayLike) -> Numbers:
    """Numbers below ``known``, of which r has a weight of about 1/(r+1).

    >>> ranks(np.array([0.0, 0.5, 0.999]), 100).tolist()
    [0, 9, 98]
    """
    most = np.maximum(np.asarray(known, dtype=np.float64), 1.0)
    drawn: Numbers = np.minimum(most**random, most).astype(np.uint64) - np.uint64(1)
    return drawn


def _laid_out(numbers: Numbers) -> bytes:
    """Words as lines."""
    text = np.full((len(numbers), _LENGTH + 1), ord(" "), dtype=np.uint8)
    text[:, :_LENGTH] = words(numbers)
    text[WORDS_PER_LINE - 1 :: WORDS_PER_LINE, _LENGTH] = ord("\n")
    text[-1, _LENGTH] = ord("\n")
    return text.tobytes()


def lines(first: int, count: int) -> bytes:
    """Lines ``first`` up to ``first + count`` of the endless text."""
    random = np.random.default_rng([_SEED, first]).random((count, WORDS_PER_LINE - _NEW_PER_LINE))
    known = (first + np.arange(count, dtype=np.uint64)) * np.uint64(_NEW_PER_LINE)
    numbers = np.empty((count, WORDS_PER_LINE), dtype=np.uint64)
    numbers[:, :_NEW_PER_LINE] = known[:, None] + np.arange(_NEW_PER_LINE, dtype=np.uint64)
    numbers[:, _NEW_PER_LINE:] = ranks(random, known[:, None])
    return _laid_out(numbers.reshape(-1))


def touched(keys: int, share: float, seed: int = 0) -> Numbers:
    """Words that touch a share of ``keys`` words, popular ones first and often (Zipf)."""
    wanted = max(1, round(keys * share))
    random = np.random.default_rng([_SEED, 1, seed])
    drawn = ranks(random.random(2 * wanted), keys)
    while len(np.unique(drawn)) < wanted:
        drawn = np.concatenate([drawn, ranks(random.random(wanted), keys)])
    # As many words as it took to touch that many different ones.
    first_seen = np.sort(np.unique(drawn, return_index=True)[1])
    return drawn[: first_seen[wanted - 1] + 1]


def touching(keys: int, share: float, seed: int = 0) -> bytes:
    """The text of what is :func:`touched`."""
    return _laid_out(touched(keys, share, seed))


class Text:
    """The text of one size, as files in a folder."""

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes
        self._part_lines = min(PART_MB, megabytes) * 1_000_000 // LINE_BYTES
        self.parts = max(1, megabytes // PART_MB)

    @property
    def lines(self) -> int:
        """How many there are."""
        return self.parts * self._part_lines

    @property
    def records(self) -> int:
        """Words, each time they occur."""
        return self.lines * WORDS_PER_LINE

    @property
    def keys(self) -> int:
        """Different words."""
        return self.lines * _NEW_PER_LINE

    def recent(self, share: float) -> Numbers:
        """Words as in the last ``share`` of all lines: the new ones, and others drawn as it draws them."""
        first = round(self.lines * (1 - share))
        random = np.random.default_rng([_SEED, 2]).random(
            (self.lines - first) * (WORDS_PER_LINE - _NEW_PER_LINE)
        )
        new = np.arange(first * _NEW_PER_LINE, self.keys, dtype=np.uint64)
        return np.union1d(new, ranks(random, self.keys))

    def write(self, cache: Path, folder: Path) -> None:
        """Put the text into a folder; parts are made once and linked."""
        cache.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True)
        for part in range(self.parts):
            made = cache / f"text-{_SEED}-{self._part_lines}-{part:04d}.txt"
            if not made.exists():
                half = made.with_suffix(".half")
                half.write_bytes(lines(part * self._part_lines, self._part_lines))
                half.rename(made)
            (folder / f"part-{part:04d}.txt").hardlink_to(made)

    def more(self, number: int, count: int = 100) -> bytes:
        """A little text that goes on after all of this."""
        return lines(self.lines + number * count, count)
