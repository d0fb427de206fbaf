"""The figures of the published experiment, which ours stand beside."""

from __future__ import annotations

__all__ = ["PUBLISHED_MS", "SIZES_MB"]

PUBLISHED_MS: dict[int, tuple[int, int]] = {
    1: (801, 843),
    10: (1095, 853),
    50: (2143, 1980),
    100: (2027, 3490),
    200: (2359, 4917),
    250: (3909, 4936),
    300: (4297, 6018),
    350: (4166, 5509),
    400: (4465, 6489),
    600: (4967, 7544),
}
"""Megabytes of text: milliseconds until recovered with a local replica, and without."""

SIZES_MB = tuple(PUBLISHED_MS)
