"""The names of staged output, and the shape of what is written into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import xxhash

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import InputError

__all__ = [
    "by_epoch",
    "checksum_in",
    "checksum_of_file",
    "claim_of",
    "conform",
    "epoch_of",
    "staged_name",
]

_NAME = re.compile(r"(?P<claim>[0-9]+)-(?P<epoch>[0-9]+)-[A-Za-z0-9_.=+-]+")
_WITH_CHECKSUM = re.compile(r"[0-9]+-[0-9]+-[0-9]+-[^-]+-(?P<checksum>[0-9a-f]{16})\.parquet")
_PREPARED = re.compile(r"[0-9]+-[0-9]+-[0-9a-f]{16}\.(?P<checksum>[0-9a-f]{16})\.parquet")
_READ_BYTES = 1 << 20


def staged_name(claim: int, epoch: int, partition: int, rest: str) -> str:
    """The name of one attempt's output; ``rest`` holds what makes it unique, and its extension.

    >>> staged_name(3, 7, 0, "9f2c.parquet")
    '3-7-0-9f2c.parquet'
    """
    name = f"{claim}-{epoch}-{partition}-{rest}"
    if claim_of(name) is None:
        raise InputError(
            f"{name!r} can't name staged output",
            hint="let the attempt's nonce be letters and digits",
        )
    return name


def claim_of(name: str) -> int | None:
    """The claim under which output was staged; None if that isn't a name of staged output.

    Names come back from log entries and folders, so they are checked before they become paths.

    >>> claim_of("3-7-0-9f2c.parquet"), claim_of("../3-7-0-9f2c.parquet")
    (3, None)
    """
    match = _NAME.fullmatch(name)
    return int(match["claim"]) if match else None


def epoch_of(name: str) -> int | None:
    """The epoch of staged output, or of a folder that is put together of it.

    >>> epoch_of("3-7-0-9f2c.parquet"), epoch_of("notes.txt")
    (7, None)
    """
    match = _NAME.fullmatch(name)
    return int(match["epoch"]) if match else None


def checksum_in(name: str) -> str | None:
    """The checksum that the name of a Parquet file that isn't published yet ends with.

    It is None for those of older versions.

    >>> checksum_in("3-7-0-9f2c-0123456789abcdef.parquet"), checksum_in("3-7-0-9f2c.parquet")
    ('0123456789abcdef', None)
    """
    match = _WITH_CHECKSUM.fullmatch(name) or _PREPARED.fullmatch(name)
    return match["checksum"] if match else None


def checksum_of_file(path: Path) -> str:
    """The xxh3-64 of a file's bytes."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def by_epoch(staged: Iterable[StagedOutput]) -> list[tuple[int, Sequence[StagedOutput]]]:
    """The output of each epoch in order of partition, oldest epoch first."""
    ordered = sorted(set(staged), key=attrgetter("epoch", "partition", "name"))
    return [(epoch, list(part)) for epoch, part in groupby(ordered, attrgetter("epoch"))]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in exactly these types: every piece of an epoch must have the same."""
    return table if table.schema.equals(schema) else table.cast(schema)
