"""Spark's own checkpoint location, as scratch.

Spark needs a directory with its offsets, commits and source logs to start a query. Holdfast reads
what an epoch needs out of it (Spark purges old files), keeps that in the log entry, and builds a
fresh directory from an entry on every start. So restart is one operation, whatever came before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.errors import ConfigurationError, CorruptionError

__all__ = ["ScratchReader", "build_scratch", "renumbered", "source_offsets", "ticking_on"]

_NUMBERED = re.compile(r"(\d+)(\.compact)?")
_DEFAULT_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class ScratchReader:
    """Reads what Spark would need to go on after an epoch, while that epoch runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers: Callable[[], Sequence[int]] | None = None
        """The number of the source that each line of Spark's offsets is of, once a query can tell.

        A source that a query reads twice has one number, and with it one folder, but two lines."""
        self._known: Sequence[int] = ()
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
        """Whether no source but the last, which keeps time, has moved since the epoch before, if any."""
        now = source_offsets(self.offsets(epoch))
        if epoch == 0:
            return now is not None and all(offset == "-" for offset in now[:-1])
        if now is None or not (self.folder / f"offsets/{epoch - 1}").exists():
            return False
        before = source_offsets(self.offsets(epoch - 1))
        return before is not None and before[:-1] == now[:-1]

    def _source_files(self, offsets: bytes) -> dict[str, bytes]:
        """Each source's log up to this epoch; later entries would be taken as already read."""
        found: dict[str, bytes] = {}
        folders = sorted((self.folder / "sources").glob("*"))
        last_of = self._log_offsets(offsets.decode(), [source.name for source in folders])
        for source in folders:
            last = last_of[source.name]
            names = [p.name for p in source.iterdir() if not p.name.startswith(".")]
            for name in _needed(names, last):
                relative = f"sources/{source.name}/{name}"
                # A source's log file never changes, so it is read from disk once.
                if relative not in self._sources:
                    self._sources[relative] = (source / name).read_bytes()
                found[relative] = self._sources[relative]
        self._sources = dict(found)
        return found

    def _log_offsets(self, offsets: str, folders: list[str]) -> dict[str, int | None]:
        """The last log number that an epoch has read of each file source; None for other sources."""
        lines = source_offsets(offsets)
        if lines is None:
            # v2: a line "name:offset" per source.
            by_name = dict(line.partition(":")[::2] for line in offsets.split("\n")[2:])
        elif self.numbers is not None:
            # No numbers as long as Spark has not looked at its sources: nothing is new in its logs then.
            self._known = self._known or self.numbers()
            by_name = {str(n): line for n, line in zip(self._known, lines, strict=False)}
        else:
            by_name = _lines_by_folder(lines, folders)
        return {folder: _log_offset(by_name.get(folder, "-")) for folder in folders}


def source_offsets(offsets: str) -> list[str] | None:
    """What Spark's file says of each source, in their order; None if it names them instead.

    >>> source_offsets('v1\\n{"batchWatermarkMs":0}\\n{"logOffset":3}\\n-')
    ['{"logOffset":3}', '-']
    """
    lines = offsets.split("\n")
    # A line for the version, one of metadata, one per source.
    return lines[2:] if lines[0] == "v1" else None


def _lines_by_folder(lines: list[str], folders: list[str]) -> dict[str, str]:
    """What offsets say of each source, by its folder, if no query is there to ask.

    >>> five, three = '{"logOffset":5}', '{"logOffset":3}'
    >>> _lines_by_folder([five, three, three], ["0", "1"])
    {'0': '{"logOffset":5}', '1': '{"logOffset":3}'}
    """
    if str(len(lines) - 1) in folders:
        return {str(number): line for number, line in enumerate(lines)}
    # Some are read twice, or have no folder.
    found = {}
    for folder in folders:
        # The first is the first all the same.
        possible = lines[:1] if folder == "0" else lines[int(folder) :] if folder.isdigit() else []
        if len({_log_offset(line) for line in possible} - {None}) > 1:
            raise ConfigurationError(
                f"it can't be told how far the query has read its source {folder}: it reads one twice, or "
                "one that keeps no log",
                hint="leave the job with Spark: only sources told apart by their place can be adopted yet",
            )
        found[folder] = next((line for line in possible if _log_offset(line) is not None), "-")
    return found


def _log_offset(text: str) -> int | None:
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


def ticking_on(
    position: Mapping[str, bytes], epoch: int, *, at_once: bool = True
) -> dict[str, bytes]:
    """A position with which ticks go on where they were, whatever any clock says.

    ``at_once``: one further, so that an epoch comes though no input does.

    The source's own file says when it began; its clock starts at 0. So it began before that, by as many
    seconds as it has ticked. It is the last source, and all have numbers; how many there are isn't told by
    the offsets, which have two lines for a source that is read twice.

    >>> offsets = b'v1\\n{"batchWatermarkMs":0}\\n{"logOffset":3}\\n{"logOffset":3}\\n41'
    >>> ticking_on({"offsets/7": offsets, "sources/0/3": b"v1", "sources/1/0": b"v1\\n9"}, 7)["sources/1/0"]
    b'v1\\n-42000'
    """
    files = dict(position)
    offsets = source_offsets(files.get(f"offsets/{epoch}", b"").decode())
    if offsets is not None and offsets[-1] != "-":
        folders = [path.split("/")[1] for path in files if path.startswith("sources/")]
        last = max(map(int, folders), default=len(offsets) - 1)
        files[f"sources/{last}/0"] = f"v1\n{-1000 * (json.loads(offsets[-1]) + at_once)}".encode()
    return files
