"""Opens runs from the nearest tier that holds them whole.

This host's disk first; what is missing or bad there is fetched from checkpoint storage, checked
block by block (invariant 10), and kept, so that the next task on this host finds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.blocks import OpenRun
from holdfast.state.local import LocalRun, LocalRunWriter
from holdfast.state.run import Run
from holdfast.state.stored import StoredRun
from holdfast.storage import NotFoundError, Storage

__all__ = ["RunOpener", "local_path", "open_stored"]

logger = logging.getLogger("holdfast.recovery")

# Memory maps of this worker process, by path. Workers are reused from epoch to epoch, and opening
# a run again costs more than looking something up in it.
_open: dict[Path, LocalRun] = {}


def local_path(folder: Path, run_name: str) -> Path:
    """Where the local form of a run is, in a driver's folder."""
    return folder / f"{run_name}.run"


def open_stored(run: Run, storage: Storage) -> StoredRun:
    """The stored form of a run; ``CorruptionError`` if it is missing or bad."""
    stored = run.stored
    if stored is None:
        raise CorruptionError(
            f"run {run.name} of {run.table} has no stored form and its local file is gone",
            hint="restart the pipeline: it continues from the last checkpoint",
        )

    def read(start: int, length: int) -> bytes:
        try:
            return storage.get_range(stored.object, start, length)
        except NotFoundError:
            raise CorruptionError(
                f"run {run.name} of {run.table} is missing: there is no object {stored.object}"
            ) from None

    return StoredRun.open(run.name, stored, read)


class RunOpener:
    """Opens runs for one pipeline on one host."""

    def __init__(self, folder: Path, storage: Storage, *, verify: bool = False) -> None:
        self.folder = folder
        self.storage = storage
        self.verify = verify
        """Check whole local files before they are trusted: those of an earlier driver."""
        self.fetched_bytes = 0

    def open(self, run: Run) -> OpenRun:
        """The run, memory-mapped."""
        path = local_path(self.folder, run.name)
        known = _open.get(path)
        if known is None:
            known = _open[path] = self._from_disk(run, path) or self._fetch(run, path)
        return known

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget maps of this pipeline's runs that are not among ``names``: their files may go."""
        wanted = {local_path(self.folder, name) for name in names}
        for path in [p for p in _open if p.parent == self.folder and p not in wanted]:
            del _open[path]

    def _from_disk(self, run: Run, path: Path) -> LocalRun | None:
        if not path.exists():
            return None
        try:
            found = LocalRun.open(path, expected=run.local)
            if self.verify:
                found.verify()
        except CorruptionError as error:
            logger.warning("local copy of run %s is bad and will be replaced: %s", run.name, error)
            path.unlink(missing_ok=True)
            return None
        return found

    def _fetch(self, run: Run, path: Path) -> LocalRun:
        with _locked(path.with_suffix(".lock")):
            # Another task of this host may have fetched it while this one waited.
            found = self._from_disk(run, path)
            if found is not None:
                return found
            stored = open_stored(run, self.storage)
            writer = LocalRunWriter(path, stored.schema)
            try:
                for index in range(len(stored.blocks)):
                    writer.write(pa.Table.from_batches([stored.block(index)]))
                writer.close()
            except BaseException:
                writer.abort()
                raise
            self.fetched_bytes += run.stored.size_bytes if run.stored else 0
            return LocalRun.open(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
