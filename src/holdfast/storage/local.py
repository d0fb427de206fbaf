"""Checkpoint storage in a folder of a POSIX file system.

An object becomes visible in one step and only when it is complete and on the disk: it is written to
a temporary file in ``.tmp/`` (the same file system), fsynced, then linked to its name
(``put_if_absent``: of many racers the kernel lets exactly one link) or renamed over it (``put``),
and the folder is fsynced. A writer that dies leaves at most a temporary file, which no listing
shows and :meth:`LocalStorage.sweep` removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast.errors import ConfigurationError, StorageError
from holdfast.failpoints import failpoint
from holdfast.storage.base import (
    Buffer,
    NotFoundError,
    ObjectInfo,
    Storage,
    check_name,
    check_prefix,
    check_range,
    is_safe_part,
)

__all__ = ["LocalStorage", "check_no_home"]

_TEMPORARY = ".tmp"  # no object name may begin with a dot, so it can't clash

_HINTS = {
    errno.ENOSPC: "free some space on that file system, or use another directory",
    errno.EDQUOT: "the disk quota is used up: free some space or have it raised",
    errno.EACCES: "give this user permission to read and write there",
    errno.EPERM: "the file system refuses this (are hard links supported?): use another directory",
    errno.ENOTSUP: "the file system has no hard links: use another directory",
    errno.EROFS: "the file system is mounted read-only: mount it writable or use another directory",
    errno.ENOTDIR: "a file stands where a folder is needed: move it away",
    errno.EEXIST: "a file stands where a folder is needed, or the other way round: move it away",
    errno.EISDIR: "a folder stands where an object is needed: move it away",
    errno.ENAMETOOLONG: "use a directory with a shorter path",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the disk reports errors: check its health (dmesg), then retry",
    errno.ESTALE: "the network file system lost the directory: mount it again, then retry",
}


def check_no_home(path: str | os.PathLike[str]) -> None:
    """Raise ``ConfigurationError`` for ``~/ck``, which shells would expand and nobody does here.

    >>> check_no_home("/data/~/ck")
    """
    if os.fspath(path).startswith("~"):
        raise ConfigurationError(
            f"{os.fspath(path)!r} would be a folder {Path(path).parts[0]!r} below {Path.cwd()}: only shells "
            "know what it means",
            hint=f"say os.path.expanduser({os.fspath(path)!r}), or give the path from / on",
        )


class LocalStorage(Storage):
    """Objects as files below ``root``, which the first write creates.

    >>> import tempfile
    >>> storage = LocalStorage(Path(tempfile.mkdtemp()) / "ck")
    >>> storage.put_if_absent("log/0.json", b"one"), storage.put_if_absent("log/0.json", b"two")
    (True, False)
    >>> [(info.name, info.size_bytes) for info in storage.list("log/")]
    [('log/0.json', 3)]
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - symbolic links stay as they are
        self.url = self.root.as_uri()
        self._durable: set[Path] = set()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self.root)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStorage, (str(self.root),))

    def get(self, name: str) -> bytes:
        """The whole object."""
        with self._errors("read", name):
            return self._path(name).read_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` (less at the end of the object)."""
        check_range(start, length)
        with self._errors("read", name), self._path(name).open("rb", buffering=0) as file:
            pieces = []
            # Of what isn't there nothing is asked for: room for it would be made first.
            length = min(length, os.fstat(file.fileno()).st_size - start)
            while length > 0 and (piece := os.pread(file.fileno(), length, start)):
                pieces.append(piece)
                start, length = start + len(piece), length - len(piece)
            return b"".join(pieces)

    def put(self, name: str, data: Buffer) -> None:
        """Create or replace an object, durably."""
        self._write(name, data, _replace)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Create an object, durably; False if there is one."""
        return not self.exists(name) and self.create(name, data)

    def create(self, name: str, data: Buffer) -> bool:
        """The same, without a look."""
        return self._write(name, data, _link)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with ``prefix``, in order of name."""
        folder, _, beginning = check_prefix(prefix).rpartition("/")
        return self._walk(f"{folder}/" if folder else "", beginning)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that don't exist are no error."""
        for name in names:
            with contextlib.suppress(NotFoundError), self._errors("delete", name):
                self._path(name).unlink()

    def size(self, name: str) -> int:
        """The object's size in bytes."""
        with self._errors("look at", name):
            status = self._path(name).stat()
        if not stat.S_ISREG(status.st_mode):
            raise NotFoundError(name)
        return status.st_size

    def sweep(self, older_than_s: float) -> int:
        """Remove temporary files that were last written longer ago than that.

        Should a writer be alive after all (paused, say), its link fails and it reports an error:
        an object can't appear without its data.
        """
        removed = 0
        before = time.time() - older_than_s
        with contextlib.suppress(NotFoundError), self._errors("sweep", _TEMPORARY):
            for entry in os.scandir(self._inside(self.root / _TEMPORARY)):
                with contextlib.suppress(FileNotFoundError):  # its writer was faster
                    if entry.stat().st_mtime <= before:
                        Path(entry.path).unlink()
                        removed += 1
        return removed

    def _path(self, name: str) -> Path:
        path = self.root / check_name(name)
        self._inside(path.parent)
        return path

    def _inside(self, folder: Path) -> Path:
        """The folder, if no link below the root leads out of it.

        Whoever fills a directory could else have its user's own files deleted, wherever they are.
        """
        for part in (folder, *folder.parents):
            if part == self.root:
                break
            if part.is_symlink():
                raise StorageError(
                    f"{part} is a symbolic link, but checkpoint storage must be all in one folder",
                    hint="put the folder that it points to in its place; if you don't know who made the "
                    "link, don't use the directory",
                )
        return folder

    def _write(self, name: str, data: Buffer, publish: Callable[[Path, Path], bool]) -> bool:
        target = self._path(name)
        temporary = self.root / _TEMPORARY / f"{os.getpid()}-{uuid.uuid4().hex}"
        with self._errors("write", name, missing_is_error=True):
            self._make_folder(self._inside(temporary.parent))
            self._make_folder(target.parent)
            try:
                _write_file(temporary, data)
                failpoint("storage.local.before_link")
                published = publish(temporary, target)
                failpoint("storage.local.after_link")
                if published:
                    _sync_folder(target.parent)
                return published
            finally:
                with contextlib.suppress(FileNotFoundError):
                    temporary.unlink()

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and its parents so that they survive a crash of the machine.

        A folder that is there already may have been made a moment ago by a process that hasn't
        synced it yet, so inside the root the parent is synced at first use in any case.
        """
        if folder in self._durable and folder.exists():
            return
        inside = folder != self.root and self.root in folder.parents
        if inside or not folder.parent.exists():
            self._make_folder(folder.parent)
        existed = folder.is_dir()
        folder.mkdir(exist_ok=True)
        if not existed or inside:
            _sync_folder(folder.parent)
        self._durable.add(folder)

    def _walk(self, folder: str, beginning: str) -> Iterator[ObjectInfo]:
        """Objects in ``folder`` (empty or ending in /) whose name there starts with ``beginning``."""
        found: list[tuple[str, os.DirEntry[str]]] = []
        with (
            contextlib.suppress(NotFoundError),
            self._errors("list", folder),
            os.scandir(self._inside(self.root / folder)) as scan,
        ):
            # A folder sorts as "name/", where its objects belong in order of full names.
            found = sorted(
                (entry.name + "/" if entry.is_dir() else entry.name, entry)
                for entry in scan
                if entry.name.startswith(beginning) and is_safe_part(entry.name)
            )
        for name, entry in found:
            if name.endswith("/"):
                yield from self._walk(folder + name, "")
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted while we were listing
                status = entry.stat()
                yield ObjectInfo(folder + name, status.st_size, status.st_mtime)

    @contextlib.contextmanager
    def _errors(self, verb: str, name: str, *, missing_is_error: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            missing = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
            if error.errno in missing and not missing_is_error:
                raise NotFoundError(name) from error
            reason = error.strerror or str(error)
            raise StorageError(
                f"can't {verb} {name!r} in {self.root}: {reason}",
                hint=_HINTS.get(error.errno or 0, "check the directory, then retry"),
            ) from error


def _write_file(path: Path, data: Buffer) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        failpoint("storage.local.write")
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(temporary: Path, target: Path) -> bool:
    temporary.replace(target)
    return True


def _link(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        if target.is_dir():
            raise
        # A network file system may repeat a link whose reply was lost, and then say "exists";
        # a second name of our own temporary file shows that the first try had worked.
        return temporary.stat().st_nlink > 1
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
