"""What runs in a task to find out what is on a host's disk, and to put it in order.

Nothing here is remembered between calls: the disk is the truth, names and checksums say what is what.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast import runtime
from holdfast.errors import CorruptionError
from holdfast.state.run import Run
from holdfast.storage import Storage
from holdfast.tiers.opener import RunOpener, local_path, open_local
from holdfast.tiers.own_folder import check_own, make_own
from holdfast.tiers.stored_copy import copy_path, open_copy

__all__ = [
    "DiskReport",
    "decode_runs",
    "fetch_runs",
    "first_bytes",
    "leave_mark",
    "probe",
    "remove_marks",
    "see_marks",
    "survey",
    "tidy",
]

# No attempt takes that long from its last write to its report.
_LEFT_ALONE_S = 3600.0


class DiskReport(msgspec.Struct, frozen=True):
    """What a task saw on its host."""

    host: str = ""
    """Whose disk it was: said by whoever ran the task there."""
    runs: tuple[str, ...] = ()
    """Runs that are whole on its disk."""
    seconds: float = 0.0
    """How long the task took."""
    error: str = ""


def survey(root: Path, claim: int, runs: Mapping[str, Run]) -> DiskReport:
    """Take over what this host's disk has of ``runs``, into the folder of a claim.

    Files are recognised by name, and by an index with a right checksum; they are linked, not copied.
    What lower claims have besides goes.
    """
    folder = root / str(claim)
    try:
        make_own(root)
        make_own(folder)
        _check_writable(folder)
        older = [p for p in root.iterdir() if p.name.isdigit() and int(p.name) < claim]
        older.sort(key=lambda p: int(p.name), reverse=True)
        found = [name for name, run in runs.items() if _taken_over(run, folder, older)]
        for path in older:
            shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        return DiskReport(error=f"{error.strerror or error}: {error.filename or folder}")
    return DiskReport(runs=tuple(found))


def probe(root: Path) -> DiskReport:
    """Whether local forms could be written on this host, by nobody else; changes nothing that stays."""
    existing = root
    while not existing.exists():
        existing = existing.parent
    try:
        check_own(root)
        _check_writable(existing)
    except OSError as error:
        return DiskReport(error=f"{error.strerror or error}: {root}")
    return DiskReport()


def leave_mark(folder: Path, name: str) -> bool:
    """Leave a file for other executors to see, if there can be one; who can't, won't be seen."""
    try:
        make_own(folder.parent)
        make_own(folder)
        (folder / name).touch()
    except OSError:
        return False
    return True


def see_marks(folder: Path) -> list[str]:
    """The files that executors left."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def remove_marks(folder: Path) -> None:
    """Remove them."""
    shutil.rmtree(folder, ignore_errors=True)


def fetch_runs(folder: Path, storage: Storage, runs: Sequence[Run], claim: int) -> DiskReport:
    """Bring runs from checkpoint storage to this host's disk, as they are stored."""
    return _each(runs, RunOpener(folder, storage, own_claim=claim).copy)


def decode_runs(
    folder: Path, storage: Storage, runs: Iterable[Run], claim: int, most_bytes: int
) -> DiskReport:
    """Give some of the runs of which this host has the stored form their local form; which it did."""
    copied = [run for run in runs if copy_path(folder, run.name).exists()]
    return _each(first_bytes(copied, most_bytes), RunOpener(folder, storage, own_claim=claim).fetch)


def first_bytes(runs: Iterable[Run], most: int) -> tuple[Run, ...]:
    """The first of these runs, up to so many bytes; one at least, if there is any."""
    chosen: list[Run] = []
    size = 0
    for run in runs:
        if chosen and size + run.size_bytes > most:
            break
        chosen.append(run)
        size += run.size_bytes
    return tuple(chosen)


def _each(runs: Sequence[Run], do: Callable[[Run], object]) -> DiskReport:
    """Do something with every run; those with which it could be done."""
    began = runtime.monotonic()

    def tried(run: Run) -> str:
        try:
            do(run)
        except (CorruptionError, OSError) as problem:
            return str(problem)
        return ""

    # Two: while one waits for its last bytes, or checks what it has written, the other goes on.
    problems = runtime.each(tried, runs, at_once=2)
    done = [run.name for run, problem in zip(runs, problems, strict=True) if not problem]
    error = "; ".join(filter(None, problems))
    return DiskReport("", tuple(done), runtime.monotonic() - began, error)


def tidy(folder: Path, live: frozenset[str]) -> DiskReport:
    """Delete what attempts that came to nothing left here a while ago."""
    before = runtime.now_ms() / 1000 - _LEFT_ALONE_S
    for path in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            # Nobody finishes what a killed process was writing, though its run may live on.
            unwanted = path.suffix == ".tmp" or path.stem.partition(".")[0] not in live
            if unwanted and path.stat().st_mtime < before:
                path.unlink()
    return DiskReport()


def _taken_over(run: Run, folder: Path, older: list[Path]) -> bool:
    """Whether there is a local form of the run, or else a copy of its stored form."""
    if _linked(run, folder, older, local_path, open_local):
        return True
    return run.is_durable and _linked(run, folder, older, copy_path, open_copy)


def _linked(
    run: Run,
    folder: Path,
    older: list[Path],
    path_in: Callable[[Path, str], Path],
    opened: Callable[[Run, Path], object],
) -> bool:
    path = path_in(folder, run.name)
    for place in older:
        if path.exists():
            break
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.link(path_in(place, run.name), path)
    try:
        opened(run, path)
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
