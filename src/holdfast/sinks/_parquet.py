"""The Parquet sink: local folders that every reader of Parquet datasets understands."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, InputError, InternalError
from holdfast.sinks._files import create_file, storage_errors
from holdfast.sinks._layout import EpochFiles, EpochFolders, looks_published
from holdfast.sinks._publish import OutputFolder
from holdfast.sinks._row_groups import RowGroupWriter
from holdfast.sinks._staged import checksum_of_file, staged_name
from holdfast.sinks.base import Sink, SinkContext, Stager, StageWriter
from holdfast.storage.local import check_no_home

__all__ = ["ParquetSink", "parquet"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def parquet(path: str | os.PathLike[str], *, epoch_column: str | None = None) -> ParquetSink:
    """Publish each epoch as ``<path>/epoch-<epoch>.parquet``, exactly once.

    An epoch appears whole, by one rename, after its checkpoint. Readers see the rows' own columns;
    the epoch of a row is in the name of its file (in Spark: ``_metadata.file_name``), where
    :func:`holdfast.fold` finds it. If an epoch's tasks have written several files, the driver puts
    their rows into one.

    With ``epoch_column="epoch"`` readers get the epoch as a column too: an epoch is then a folder,
    ``<path>/epoch=<epoch>/*.parquet``, into which the tasks' files are linked as they are. That is
    also the better choice for epochs with very much output.

    Spark and Arrow skip what is not published by themselves; where you write a pattern, write
    ``<path>/*.parquet`` or ``<path>/*=*/*.parquet``. What is published is the readers': they may
    compact, move or delete it. Epochs without output publish nothing.

    The folder must be one that the driver and all executors see, on a file system with hard links.
    It keeps the form in which it was begun; a folder of a version that always made ``epoch=<epoch>``
    folders goes on with them.

    >>> parquet("/data/out").describe()
    'parquet files in /data/out'
    """
    return ParquetSink(path, epoch_column)


_FORMAT = 1


class _Marker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose folder this is, and what is in it.

    A field that isn't known is one with a flipped bit: without it the folder would get another form.
    """

    pipeline: str
    sink: str
    format: int
    epoch_column: str | msgspec.UnsetType | None = msgspec.UNSET
    """Versions that don't say always had one."""

    @property
    def column(self) -> str | None:
        return "epoch" if isinstance(self.epoch_column, msgspec.UnsetType) else self.epoch_column

    def allows(self, asked: str | None) -> bool:
        """Whether a program may ask for this column."""
        said = not isinstance(self.epoch_column, msgspec.UnsetType)
        return asked == self.column or (asked is None and not said)


class ParquetSink(Sink):
    """What :func:`parquet` makes."""

    def __init__(self, path: str | os.PathLike[str], epoch_column: str | None = None) -> None:
        self.path = os.fspath(path)
        self.epoch_column = epoch_column
        self._folder = OutputFolder(_local_path(self.path))
        self._claim: int | None = None

    def __repr__(self) -> str:
        column = f", epoch_column={self.epoch_column!r}" if self.epoch_column else ""
        return f"hf.sinks.parquet({self.path!r}{column})"

    def describe(self) -> str:
        """Where it writes."""
        return f"parquet files in {self._folder.root}"

    def validate(self, context: SinkContext) -> None:
        """Raise if the schema has no place in such files, or the folder can't be this pipeline's."""
        _check_local(self.path)
        check_no_home(self.path)
        _check_utf8(self._folder.root)
        _check_writable(self._folder.root)
        self._folder.check()
        self._checked_column(context)

    def open(self, context: SinkContext) -> None:
        """Make the folder and mark it as this pipeline's."""
        self.validate(context)
        marker = _Marker(context.pipeline, context.sink, _FORMAT, self.epoch_column)
        with storage_errors(f"create {self._folder.root}"):
            self._folder.create()
            create_file(self._folder.marker, msgspec.json.encode(marker) + b"\n")
        column = self._checked_column(context)
        layout = EpochFiles() if column is None else EpochFolders(column)
        self._folder = OutputFolder(self._folder.root, layout)
        self._claim = context.claim

    def stager(self) -> Stager:
        """Writes files into ``_holdfast/staged``."""
        return _ParquetStager(str(self._folder.staged), self._opened_with())

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        """Fsync the files and their folder."""
        self._folder.make_durable(staged)

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        """Rename each epoch into view, unless that was done."""
        del maybe_repeated  # the folder itself shows it
        self._folder.publish(staged, self._opened_with())

    def sweep(self, keep: Sequence[StagedOutput]) -> None:
        """Remove what attempts and publishers of this and lower claims left behind."""
        self._folder.sweep(keep, self._opened_with())

    def _opened_with(self) -> int:
        if self._claim is None:
            raise InternalError(f"{self!r} was used before it was opened with a claim")
        return self._claim

    def _checked_column(self, context: SinkContext) -> str | None:
        """The column that readers of this folder get for the epoch, if any."""
        owner = self._owner()
        if owner is None:
            _check_schema(context.schema, self.epoch_column)
            return self.epoch_column
        root = self._folder.root
        if (owner.pipeline, owner.sink) != (context.pipeline, context.sink):
            raise ConfigurationError(
                f"{root} belongs to sink {owner.sink!r} of pipeline {owner.pipeline!r}",
                hint=f"give pipeline {context.pipeline!r} a folder of its own",
            )
        if not owner.allows(self.epoch_column):
            raise ConfigurationError(
                f"{root} was begun with epoch_column={owner.column!r}, not {self.epoch_column!r}",
                hint="readers couldn't make sense of both in one folder: ask for the same, or write "
                "to a new folder",
            )
        _check_schema(context.schema, owner.column)
        return owner.column

    def _owner(self) -> _Marker | None:
        root, marker = self._folder.root, self._folder.marker
        try:
            found = msgspec.json.decode(marker.read_bytes(), type=_Marker)
        except FileNotFoundError:
            if root.is_dir() and any(looks_published(path.name) for path in root.iterdir()):
                raise ConfigurationError(
                    f"{root} already holds epochs, but {marker} doesn't say whose",
                    hint="write to a new folder",
                ) from None
            return None
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            raise ConfigurationError(
                f"{marker} can't be read: {error}",
                hint="restore the file from a copy, or write to a new folder",
            ) from error
        if found.format != _FORMAT:
            raise ConfigurationError(
                f"{marker} has format {found.format}, this Holdfast knows {_FORMAT}",
                hint="upgrade Holdfast to the version that wrote it, or write to a new folder",
            )
        return found


class _ParquetStager(Stager):
    def __init__(self, folder: str, claim: int) -> None:
        self._folder = folder
        self._claim = claim

    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        name = staged_name(self._claim, epoch, partition, f"{nonce}.parquet")
        return _ParquetStageWriter(Path(self._folder) / name, epoch, partition, schema)


class _ParquetStageWriter(StageWriter):
    def __init__(self, path: Path, epoch: int, partition: int, schema: pa.Schema) -> None:
        self._file = RowGroupWriter(path, schema)
        self._epoch = epoch
        self._partition = partition

    def write(self, table: pa.Table) -> None:
        self._file.write(table)

    def close(self) -> StagedOutput | None:
        size = self._file.close()
        if size is None:
            return None
        written = self._file.path
        with storage_errors(f"stage output in {written}"):
            named = written.with_stem(f"{written.stem}-{checksum_of_file(written)}")
            written.rename(named)
        self._file.path = named  # so that it is found by abort
        return StagedOutput(self._epoch, self._partition, named.name, self._file.rows, size)

    def abort(self) -> None:
        self._file.abort()


def _local_path(text: str) -> Path:
    """Absolute, because tasks may run in another folder than the driver."""
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() == "file":
        text = unquote(urlsplit(text).path, errors="surrogateescape")
    return Path(os.path.abspath(text))  # noqa: PTH100 - symbolic links stay as they are


def _check_local(text: str) -> None:
    scheme = _SCHEME.match(text)
    if not text or (scheme is not None and scheme[1].lower() != "file"):
        raise ConfigurationError(
            f"{text!r} is not a local folder",
            hint="hf.sinks.parquet writes to local or mounted folders: give it a path or "
            "file:///… URL (object stores have no atomic rename)",
        )


def _check_utf8(root: Path) -> None:
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"the name of {root} is no UTF-8: Arrow can't write there, and Spark can't read it",
            hint="write to a folder with another name",
        ) from None


def _check_schema(schema: pa.Schema, epoch_column: str | None) -> None:
    if not schema.names:
        raise InputError("the output has no columns", hint="select at least one")
    for name, times in Counter(map(str.lower, schema.names)).items():
        if times > 1:
            raise InputError(
                f"the output can't have a column {name!r} in Parquet files: there are {times}",
                hint="rename the column before write_to",
            )
    if epoch_column is None:
        return
    if not epoch_column.isidentifier() or epoch_column.startswith("_"):
        raise InputError(
            f"epoch_column can't be {epoch_column!r}: it becomes part of folders' names",
            hint='use letters, digits and _, and begin with a letter: epoch_column="epoch"',
        )
    if epoch_column.lower() in map(str.lower, schema.names):
        raise InputError(
            f"the output has a column {epoch_column!r} already, which the sink is to add",
            hint="give hf.sinks.parquet another epoch_column, or rename yours before write_to",
        )


def _check_writable(root: Path) -> None:
    existing = root
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        raise ConfigurationError(f"{existing} is not a folder", hint="write to a folder")
    effective = os.access in os.supports_effective_ids
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=effective):
        raise ConfigurationError(
            f"{existing} can't be written to",
            hint="give the user that runs this permission to write there, or use another folder",
        )
