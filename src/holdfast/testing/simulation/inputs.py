"""What a simulated stream reads: rows that a seed decides, which come bit by bit and are never lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

import pyarrow as pa

from holdfast.checkpoint.entry import EpochRecord
from holdfast.testing.simulation.program import EpochInput, Program

__all__ = ["Inputs", "Ranges", "SimulatedBatch", "offsets_text", "ranges_after"]

Ranges = tuple[int, ...]
"""How many pieces of each source have been read."""


class Inputs:
    """The sources of a world, each in pieces with numbers."""

    def __init__(self, program: Program, seed: str) -> None:
        self.program = program
        self._seed = seed
        self._made: dict[tuple[int, int], pa.Table] = {}
        self.count = program.sources
        self.available = [0] * self.count
        """How many pieces of each source can be read by now."""
        self.ended = False
        """Whether the sources have said that nothing more will come."""

    def piece(self, source: int, number: int) -> pa.Table:
        """A piece, the same whenever it is asked for."""
        key = (source, number)
        if key not in self._made:
            rng = Random(f"{self._seed}/rows/{source}/{number}")  # noqa: S311
            self._made[key] = self.program.rows(source, number, rng)
        return self._made[key]

    def pieces(self, source: int, first: int, end: int) -> list[pa.Table]:
        """Some pieces in their order."""
        return [self.piece(source, number) for number in range(first, end)]

    def read_by(self, offsets: str) -> Ranges:
        """How much of each source had been read, as a file of offsets says."""
        return ranges_after(offsets, self.count)

    def epochs(self, records: list[EpochRecord]) -> list[EpochInput]:
        """What these epochs, which follow each other, have read."""
        found, before = [], (0,) * self.count
        for record in records:
            after = ranges_after(record.offsets, self.count)
            whole = []
            for source in range(self.count):
                pieces = self.pieces(source, before[source], after[source])
                empty = self.piece(source, 0).schema.empty_table()
                whole.append(pa.concat_tables([empty, *pieces]))
            found.append(EpochInput(record, tuple(whole)))
            before = after
        return found


def offsets_text(ranges: Ranges, ticks: int | None) -> str:
    """A file of offsets as Spark writes them: a line per source, and the ticks last."""
    lines = [json.dumps({"pieces": end}) if end else "-" for end in ranges]
    if ticks is not None:
        lines.append(str(ticks) if ticks else "-")
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *lines])


def ranges_after(offsets: str, count: int) -> Ranges:
    """How much had been read of each source, as such a file says."""
    lines = offsets.split("\n")[2 : 2 + count]
    return tuple(0 if line == "-" else int(json.loads(line)["pieces"]) for line in lines)


@dataclass(frozen=True)
class SimulatedBatch:
    """An epoch's input."""

    first: Ranges
    end: Ranges

    @property
    def has_rows(self) -> bool:
        """Whether any source has moved."""
        return self.first != self.end
