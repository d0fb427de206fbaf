"""From panes to windows: which windows a row is in, and which of them have closed for good."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.operators.columns import Bits
from holdfast.operators.window.spec import GlobalWindow, Sliding, Tumbling
from holdfast.state.hashing import Hashes, entry_hashes

__all__ = [
    "FixedWindow",
    "RowsInWindows",
    "late_panes",
    "mixed_hashes",
    "overlap",
    "window_hashes",
    "windows_of",
]

FixedWindow = Tumbling | Sliding | GlobalWindow
"""Windows whose bounds don't depend on the rows."""

Micros = npt.NDArray[np.int64]
_MICROS = 1000
# An odd factor near 2**32 over the golden ratio: windows that follow each other lie far apart, and
# no two of 2**32 neighbours get the same number.
_SPREAD = np.uint64(0x9E3779B9)
_LOW = np.uint64(0xFFFFFFFF)


class RowsInWindows(NamedTuple):
    """Rows in their windows: a row comes once per window."""

    rows: npt.NDArray[np.int64]
    """Which row."""
    starts: Micros
    """The start of the window."""


def overlap(window: FixedWindow) -> bool:
    """Whether a pane can be part of several windows.

    >>> overlap(Sliding(20, 10)), overlap(Sliding(20, 20))
    (True, False)
    """
    return not isinstance(window, GlobalWindow) and window.slide_ms < window.size_ms


def late_panes(panes: Micros, window: FixedWindow, bound_ms: int | None) -> Bits | None:
    """Which panes lie in no window that ends after the bound; None if all do in one.

    >>> late_panes(np.array([0, 60_000_000]), Tumbling(60_000), 60_000).tolist()
    [True, False]
    """
    if bound_ms is None or isinstance(window, GlobalWindow):
        return None
    ends = _newest(panes, window) + window.size_ms * _MICROS
    late: Bits = ends <= bound_ms * _MICROS
    return late if late.any() else None


def windows_of(panes: Micros, window: FixedWindow, bound_ms: int | None) -> RowsInWindows:
    """The windows that panes are part of and that end after the bound; no pane is late.

    >>> windows_of(np.array([60_000]), Sliding(20, 10), None).starts.tolist()
    [60000, 50000]
    >>> windows_of(np.array([60_000]), Sliding(20, 10), 70).starts.tolist()
    [60000]
    """
    if isinstance(window, GlobalWindow):
        return RowsInWindows(np.arange(len(panes)), panes)
    size, slide = window.size_ms * _MICROS, window.slide_ms * _MICROS
    back = np.arange(-(-size // slide), dtype=np.int64) * slide
    starts = _newest(panes, window)[:, None] - back
    # If the size is no multiple of the slide, some panes are in one window less.
    inside = starts + size > panes[:, None]
    if bound_ms is not None:
        inside &= starts + size > bound_ms * _MICROS
    rows, _ = np.nonzero(inside)
    return RowsInWindows(rows, starts[inside])


def mixed_hashes(key_hashes: Hashes, starts: Micros, window: FixedWindow) -> Hashes:
    """Key hashes whose lower halves also depend on the start of a window or pane.

    Mixing the same start in again takes it out.

    >>> hashes = mixed_hashes(np.array([2**40 + 5], np.uint64), np.array([20_000]), Tumbling(10))
    >>> mixed_hashes(hashes, np.array([20_000]), Tumbling(10)).tolist() == [2**40 + 5]
    True
    """
    if isinstance(window, GlobalWindow):
        return key_hashes
    numbers = (starts // (window.pane_ms * _MICROS)).view(np.uint64)
    mixed: Hashes = key_hashes ^ ((numbers * _SPREAD) & _LOW)
    return mixed


def window_hashes(key_hashes: Hashes, starts: Micros, window: FixedWindow) -> Hashes:
    """The hashes of windows in state: the key's upper half, a lower one of key and window.

    The key's lower half has its part in it: of a million keys some share the upper half, and rows
    of equal hashes have to be sorted by key.
    """
    mixed = mixed_hashes(key_hashes, starts, window)
    return entry_hashes(mixed, (mixed & _LOW).astype(np.uint32))


def _newest(panes: Micros, window: Tumbling | Sliding) -> Micros:
    """The start of the last window that each pane is part of."""
    slide = window.slide_ms * _MICROS
    newest: Micros = panes - (panes - window.offset_ms * _MICROS) % slide
    return newest
