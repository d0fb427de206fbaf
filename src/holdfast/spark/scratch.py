"""Spark's own checkpoint location, as scratch.

Spark needs a directory with its offsets, commits and source logs to start a query. Holdfast reads
what an epoch needs out of it (Spark purges old files), keeps that in the log entry, and builds a
fresh directory from an entry on every start. So restart is one operation, whatever came before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import CorruptionError

__all__ = ["ScratchReader", "build_scratch", "renumbered", "source_offsets"]

_NUMBERED = re.compile(r"(\d+)(\.compact)?")
_DEFAULT_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class ScratchReader:
    """Reads what Spark would need to go on after an epoch, while that epoch runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sources: dict[str, bytes] = {}

    def read(self, epoch: int) -> dict[str, bytes]:
        """The files, by relative path, with which a query continues at ``epoch + 1``."""
        files = {"metadata": (self.folder / "metadata").read_bytes()}
        commit = _DEFAULT_COMMIT
        for number in (epoch - 1, epoch):
            if number < 0:
                continue
            files[f"offsets/{number}"] = (self.folder / f"offsets/{number}").read_bytes()
            path = self.folder / f"commits/{number}"
            # Spark writes commits/<epoch> only after the epoch: it is what it wrote for the last.
            commit = path.read_bytes() if path.exists() else commit
            files[f"commits/{number}"] = commit
        files.update(self._source_files(files[f"offsets/{epoch}"]))
        return files

    def offsets(self, epoch: int) -> str:
        """The end of the epoch's range in every source, as Spark wrote it."""
        return (self.folder / f"offsets/{epoch}").read_text()

    def is_idle(self, epoch: int) -> bool:
        """Whether no source but the last, which keeps time, has moved since the epoch before."""
        if epoch == 0 or not (self.folder / f"offsets/{epoch - 1}").exists():
            return False
        before, now = (source_offsets(self.offsets(number)) for number in (epoch - 1, epoch))
        return before is not None and now is not None and before[:-1] == now[:-1]

    def _source_files(self, offsets: bytes) -> dict[str, bytes]:
        """Each source's log up to this epoch; later entries would be taken as already read."""
        found: dict[str, bytes] = {}
        for source in sorted((self.folder / "sources").glob("*")):
            last = _log_offset(offsets, source.name)
            names = [p.name for p in source.iterdir() if not p.name.startswith(".")]
            for name in _needed(names, last):
                relative = f"sources/{source.name}/{name}"
                # A source's log file never changes, so it is read from disk once.
                if relative not in self._sources:
                    self._sources[relative] = (source / name).read_bytes()
                found[relative] = self._sources[relative]
        self._sources = dict(found)
        return found


def source_offsets(offsets: str) -> list[str] | None:
    """What Spark's file says of each source, in their order; None if it names them instead.

    >>> source_offsets('v1\\n{"batchWatermarkMs":0}\\n{"logOffset":3}\\n-')
    ['{"logOffset":3}', '-']
    """
    lines = offsets.split("\n")
    # A line for the version, one of metadata, one per source.
    return lines[2:] if lines[0] == "v1" else None


def _log_offset(offsets: bytes, source: str) -> int | None:
    """The last log number that an epoch has read of a file source; None for other sources."""
    in_order = source_offsets(offsets.decode())
    if in_order is not None:
        text = in_order[int(source)] if source.isdigit() else "-"
    else:
        lines = offsets.decode().split("\n")
        # v2: a line "name:offset" per source.
        named = dict(line.partition(":")[::2] for line in lines[2:])
        text = named.get(source, "-")
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None
    return int(value["logOffset"]) if isinstance(value, dict) and "logOffset" in value else None


def _needed(names: list[str], last: int | None) -> list[str]:
    if last is None:
        return sorted(names)
    numbers = {n: m for n in names if (m := _NUMBERED.fullmatch(n)) and int(m[1]) <= last}
    compacted = max((int(m[1]) for m in numbers.values() if m[2]), default=-1)
    return sorted(
        n for n, m in numbers.items() if int(m[1]) > compacted or (m[2] and int(m[1]) == compacted)
    )


def build_scratch(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a directory from which Spark continues; paths from an entry are checked first."""
    for relative, data in files.items():
        parts = Path(relative).parts
        if not parts or Path(relative).is_absolute() or ".." in parts:
            raise CorruptionError(f"a log entry names {relative!r} as a file of Spark's")
        path = folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def renumbered(files: dict[str, bytes], epoch: int, last_used: int) -> dict[str, bytes]:
    """The same position with epoch numbers moved up, so that no published number is used twice."""
    shift = last_used - epoch
    moved = {}
    for path, data in files.items():
        folder, _, number = path.partition("/")
        if folder in ("offsets", "commits"):
            moved[f"{folder}/{int(number) + shift}"] = data
        else:
            moved[path] = data
    if shift and epoch == 0:
        # Spark wants the epoch before as well; nothing came before, so it ended where this begins.
        for folder in ("offsets", "commits"):
            moved.setdefault(f"{folder}/{last_used - 1}", moved[f"{folder}/{last_used}"])
    return moved
