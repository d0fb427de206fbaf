"""Where the outputs of a world go: a simulated system, or one of the real sinks.

A real sink's readers are as bad as readers may be: whatever is published may be gone a moment later.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import StorageError
from holdfast.sinks import memory, parquet
from holdfast.sinks._layout import looks_published
from holdfast.sinks._memory import MemorySink, forget
from holdfast.sinks.base import Sink
from holdfast.testing.simulation.outside import Outside, SimulatedSink
from holdfast.testing.simulation.processes import Process
from holdfast.testing.simulation.program import rows_of
from holdfast.testing.simulation.world import World

__all__ = ["Outlets"]

_KINDS = ("simulated", "simulated", "parquet", "epochs", "memory")
_FOLDERS = ("parquet", "epochs")
_LOOKS_S = 2.0


class Outlets:
    """The sinks of a world's pipeline, whoever drives it."""

    def __init__(
        self,
        world: World,
        outside: Outside,
        folder: Path,
        names: list[str],
        kinds: Sequence[str] = _KINDS,
    ) -> None:
        self._world = world
        self._outside = outside
        self._folder = folder
        self._draw = world.random("outlets")
        self._kinds = {name: self._draw.choice(kinds) for name in names}
        self._left: dict[str, set[str]] = {name: set() for name in names}
        """Per sink what its reader has seen, and left where it was."""
        self._memories: dict[str, list[str]] = {}
        """Per sink the names under which drivers keep its rows."""

    @property
    def has_folders(self) -> bool:
        """Whether some of them are folders of files."""
        return any(kind in _FOLDERS for kind in self._kinds.values())

    def open(self) -> None:
        """Readers begin to read."""
        self._world.tell(f"sinks: {self._kinds}")
        if self.has_folders:
            self._look_later()

    def close(self) -> None:
        """Nothing is left of them."""
        for names in self._memories.values():
            for name in names:
                forget(name)

    def sinks(self, driver: Process) -> dict[str, Sink]:
        """The sinks of one more driver."""
        return {name: self._made(name, kind, driver) for name, kind in self._kinds.items()}

    def _made(self, name: str, kind: str, driver: Process) -> Sink:
        if kind == "parquet":
            return parquet(self._folder / name)
        if kind == "epochs":
            return parquet(self._folder / name, epoch_column="published_in")
        if kind == "memory":
            # It is a process's own, and goes with it.
            mine = f"{self._folder}/{name}/{driver.label}"
            self._memories.setdefault(name, []).append(mine)
            return _Own(name, mine)
        return _Anybodys(self._outside, name, self._draw)

    def read(self) -> None:
        """Read all that is published by now, and leave some of it."""
        for name, kind in self._kinds.items():
            if kind in _FOLDERS:
                self._read_folder(name)
        for name, memories in self._memories.items():
            for one in memories:
                self._read_memory(name, one)

    def _read_memory(self, name: str, memory_name: str) -> None:
        known = self._outside.tables.setdefault(name, {})
        for epoch, rows in memory(memory_name).epochs.items():
            before = known.setdefault(epoch, rows)
            if before is not rows and _rows(before) != _rows(rows):
                self._wrong(f"epoch {epoch} of {name} was published again with other rows")

    def _look_later(self) -> None:
        def look() -> None:
            if not self._world.closed:
                self.read()
                self._look_later()

        self._world.later(self._draw.expovariate(1 / _LOOKS_S), look)

    def _read_folder(self, name: str) -> None:
        root, left = self._folder / name, self._left[name]
        there = [p for p in root.iterdir() if looks_published(p.name)] if root.is_dir() else []
        for gone in left.difference(path.name for path in there):
            self._wrong(f"{gone} of {name} was published, and is gone")
        known = self._outside.tables.setdefault(name, {})
        for path in sorted(there):
            if path.name not in left:
                epoch = _number(path)
                if epoch in known:
                    self._wrong(f"epoch {epoch} of {name} was published again")
                known[epoch] = _table(path)
                left.add(path.name)
            if self._draw.random() < 0.5:
                left.discard(path.name)
                _take_away(path)

    def _wrong(self, what: str) -> None:
        self._outside.wrong.append(what)


class _Own(MemorySink):
    """The memory sink of one of several processes, in each of which it has the same name."""

    def __init__(self, name: str, mine: str) -> None:
        super().__init__(mine)
        self._said = name

    def describe(self) -> str:
        """The name that it would have."""
        return f"rows in memory as {self._said!r}"


class _Anybodys(SimulatedSink):
    """A simulated sink whose errors are of all kinds: it is somebody else's code."""

    def __init__(self, outside: Outside, name: str, draw: Random) -> None:
        super().__init__(outside, name)
        self._draw = draw

    def deliver(self, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Give an epoch's rows away."""
        try:
            super().deliver(epoch, table, maybe_repeated=maybe_repeated)
        except StorageError as error:
            kind = self._draw.choice((StorageError, OSError, ValueError, pa.ArrowInvalid))
            raise kind(error.message) from error


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(rows_of(table), key=repr)


def _number(path: Path) -> int:
    return int("".join(filter(str.isdigit, path.name)))


def _table(path: Path) -> pa.Table:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def _take_away(path: Path) -> None:
    for file in path.iterdir() if path.is_dir() else ():
        file.unlink()
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
