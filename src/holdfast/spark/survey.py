"""What runs in a task to find out what is on a host's disk, and to put it in order.

Nothing here is remembered between calls: the disk is the truth, names and checksums say what is what.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from holdfast.errors import CorruptionError
from holdfast.recovery.opener import RunOpener, local_path, open_local
from holdfast.spark.placed import task_host
from holdfast.state.run import Run
from holdfast.storage import Storage

__all__ = [
    "Found",
    "fetch_runs",
    "leave_mark",
    "probe",
    "remove_marks",
    "see_marks",
    "survey",
    "tidy",
]

# No attempt takes that long from its last write to its report.
_LEFT_ALONE_S = 3600.0


class Found(msgspec.Struct, frozen=True):
    """What a task saw on its host."""

    host: str
    runs: tuple[str, ...] = ()
    """Runs that are whole on its disk."""
    seconds: float = 0.0
    """How long the task took."""
    error: str = ""


def survey(root: Path, claim: int, runs: Mapping[str, Run]) -> Found:
    """Take over what this host's disk has of ``runs``, into the folder of a claim.

    Files are recognised by name, and by an index with a right checksum; they are linked, not copied.
    What lower claims have besides goes.
    """
    host = task_host() or ""
    folder = root / str(claim)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_writable(folder)
        older = [p for p in root.iterdir() if p.name.isdigit() and int(p.name) < claim]
        older.sort(key=lambda p: int(p.name), reverse=True)
        found = [name for name, run in runs.items() if _taken_over(run, folder, older)]
        for path in older:
            shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        return Found(host, error=f"{error.strerror or error}: {error.filename or folder}")
    return Found(host, tuple(found))


def probe(root: Path) -> Found:
    """Whether local forms could be written on this host; changes nothing that stays."""
    host = task_host() or ""
    existing = root
    while not existing.exists():
        existing = existing.parent
    try:
        _check_writable(existing)
    except OSError as error:
        return Found(host, error=f"{error.strerror or error}: {root}")
    return Found(host)


def leave_mark(folder: Path, name: str) -> None:
    """Leave a file for other executors to see; who can't, won't be seen."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def see_marks(folder: Path) -> list[str]:
    """The files that executors left."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def remove_marks(folder: Path) -> None:
    """Remove them."""
    shutil.rmtree(folder, ignore_errors=True)


def fetch_runs(folder: Path, storage: Storage, runs: tuple[Run, ...], claim: int) -> Found:
    """Bring runs from checkpoint storage to this host's disk."""
    began = time.monotonic()
    opener = RunOpener(folder, storage, own_claim=claim)

    def fetch(run: Run) -> str:
        try:
            opener.fetch(run)
        except (CorruptionError, OSError) as problem:
            return str(problem)
        return ""

    # Two: while one waits for its last blocks, or checksums what it has written, the other decodes.
    with ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(fetch, runs))
    done = [run.name for run, problem in zip(runs, problems, strict=True) if not problem]
    error = "; ".join(filter(None, problems))
    return Found(task_host() or "", tuple(done), time.monotonic() - began, error)


def tidy(folder: Path, live: frozenset[str]) -> Found:
    """Delete what attempts that came to nothing left here a while ago."""
    before = time.time() - _LEFT_ALONE_S
    for path in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.stem.partition(".")[0] not in live and path.stat().st_mtime < before:
                path.unlink()
    return Found(task_host() or "")


def _taken_over(run: Run, folder: Path, older: list[Path]) -> bool:
    path = local_path(folder, run.name)
    for place in older:
        if path.exists():
            break
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.link(local_path(place, run.name), path)
    try:
        open_local(run, path)
    except FileNotFoundError:
        return False
    except CorruptionError:
        path.unlink(missing_ok=True)
        return False
    return True


def _check_writable(folder: Path) -> None:
    probe = folder / f".probe-{os.getpid()}"
    probe.write_bytes(b"holdfast")
    probe.unlink()
