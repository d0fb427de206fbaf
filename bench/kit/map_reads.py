"""What one read of a MapState costs, in a map of a thousand entries and in one of a million."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

import holdfast as hf
from holdfast.operators.base import Clock
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.tables import ProcessTables
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.local import write_local
from holdfast.state.run import Run, Segment
from holdfast.storage.memory import MemoryStorage
from holdfast.tasks.state import EpochState
from holdfast.tiers.opener import RunOpener, local_path

__all__ = ["MapReads", "measure_map_reads"]

_READS = 2_000


class MapReads(msgspec.Struct):
    """Microseconds a read, for each size of map."""

    entries: list[int]
    microseconds: list[float]


class _Carts(hf.KeyedProcess):
    output = "n long"
    items = hf.MapState("string", "long")


def measure_map_reads(sizes: Sequence[int], rounds: int = 5) -> MapReads:
    """Write a map of each size to disk and read entries of it one by one; the best round counts."""
    spent = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            cells = _written(Path(folder), size)
            random = np.random.default_rng(size)
            best = float("inf")
            for _ in range(rounds):
                names = [f"item-{i}" for i in random.integers(0, size, _READS)]
                began = time.perf_counter()
                found = sum(cells.maps["items"].get(name) is not None for name in names)
                best = min(best, time.perf_counter() - began)
                assert found == _READS
            spent.append(best / _READS * 1e6)
    return MapReads(list(sizes), spent)


def _written(folder: Path, size: int) -> Cells:
    tables = ProcessTables.of("process", [("user", pa.string())], [_Carts.items], ())
    clock, table_clock = Clock(0, 0), TableClock(0, None)
    opener = RunOpener(folder, MemoryStorage("bench"))
    hashes, keys = np.array([1 << 40], np.uint64), pa.table({"user": ["ann"]})

    def state(segments: dict[str, tuple[Segment, ...]]) -> EpochState:
        return EpochState(tables.all, segments, FULL_RANGE, opener, table_clock)

    empty = Cells(tables, {}, state({}), clock)
    empty.begin(hashes, keys)
    for i in range(size):
        empty.maps["items"].set(f"item-{i}", i)
    changes, _ = empty.finish()
    schema = tables.maps["items"]
    rows = changes[schema.table]
    info = write_local(local_path(folder, "1-map"), rows.schema, [rows])
    run = Run("1-map", schema.table, FULL_RANGE, 0, 0, info.rows, local=info.form)
    cells = Cells(tables, {}, state({schema.table: (Segment(run, FULL_RANGE),)}), Clock(1, 0))
    cells.begin(hashes, keys)
    return cells
