"""Rows sorted and grouped by key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["SortedRows"]


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows sorted by (hash, key): equal keys are neighbours."""

    table: pa.Table
    """First column the hash (uint64), then the key columns, then the rest; one chunk per column."""
    starts: npt.NDArray[np.int64]
    """The index of the first row of each distinct key, ascending."""
    keys: int
    """How many key columns there are."""
