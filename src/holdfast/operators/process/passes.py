"""Passes over the keys of a task: rows first, then timers that are due, each on what the one before left.

A pass works through its keys in chunks. Its changes are kept as Arrow rows; the next pass reads
them on top of the state before the epoch, and in the end the passes' changes become one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.base import StateReader
from holdfast.operators.process.cells import Cells
from holdfast.operators.process.program import Chunk, ProgramOutput
from holdfast.state.hashing import FULL_RANGE, Hashes
from holdfast.state.memory import MemoryRun
from holdfast.state.merge import merge_runs
from holdfast.state.schema import TableSchema

__all__ = ["Passes", "WorkKeys"]

CHUNK_KEYS = 8192
_HIGH = np.uint64(32)


@dataclass(frozen=True, slots=True)
class WorkKeys:
    """Distinct keys, sorted by (hash, key), and their rows, key after key."""

    hashes: Hashes
    keys: pa.Table
    rows: pa.Table
    offsets: npt.NDArray[np.int64]
    """Key i has the rows ``offsets[i]`` to ``offsets[i + 1]``."""

    def chunks(self, size: int) -> Iterator[tuple[Hashes, Chunk]]:
        """The keys in chunks; never cut between keys whose entries lie among each other's."""
        count, start = len(self.hashes), 0
        while start < count:
            end = min(count, start + size)
            while end < count and self.hashes[end] >> _HIGH == self.hashes[end - 1] >> _HIGH:
                end += 1
            first, last = int(self.offsets[start]), int(self.offsets[end])
            yield (
                self.hashes[start:end],
                Chunk(
                    self.keys.slice(start, end - start),
                    self.rows.slice(first, last - first),
                    (self.offsets[start : end + 1] - first).tolist(),
                ),
            )
            start = end


@dataclass
class Passes:
    """The passes of one piece of a task, one after the other."""

    cells: Cells
    state: StateReader
    schemas: Mapping[str, TableSchema]
    outputs: list[pa.Table] = field(default_factory=list)
    sides: dict[str, list[pa.Table]] = field(default_factory=dict)
    new_keys: int = 0
    _changes: list[dict[str, list[pa.Table]]] = field(default_factory=list)
    _items: int = 0
    """Items that a pass appends to lists are numbered from here: behind those of the passes before."""

    def run(
        self, work: WorkKeys, act: Callable[[Chunk], ProgramOutput], chunk_keys: int | None = None
    ) -> None:
        """One pass: ``act`` on every chunk of keys."""
        self.cells.use(self._before())
        made: dict[str, list[pa.Table]] = {}
        most = 0
        for hashes, chunk in work.chunks(chunk_keys or CHUNK_KEYS):
            self.cells.begin(hashes, chunk.keys)
            with _no_collection():
                result = act(chunk)
            most = max(most, self.cells.most_appended)
            changes, new = self.cells.finish(self._items)
            self.new_keys += new
            for table, rows in changes.items():
                made.setdefault(table, []).append(rows)
            self.outputs.append(result.output)
            for name, side in result.sides.items():
                self.sides.setdefault(name, []).append(side)
        self._changes.append(made)
        self._items += most

    def last_hints(self, table: str) -> list[pa.Table]:
        """Rows of a timed table that the last pass has written."""
        return self._changes[-1].get(table, []) if self._changes else []

    def settle(self) -> None:
        """Make one of all passes so far: many would make each look-up longer."""
        self._changes = [{table: [rows] for table, rows in self.changes().items()}]

    def hints(self, table: str) -> list[pa.Table]:
        """Rows of a timed table that the passes so far have written."""
        return [rows for made in self._changes for rows in made.get(table, ())]

    def changes(self) -> dict[str, pa.Table]:
        """Everything that changed, the newest row of each key."""
        return {table: self._merged(table) for table in self._tables()}

    def _before(self) -> StateReader:
        tables = {t: list(self._newest_first(t)) for t in self._tables()}
        return self.state.overlaid(tables) if tables else self.state

    def _tables(self) -> list[str]:
        return list(dict.fromkeys(table for made in self._changes for table in made))

    def _newest_first(self, table: str) -> Sequence[pa.Table]:
        parts = [made[table] for made in self._changes if table in made]
        return [_together(rows) for rows in reversed(parts)]

    def _merged(self, table: str) -> pa.Table:
        schema, layers = self.schemas[table], self._newest_first(table)
        if len(layers) == 1 or schema.timed:
            return layers[0] if len(layers) == 1 else _together(layers)
        runs = [(MemoryRun(table, rows), FULL_RANGE) for rows in layers]
        return pa.concat_tables(merge_runs(schema, runs, FULL_RANGE, drop_tombstones=False))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's cycle collector from walking over all values of a chunk again and again: a
    quarter of the time of a small process. It comes into its own after each chunk."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of several, some of which may have no tombstones."""
    if len(tables) == 1:
        return tables[0]
    widest = max(tables, key=lambda table: table.num_columns).schema
    filled = [
        table
        if table.num_columns == len(widest)
        else table.append_column(widest[-1], pa.array(np.zeros(table.num_rows, np.bool_)))
        for table in tables
    ]
    return pa.concat_tables(filled).combine_chunks()
