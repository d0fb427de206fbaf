"""Copies of stored runs on a host's disk: the bytes as they are in checkpoint storage."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

from holdfast import runtime
from holdfast.errors import CorruptionError
from holdfast.state.run import Run
from holdfast.state.stored import StoredRun
from holdfast.storage import NotFoundError, Storage

__all__ = ["copy_path", "open_copy", "write_copy"]

_PIECE_BYTES = 8 << 20
_AHEAD = 2


def copy_path(folder: Path, run_name: str) -> Path:
    """Where a copy of the stored form of a run is, in a driver's folder."""
    return folder / f"{run_name}.parquet"


def open_copy(run: Run, path: Path) -> StoredRun:
    """The stored form of a run at a path; ``CorruptionError`` if it doesn't end as it should.

    Its blocks are checked whenever they are read.
    """
    assert run.stored is not None
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != run.stored.size_bytes:
            raise CorruptionError(f"stored run {path}: it is not as long as what was written")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return StoredRun.open(
        str(path), run.stored, lambda start, length: mapped[start : start + length]
    )


def write_copy(
    run: Run, storage: Storage, path: Path, on_read: Callable[[int], None] | None = None
) -> None:
    """Bring the stored form of a run to a path, as it is, checked; it appears there when it is whole."""
    stored = run.stored
    assert stored is not None
    reader = storage.reader(stored.object)
    temporary = path.with_name(f"{path.name}.{runtime.new_id()}.tmp")

    def read(start: int) -> bytes:
        length = min(_PIECE_BYTES, stored.size_bytes - start)
        if on_read is not None:
            on_read(length)
        return reader(start, length)

    starts = range(0, stored.size_bytes, _PIECE_BYTES)
    try:
        with temporary.open("wb") as file:
            for data in runtime.ahead(read, starts, _AHEAD):
                file.write(data)
        open_copy(run, temporary).check_bytes()
        temporary.replace(path)
    except NotFoundError:
        raise CorruptionError(
            f"run {run.name} of {run.table} is missing: there is no object {stored.object}"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
