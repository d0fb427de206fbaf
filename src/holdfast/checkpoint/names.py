"""Names that an entry brings back from storage, checked before any of them can become a path.

Whoever can write to a checkpoint directory could otherwise have a driver write files of its choice on
every host. An entry's checksum doesn't help: it says that nothing changed, not who wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.state.hashing import FULL_RANGE
from holdfast.storage.base import is_safe_name, is_safe_part

if TYPE_CHECKING:
    from holdfast.checkpoint.entry import Checkpoint, Collect, StagedOutput

__all__ = ["OBJECT_FOLDERS", "is_object", "is_run_name", "unsafe_in_collect", "unsafe_names"]

OBJECT_FOLDERS = ("blobs/", "runs/", "staged/")
"""Where objects lie that drivers write and only log entries keep alive."""

_RUN = re.compile(r"[0-9]{1,18}-[A-Za-z0-9_.=+-]{1,180}")
_PART = r"[^./\\\0][^/\\\0]*"
_SPARK_FILE = re.compile(rf"metadata|(?:offsets|commits)/[0-9]{{1,18}}|sources/{_PART}/{_PART}")


def is_run_name(name: str) -> bool:
    """Whether a run can have this name: it is that of a file on every host that has the run.

    >>> is_run_name("3-7-0-9f2c"), is_run_name("../../3-7")
    (True, False)
    """
    return _RUN.fullmatch(name) is not None


def is_object(name: str, folders: tuple[str, ...] = OBJECT_FOLDERS) -> bool:
    """Whether this can name an object in one of these folders.

    >>> is_object("runs/3-a.parquet"), is_object("log/00000000000000000007.json"), is_object("runs/../a")
    (True, False, False)
    """
    return name.startswith(folders) and is_safe_name(name)


def unsafe_names(entry: Checkpoint) -> Iterator[str]:
    """What a checkpoint calls by a name that it can't have, in words."""
    for run in entry.runs:
        if not is_run_name(run.name):
            yield f"a run {run.name!r}"
        if run.stored is not None and not is_object(run.stored.object, ("runs/",)):
            yield f"the stored form of run {run.name} {run.stored.object!r}"
        if not (FULL_RANGE.covers(run.range) and run.range.first <= run.range.last):
            yield f"a run {run.name!r} of the hashes from {run.range.first} to {run.range.last}"
    listed = {run.name for run in entry.runs}
    for table, segments in entry.tables.items():
        for missing in sorted({segment.run for segment in segments} - listed):
            yield f"a run {missing!r} of table {table!r} that is not among its runs"
    for path, blob in entry.spark.items():
        if _SPARK_FILE.fullmatch(path) is None:
            yield f"a file of Spark's {path!r}"
        if not is_object(blob, ("blobs/",)):
            yield f"the blob of {path} {blob!r}"
    for outputs in (entry.staged, entry.pending):
        yield from _unsafe_outputs(outputs)


def unsafe_in_collect(entry: Collect) -> Iterator[str]:
    """The same of a collect: what is to be deleted must be what an entry can keep alive."""
    yield from (f"an object {name!r}" for name in entry.objects if not is_object(name))
    yield from (f"a log entry {number}" for number in entry.entries if number < 0)
    yield from _unsafe_outputs(entry.pending or {})


def _unsafe_outputs(outputs: Mapping[str, Iterable[StagedOutput]]) -> Iterator[str]:
    for sink, staged in outputs.items():
        for output in staged:
            if not all(map(is_safe_part, output.name.split("/"))):
                yield f"output of {sink} {output.name!r}"
