"""Folders that belong to a process: whoever comes later removes those whose process is gone."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast import runtime

__all__ = ["OwnFolders", "until_exit"]


class OwnFolders:
    """Folders in ``root`` whose names begin with ``prefix``, each locked as long as its process lives.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> folders = OwnFolders(root, "work-")
    >>> made = folders.make()
    >>> OwnFolders(root, "work-").sweep()  # somebody uses it
    >>> made.exists()
    True
    >>> folders.remove(made)
    >>> made.exists()
    False
    """

    def __init__(self, root: Path, prefix: str) -> None:
        self._root = root
        self._prefix = prefix
        self._locks: dict[Path, Callable[[], None]] = {}
        """What gives the lock of each back."""

    def make(self) -> Path:
        """Make a folder for this user alone."""
        while True:
            folder = self._root / f"{self._prefix}{runtime.new_id()}{runtime.new_id()}"
            folder.mkdir(0o700)
            with suppress(FileNotFoundError):  # a sweep came before the lock
                lock = runtime.hold(folder, wait=True)
                assert lock is not None
                self._locks[folder] = lock
                if folder.exists():
                    return folder
                self.release(folder)

    def remove(self, folder: Path) -> None:
        """Remove a folder, if it is still there under this name."""
        shutil.rmtree(folder, ignore_errors=True)
        self.release(folder)

    def release(self, folder: Path) -> None:
        """A folder has another name now, and is nobody's here."""
        lock = self._locks.pop(folder, None)
        if lock is not None:
            lock()

    def sweep(self) -> None:
        """Remove folders of processes that were killed: nobody holds their locks any more."""
        # Others may have folders there whose names begin alike, and know nothing of locks.
        for folder in self._root.glob(f"{self._prefix}{'[0-9a-f]' * 32}"):
            # In a folder that is for everybody they may be another user's, or no folders at all.
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                if folder.lstat().st_uid != os.geteuid():
                    continue
                lock = runtime.hold(folder, wait=False)
                if lock is None:
                    continue  # its process lives
                try:
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    lock()


def until_exit(prefix: str) -> Path:
    """A new folder for temporary files that lasts as long as this process; those of killed ones go.

    >>> folder = until_exit("holdfast-example-")
    >>> folder.is_dir(), folder.parent == Path(tempfile.gettempdir())
    (True, True)
    """
    folders = OwnFolders(Path(tempfile.gettempdir()), prefix)
    folders.sweep()
    folder = folders.make()
    atexit.register(folders.remove, folder)
    return folder
