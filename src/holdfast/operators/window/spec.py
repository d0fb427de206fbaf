"""What a window is: how event time is cut up, when results go out, and in which form."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from holdfast.errors import InputError

__all__ = [
    "CHANGE",
    "COUNT",
    "PANE",
    "TIME",
    "WINDOW_END",
    "WINDOW_START",
    "Emit",
    "GlobalWindow",
    "SessionGap",
    "Sliding",
    "Tumbling",
    "WindowSpec",
]

PANE = "_holdfast_pane"
"""Start of the pane that a buffer row is of, in µs since 1970 (int64)."""
TIME = "_holdfast_time"
"""The greatest event time among the rows that a buffer row stands for, in µs (int64, may be null)."""
COUNT = "_holdfast_rows"
"""How many rows a buffer row stands for (int64)."""
WINDOW_START = "window_start"
"""The result column with the time that a window begins at."""
WINDOW_END = "window_end"
"""The result column with the first time behind a window."""
CHANGE = "change"
"""The last result column of the output mode ``retract``: -1 takes a row back, +1 puts one out."""


def _check_positive(what: str, value_ms: int) -> None:
    if value_ms <= 0:
        raise InputError(f"{what} is {value_ms} ms", hint="give a time of at least one millisecond")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, one behind the other.

    >>> Tumbling(60_000).pane_ms
    60000
    """

    size_ms: int
    offset_ms: int = 0
    """Where windows begin, counted from 1970."""

    def __post_init__(self) -> None:
        _check_positive("the size of a window", self.size_ms)

    def __str__(self) -> str:
        return f"tumbling windows of {self.size_ms} ms from {self.offset_ms} ms"

    @property
    def slide_ms(self) -> int:
        """How far apart windows begin."""
        return self.size_ms

    @property
    def pane_ms(self) -> int:
        """The longest stretch of time that no window's bounds divide."""
        return self.size_ms


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that begin more often than they end: a row is in several.

    >>> Sliding(60_000, 25_000).pane_ms
    5000
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    """Where windows begin, counted from 1970."""

    def __post_init__(self) -> None:
        _check_positive("the size of a window", self.size_ms)
        _check_positive("the slide of a window", self.slide_ms)
        if self.slide_ms > self.size_ms:
            raise InputError(
                f"windows of {self.size_ms} ms slide by {self.slide_ms} ms: "
                "rows between windows would be lost",
                hint="give a slide that is at most the size, or filter the rows first",
            )

    def __str__(self) -> str:
        windows = f"sliding windows of {self.size_ms} ms every {self.slide_ms} ms"
        return f"{windows} from {self.offset_ms} ms"

    @property
    def pane_ms(self) -> int:
        """The longest stretch of time that no window's bounds divide."""
        return gcd(self.size_ms, self.slide_ms)


@dataclass(frozen=True, slots=True)
class SessionGap:
    """Windows that end when a key has had no rows for some time.

    >>> SessionGap(30_000).gap_ms
    30000
    """

    gap_ms: int

    def __post_init__(self) -> None:
        _check_positive("the gap of a session", self.gap_ms)

    def __str__(self) -> str:
        return f"sessions with gaps of {self.gap_ms} ms"


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """One window for all time, which never closes: ``emit`` says when results go out.

    >>> print(GlobalWindow())
    one window for all time
    """

    def __str__(self) -> str:
        return "one window for all time"


WindowSpec = Tumbling | Sliding | SessionGap | GlobalWindow


@dataclass(frozen=True, slots=True)
class Emit:
    """When a window's result goes out, besides when the watermark closes it.

    >>> Emit(early_rows=1000).is_early, Emit(late=False).is_early
    (True, False)
    >>> print(Emit(early_rows=1000))
    every 1000 rows, late rows too
    """

    early_rows: int | None = None
    """Also at the end of an epoch in which this many rows have come since the window last fired."""
    early_every_ms: int | None = None
    """Also when this much processing time has passed since the window last fired, or began."""
    late: bool = True
    """Also in epochs in which rows come to a window that has closed, while lateness lasts."""

    def __post_init__(self) -> None:
        if self.early_rows is not None and self.early_rows <= 0:
            raise InputError(
                f"early results every {self.early_rows} rows can't be", hint="give at least one row"
            )
        if self.early_every_ms is not None:
            _check_positive("the interval of early results", self.early_every_ms)

    def __str__(self) -> str:
        words = [] if self.early_rows is None else [f"every {self.early_rows} rows"]
        if self.early_every_ms is not None:
            words.append(f"every {self.early_every_ms} ms")
        return ", ".join([*words, "late rows too" if self.late else "not for late rows"])

    @property
    def is_early(self) -> bool:
        """Whether it fires before windows close."""
        return self.early_rows is not None or self.early_every_ms is not None
