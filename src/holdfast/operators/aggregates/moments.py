"""Variance and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.columns import make_array, numbers
from holdfast.operators.groups import RowGroups

__all__ = ["Moments"]


class Moments(Merger):
    """Count, mean and sum of squared deviations: variance and deviation, of sample or population."""

    parts = (("count", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64()))
    result = pa.float64()

    def __init__(self, *, sample: bool, root: bool) -> None:
        self.sample = sample
        self.root = root

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """Combine any number of moments at once: Σm2ᵢ + Σnᵢ(meanᵢ - mean)²."""
        n, mean, m2 = (numbers(part) for part in parts)
        total = groups.sum_ints(n)
        with np.errstate(all="ignore"):
            # Distances are taken from a mean of the group, so that large numbers lose no digits
            # and equal numbers have no variance at all.
            origin = groups.reduce(np.maximum, np.where(n > 0, mean, -np.inf))
            origin = np.where(total > 0, origin, 0.0)
            distance = np.where(n > 0, mean - origin[groups.ids], 0.0)
            shift = groups.sum_floats(n * distance) / np.maximum(total, 1)
            spread = n * (distance - shift[groups.ids]) ** 2
            m2 = groups.sum_floats(m2) + groups.sum_floats(np.where(n > 0, spread, 0.0))
            mean = origin + shift
        return [make_array(pa.int64(), total), *(make_array(pa.float64(), v) for v in (mean, m2))]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Divide, by one less for a sample; null where that leaves nothing to divide by."""
        n, m2 = numbers(parts[0]), numbers(parts[2])
        divisor = n - 1 if self.sample else n
        with np.errstate(all="ignore"):
            variance = m2 / np.maximum(divisor, 1)
            result = np.sqrt(variance) if self.root else variance
        return make_array(pa.float64(), result, divisor > 0)
