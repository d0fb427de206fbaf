"""What readers see of an epoch: one file, or a folder whose name gives them a column.

Spark looks into a folder's folders only if their names are ``column=value``, and then adds the
column. So an epoch without such a column is one file, right in the output folder, and its tasks'
files are put together when there are several.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from holdfast.errors import ConfigurationError
from holdfast.sinks._files import sync
from holdfast.sinks._row_groups import RowGroupWriter

__all__ = ["EpochFiles", "EpochFolders", "EpochLayout", "looks_published"]

_PUBLISHED = re.compile(r"epoch-[0-9]+\.parquet|[^._=][^=]*=[0-9]+")


class EpochLayout(ABC):
    """How an epoch is put together, and under which name it appears."""

    extension: str
    """What names in ``publishing/`` end with."""

    @abstractmethod
    def name(self, epoch: int) -> str:
        """What readers see."""

    @abstractmethod
    def prepare(self, staged: Sequence[Path], into: Path) -> None:
        """Put an epoch together, durably but for its own name."""

    @abstractmethod
    def is_there(self, target: Path, names: set[str]) -> bool:
        """Whether readers see these staged files at ``target``; an error if others are there."""


@dataclass(frozen=True, slots=True)
class EpochFiles(EpochLayout):
    """A file for each epoch; its number is in the file's name alone.

    >>> EpochFiles().name(7)
    'epoch-0000000007.parquet'
    """

    extension = ".parquet"

    def name(self, epoch: int) -> str:
        """Names sort as epochs do."""
        return f"epoch-{epoch:010d}.parquet"

    def prepare(self, staged: Sequence[Path], into: Path) -> None:
        """The staged file itself, or one with the rows of all."""
        if len(staged) == 1:
            os.link(staged[0], into)
            return
        writer = RowGroupWriter(into, pq.read_schema(staged[0]))
        try:
            for path in staged:
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        writer.write(file.read_row_group(group))
            writer.close()
        except Exception:
            writer.abort()
            raise
        sync(into)

    def is_there(self, target: Path, names: set[str]) -> bool:
        """Nobody but us puts files there under such a name."""
        del names
        if os.path.lexists(target):
            raise _foreign(target)
        return False


@dataclass(frozen=True, slots=True)
class EpochFolders(EpochLayout):
    """A folder for each epoch, in Hive's notation: readers get the epoch as a column.

    >>> EpochFolders("epoch").name(7)
    'epoch=7'
    """

    column: str

    extension = ""

    def name(self, epoch: int) -> str:
        """The column and its value."""
        return f"{self.column}={epoch}"

    def prepare(self, staged: Sequence[Path], into: Path) -> None:
        """Links: nothing is copied."""
        into.mkdir()
        for path in staged:
            os.link(path, into / path.name)
        sync(into)

    def is_there(self, target: Path, names: set[str]) -> bool:
        """The files keep their names, so they can be told from others."""
        try:
            there = {path.name for path in target.iterdir() if path.name[0] not in "._"}
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            there = {"(a file)"}
        if there == names:
            return True
        raise _foreign(target)


def looks_published(name: str) -> bool:
    """Whether some pipeline may have published that.

    >>> [looks_published(n) for n in ("epoch-0000000007.parquet", "epoch=7", "_holdfast", "a.csv")]
    [True, True, False, False]
    """
    return _PUBLISHED.fullmatch(name) is not None


def _foreign(target: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{target} is there already, and is not what this pipeline is to publish",
        hint="if the checkpoint directory is new, give its output a new folder too; if somebody "
        "put that there or changed files of a published epoch, put it back as it was",
    )
