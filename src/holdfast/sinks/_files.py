"""What file sinks need of a POSIX file system: durability, and errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import runtime
from holdfast.errors import StorageError

__all__ = ["create_file", "make_folder", "storage_errors", "sync"]

_HINTS = {
    errno.ENOSPC: "free some space on that file system; output that an entry covers is not lost",
    errno.EDQUOT: "free some space or have the disk quota raised",
    errno.EACCES: "give the user that runs this permission to write there",
    errno.EPERM: "use a folder on a file system with hard links, owned by the user that runs this",
    errno.ENOTSUP: "use a folder on a file system with hard links",
    errno.EROFS: "mount the file system writable, or use another folder",
    errno.ENOENT: "make sure that driver and executors all see this folder, and nobody removes it",
    errno.EIO: "check the disk's health, then retry",
}


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn an ``OSError`` into a ``StorageError`` that says what was being done."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"can't {doing}: {reason}",
            hint=_HINTS.get(error.errno or 0, "mend the file system, then retry"),
        ) from error


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def create_file(path: Path, data: bytes) -> bool:
    """Create a file, complete and durable when visible; False if there is one already."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync(path.parent)
    return True


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}-{runtime.new_id()}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
