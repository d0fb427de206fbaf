"""Folders on a host's disk that only this user can have filled.

What lies in the local folder is mapped and used as state. Its place can be guessed, and the temporary
folder is everybody's: so a folder that somebody else made, or can write to, is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from itertools import pairwise
from pathlib import Path

__all__ = ["check_own", "make_own"]

_MODE = 0o700


def check_own(folder: Path) -> None:
    """Raise ``PermissionError``, in words, if somebody else could put files into a folder.

    One that isn't there is nobody's yet. What lies above it counts only where anybody can make
    folders: elsewhere whoever chose the place has to know whom it belongs to.
    """
    found = _status(folder)
    if found is not None:
        if stat.S_ISLNK(found.st_mode):
            raise _refused(folder, "it is a symbolic link")
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        if found.st_uid != os.geteuid():
            raise _refused(folder, f"it belongs to another user (uid {found.st_uid})")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            mode = stat.S_IMODE(found.st_mode)
            raise _refused(folder, f"other users can write to it (mode {mode:o})")
    known = [(above, _status(above)) for above in folder.parents]
    for (above, found), (_, around) in pairwise([*known, *known[-1:]]):
        if found is not None and _is_open(around) and found.st_uid not in (os.geteuid(), 0):
            raise _refused(above, f"it belongs to another user (uid {found.st_uid})")


def make_own(folder: Path) -> None:
    """Make a folder, and what is missing above it, for this user alone; raises as :func:`check_own`."""
    missing = []
    existing = folder
    while _status(existing) is None:
        missing.append(existing)
        existing = existing.parent
    for path in reversed(missing):
        path.mkdir(_MODE, exist_ok=True)
    check_own(folder)
    for path in (folder, folder.parent):
        if path == folder or _is_open(_status(path.parent)):
            _tighten(path)


def _tighten(path: Path) -> None:
    """Earlier versions made folders that others can read."""
    found = _status(path)
    if found is not None and found.st_uid == os.geteuid() and found.st_mode & 0o077:
        with contextlib.suppress(OSError):  # file systems without modes
            path.chmod(_MODE)


def _is_open(folder: os.stat_result | None) -> bool:
    """Whether anybody can make folders there, as in ``/tmp``."""
    return folder is not None and bool(folder.st_mode & stat.S_IWOTH)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _refused(folder: Path, why: str) -> PermissionError:
    return PermissionError(errno.EPERM, f"{folder} can't be trusted with state, for {why}")
