"""Opens runs from the nearest tier that holds them.

This host's disk first: the local form, or else a *copy* of the stored form, whose blocks are decoded
as they are used. What is missing or bad there comes from checkpoint storage, checked block by block
(invariant 10): as a whole, and kept, so that the next task on this host finds it; or, if only few
keys are wanted and nobody should wait for the rest, block by block on demand.

A copy is there as soon as its bytes are. The local form takes several times as long, for all of it
has to be decoded and written; so after a loss a host gets copies, and decodes them when it has time.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import runtime
from holdfast.errors import CorruptionError, StateLostError
from holdfast.state.blocks import OpenRun
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.local import LocalRun, LocalRunWriter
from holdfast.state.run import Run
from holdfast.state.stored import StoredRun
from holdfast.storage import NotFoundError, Storage
from holdfast.tiers.own_folder import make_own
from holdfast.tiers.stored_copy import copy_path, open_copy, write_copy

__all__ = ["RunOpener", "local_path", "open_local", "open_stored"]

logger = logging.getLogger("holdfast.recovery")

# Memory maps of this worker process, by path. Workers are reused from epoch to epoch, and opening
# a run again costs more than looking something up in it.
_open: dict[Path, LocalRun] = {}
# The same for runs that are read on demand until they are on this host's disk, and for copies.
_on_demand: dict[Path, StoredRun] = {}
_copies: dict[Path, StoredRun] = {}


# So many keys per block make on demand touch nearly all of a run, though perhaps only its hashes.
_MOST_PER_BLOCK = 2


class _Counter:
    """Bytes that this process has read from storage: an open run outlives the task that opened it."""

    def __init__(self) -> None:
        self._lock = runtime.lock()
        self.total = 0

    def add(self, length: int) -> None:
        with self._lock:
            self.total += length


_read = _Counter()


def local_path(folder: Path, run_name: str) -> Path:
    """Where the local form of a run is, in a driver's folder."""
    return folder / f"{run_name}.run"


def open_local(run: Run, path: Path, *, verify: bool = False) -> LocalRun:
    """The local form of a run at a path; ``CorruptionError`` if the file is bad or another run's.

    It must be the file that was written with the run, by the checksum of its index, or say that it
    was decoded from the run's stored form: such a one need not have the same bytes, for Arrow pads
    buffers as they come.
    """
    found = LocalRun.open(path, verify=verify)
    written = run.local is not None and found.checksum == run.local.checksum
    if not written and (run.stored is None or found.decoded_from != run.stored.checksum):
        raise CorruptionError(
            f"local run {path}: it is not the file of run {run.name}", on_disk=True
        )
    if (found.totals.rows, found.totals.tombstones) != (run.rows, run.tombstones):
        raise CorruptionError(
            f"local run {path}: it has {found.totals.rows} rows, but run {run.name} has {run.rows}",
            on_disk=True,
        )
    return found


def open_stored(
    run: Run, storage: Storage, on_read: Callable[[int], None] | None = None
) -> StoredRun:
    """The stored form of a run; ``CorruptionError`` if it is missing or bad.

    ``on_read`` is told the number of bytes of each read.
    """
    stored = run.stored
    if stored is None:
        held = ", ".join(run.local.hosts) if run.local else "nobody"
        raise StateLostError(
            f"run {run.name} of {run.table} is in no checkpoint yet and not on this host's disk "
            f"(written on {held})",
            hint="restart the pipeline: it continues from the last checkpoint",
        )

    reader = storage.reader(stored.object)

    def read(start: int, length: int) -> bytes:
        if on_read is not None:
            on_read(length)
        try:
            return reader(start, length)
        except NotFoundError:
            raise CorruptionError(
                f"run {run.name} of {run.table} is missing: there is no object {stored.object}"
            ) from None

    return StoredRun.open(run.name, stored, read)


class RunOpener:
    """Opens runs for one pipeline on one host."""

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        *,
        verify: bool = False,
        own_claim: int | None = None,
        wanted_keys: int | None = None,
        within: HashRange = FULL_RANGE,
    ) -> None:
        self.folder = folder
        self.storage = storage
        self.verify = verify
        """Check whole local files before they are trusted: those of an earlier driver."""
        self.own_claim = own_claim
        """Check the blocks of runs of other claims when they are first used."""
        self.wanted_keys = wanted_keys
        """How many keys are wanted: if they are few, runs are not fetched as a whole. None: all;
        0: whatever is wanted, nothing is kept."""
        self.within = within
        """Where these keys are."""
        self._read_before = _read.total
        self.fetched: list[str] = []
        """Names of the runs that were brought to this host's disk."""
        self.local_bytes = 0
        """Size of the runs that were opened on this host's disk."""
        self._opened: dict[Path, Run] = {}

    @property
    def fetched_bytes(self) -> int:
        """What was read from storage since this opener was made."""
        return _read.total - self._read_before

    def open(self, run: Run) -> OpenRun:
        """The run, memory-mapped if it is on this host's disk or worth bringing there."""
        path = local_path(self.folder, run.name)
        known: OpenRun | None = _known(path) or self._mapped(run, path)
        if known is not None:
            if path not in self._opened:
                self.local_bytes += run.size_bytes
                self._opened[path] = run
            return known
        if run.stored is None:
            return self.fetch(run)
        copied = self._copied(run)
        if copied is not None:
            return copied
        if self.wanted_keys is not None:
            stored = _on_demand.get(path) or open_stored(run, self.storage, _read.add)
            if self.wanted_keys == 0 or self._expected(run) < _MOST_PER_BLOCK * len(stored.blocks):
                _on_demand[path] = stored
                return stored
            return self.copy(run)
        return self.fetch(run)

    def fetch(self, run: Run) -> LocalRun:
        """The run in its local form, on this host's disk from now on."""
        path = local_path(self.folder, run.name)
        found = _open[path] = _known(path) or self._mapped(run, path) or self._fetch(run, path)
        return found

    def copy(self, run: Run) -> OpenRun:
        """The run in whichever form is on this host's disk; in its stored form if none was."""
        path = local_path(self.folder, run.name)
        with _locked(path.with_suffix(".lock")):
            # Another task of this host may have brought it while this one waited.
            found: OpenRun | None = _known(path) or self._mapped(run, path) or self._copied(run)
            if found is None:
                write_copy(run, self.storage, copy_path(self.folder, run.name), _read.add)
                self.fetched.append(run.name)
                found = self._copied(run)
        assert found is not None
        return found

    def keep_only(self, names: Collection[str]) -> None:
        """Forget maps of this pipeline's runs that are not among ``names``: their files may go.

        Those of files that are gone are forgotten whoever opened them: a worker may have worked for
        an earlier claim, whose folder nobody asks for again, and the disk has no room from a file
        while it is mapped.
        """
        self._forget(_open, local_path, names, os.path.exists)
        self._forget(_copies, copy_path, names, os.path.exists)
        # These have no file: they go with the folder.
        self._forget(_on_demand, local_path, names, lambda path: path.parent.exists())

    def _forget(
        self,
        known: dict[Path, Any],
        path_of: Callable[[Path, str], Path],
        names: Collection[str],
        is_there: Callable[[Path], bool],
    ) -> None:
        if not known:
            return
        wanted = {path_of(self.folder, name) for name in names}
        for path in list(known):
            if (path.parent == self.folder and path not in wanted) or not is_there(path):
                known.pop(path, None)

    def delete(self, name: str) -> None:
        """Delete a run's local files; whoever needs it again gets it from storage."""
        _drop(_open, local_path(self.folder, name))
        _drop(_copies, copy_path(self.folder, name))

    def drop_bad(self) -> list[str]:
        """Delete opened local files that are not what was written; the names of their runs."""
        bad = []
        for path, run in self._opened.items():
            try:
                is_copy = path == copy_path(self.folder, run.name)
                (open_copy if is_copy else open_local)(run, path).verify()
            except (CorruptionError, FileNotFoundError) as error:
                logger.warning("local copy of run %s is bad and is deleted: %s", run.name, error)
                self.delete(run.name)
                bad.append(run.name)
        return bad

    def _copied(self, run: Run) -> StoredRun | None:
        """A copy of the run's stored form, if it is on this host's disk and right."""
        path = copy_path(self.folder, run.name)
        found = _copies.get(path)
        if not path.exists():
            _copies.pop(path, None)
            return None
        if found is None:
            try:
                found = open_copy(run, path)
                if self.verify:
                    found.verify()
            except FileNotFoundError:
                return None  # another worker has just decoded it
            except CorruptionError as error:
                logger.warning("copy of run %s is bad and will be replaced: %s", run.name, error)
                path.unlink(missing_ok=True)
                return None
            _copies[path] = found
            _on_demand.pop(local_path(self.folder, run.name), None)
        if path not in self._opened:
            self.local_bytes += run.size_bytes
            self._opened[path] = run
        return found

    def _whole_copy(self, run: Run) -> StoredRun | None:
        """A copy of which every byte is right; one that isn't goes, for nothing else would mend it."""
        copied = self._copied(run)
        try:
            if copied is not None:
                copied.check_bytes()
        except CorruptionError as error:
            logger.warning("copy of run %s is bad and will be replaced: %s", run.name, error)
            _drop(_copies, copy_path(self.folder, run.name))
            return None
        return copied

    def _expected(self, run: Run) -> float:
        """How many of the wanted keys a run may have: hashes are spread evenly."""
        assert self.wanted_keys is not None
        shared = run.range.intersect(self.within)
        return 0.0 if shared is None else self.wanted_keys * shared.width / self.within.width

    def _mapped(self, run: Run, path: Path) -> LocalRun | None:
        found = self._from_disk(run, path)
        if found is not None:
            _open[path] = found
            _on_demand.pop(path, None)
        return found

    def _from_disk(self, run: Run, path: Path) -> LocalRun | None:
        if not path.exists():
            return None
        try:
            foreign = self.own_claim is not None and run.claim != self.own_claim
            found = open_local(run, path, verify=foreign)
            if self.verify:
                found.verify()
        except FileNotFoundError:
            return None  # another worker has just deleted it: the disk has a limit
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
            copied = self._whole_copy(run)
            stored = copied or open_stored(run, self.storage, _read.add)
            assert run.stored is not None
            writer = LocalRunWriter(path, stored.schema, run.stored.checksum)
            try:
                for batch in stored.blocks_at(range(len(stored.blocks))):
                    writer.write(pa.Table.from_batches([batch]))
                writer.close()
            except BaseException:
                writer.abort()
                raise
            if copied is None:
                self.fetched.append(run.name)
            _drop(_copies, copy_path(self.folder, run.name))
            return LocalRun.open(path)


def _known(path: Path) -> LocalRun | None:
    """This worker's map of a file, unless another worker has deleted the file.

    The disk has no room from that while the file is mapped.
    """
    found = _open.get(path)
    if found is not None and not path.exists():
        _open.pop(path, None)
        return None
    return found


def _drop(known: dict[Path, Any], path: Path) -> None:
    """Delete a file, and forget that it was open."""
    known.pop(path, None)
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    make_own(path.parent)
    with runtime.file_lock(path):
        yield
