"""Distinct counts by HyperLogLog sketches that Spark makes and Apache DataSketches merges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import ConfigurationError
from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.columns import is_valid
from holdfast.operators.groups import RowGroups

__all__ = ["DistinctSketch", "datasketches"]


def datasketches() -> Any:
    """The DataSketches module, or an error that says how to get it."""
    try:
        import datasketches as module
    except ImportError:
        raise ConfigurationError(
            "approx_count_distinct needs the package 'datasketches', which is not installed",
            hint="pip install 'holdfast[sketches]', on the driver and on every executor",
        ) from None
    return module


class DistinctSketch(Merger):
    """About how many different values that are not null."""

    parts = (("sketch", pa.binary()),)
    result = pa.int64()

    def __init__(self, lg_k: int) -> None:
        self.lg_k = lg_k

    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """The union of the sketches of each group that has more than one."""
        sketches = parts[0]
        valid = is_valid(sketches)
        rows = np.arange(groups.total) if groups.order is None else groups.order
        if valid is not None:
            rows = rows[valid[rows]]
        ids = groups.ids[rows]
        sizes = np.bincount(ids, minlength=groups.count)
        ends = np.cumsum(sizes)
        firsts = np.where(sizes > 0, ends - sizes, 0)
        # A group without a sketch keeps a null, which one of its own rows provides.
        first_rows = np.where(sizes > 0, rows[firsts] if len(rows) else 0, groups.starts)
        single = sketches.take(pa.array(first_rows))
        several = sizes > 1
        if not several.any():
            return [single]
        shared = sketches.take(pa.array(rows[several[ids]])).to_pylist()
        cuts = np.concatenate(([0], np.cumsum(sizes[several]))).tolist()
        unions = [self._union(shared[a:b]) for a, b in pairwise(cuts)]
        return [pc.replace_with_mask(single, pa.array(several), pa.array(unions, pa.binary()))]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The estimate of each sketch, rounded half up as Java does."""
        read = datasketches().hll_sketch.deserialize
        estimates = [
            0 if sketch is None else math.floor(read(sketch).get_estimate() + 0.5)
            for sketch in parts[0].to_pylist()
        ]
        return pa.array(estimates, pa.int64())

    def _union(self, sketches: list[bytes]) -> bytes:
        library = datasketches()
        union = library.hll_union(self.lg_k)
        for sketch in sketches:
            union.update(library.hll_sketch.deserialize(sketch))
        result: bytes = union.get_result(library.tgt_hll_type.HLL_8).serialize_compact()
        return result
