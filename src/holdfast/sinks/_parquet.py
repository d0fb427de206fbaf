"""The Parquet sink: local folders that every reader of Hive-style datasets understands."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, InputError, InternalError
from holdfast.sinks._files import create_file, storage_errors
from holdfast.sinks._publish import OutputFolder
from holdfast.sinks._staged import conform, staged_name
from holdfast.sinks.base import Sink, SinkContext, Stager, StageWriter

__all__ = ["ParquetSink", "parquet"]

_ROW_GROUP_BYTES = 32 * 2**20
"""How much a task holds in memory before it writes a row group."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def parquet(path: str | os.PathLike[str]) -> ParquetSink:
    """Publish each epoch as ``<path>/epoch=<epoch>/*.parquet``, exactly once.

    An epoch appears whole, by one rename, after its checkpoint. Readers get a column ``epoch``
    from the folders' names. Spark and Arrow skip what is not published by themselves; where you
    write a pattern, write ``<path>/epoch=*/*.parquet``. Published folders are the readers': they
    may be compacted, moved or deleted. Epochs without output publish nothing.

    The folder must be one that the driver and all executors see, on a file system with hard links.

    >>> parquet("/data/out").describe()
    'parquet files in /data/out'
    """
    return ParquetSink(path)


class _Marker(msgspec.Struct, frozen=True):
    """Whose folder this is."""

    pipeline: str
    sink: str
    format: int = 1


class ParquetSink(Sink):
    """What :func:`parquet` makes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._folder = OutputFolder(_local_path(self.path))
        self._claim: int | None = None

    def __repr__(self) -> str:
        return f"hf.sinks.parquet({self.path!r})"

    def describe(self) -> str:
        """Where it writes."""
        return f"parquet files in {self._folder.root}"

    def validate(self, context: SinkContext) -> None:
        """Raise if the schema has no place in such files, or the folder can't be this pipeline's."""
        _check_local(self.path)
        _check_schema(context.schema)
        _check_writable(self._folder.root)
        self._check_owner(context)

    def open(self, context: SinkContext) -> None:
        """Make the folder and mark it as this pipeline's."""
        self.validate(context)
        with storage_errors(f"create {self._folder.root}"):
            self._folder.create()
            marker = msgspec.json.encode(_Marker(context.pipeline, context.sink)) + b"\n"
            if not create_file(self._folder.marker, marker):
                self._check_owner(context)
        self._claim = context.claim

    def stager(self) -> Stager:
        """Writes files into ``_holdfast/staged``."""
        return _ParquetStager(str(self._folder.staged), self._opened_with())

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        """Fsync the files and their folder."""
        self._folder.make_durable(staged)

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        """Rename each epoch into view, unless it is there."""
        del maybe_repeated  # the folder itself shows it
        self._folder.publish(staged, self._opened_with())

    def sweep(self, keep: Sequence[StagedOutput]) -> None:
        """Remove what attempts and publishers of this and lower claims left behind."""
        self._folder.sweep(keep, self._opened_with())

    def _opened_with(self) -> int:
        if self._claim is None:
            raise InternalError(f"{self!r} was used before it was opened with a claim")
        return self._claim

    def _check_owner(self, context: SinkContext) -> None:
        root, marker = self._folder.root, self._folder.marker
        try:
            owner = msgspec.json.decode(marker.read_bytes(), type=_Marker)
        except FileNotFoundError:
            if any(root.glob("epoch=*")):
                raise ConfigurationError(
                    f"{root} already holds epochs, but {marker} doesn't say whose",
                    hint="write to a new folder",
                ) from None
            return
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigurationError(
                f"{marker} can't be read: {error}", hint="write to a new folder"
            ) from error
        if (owner.pipeline, owner.sink) != (context.pipeline, context.sink):
            raise ConfigurationError(
                f"{root} belongs to sink {owner.sink!r} of pipeline {owner.pipeline!r}",
                hint=f"give pipeline {context.pipeline!r} a folder of its own",
            )


class _ParquetStager(Stager):
    def __init__(self, folder: str, claim: int) -> None:
        self._folder = folder
        self._claim = claim

    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        name = staged_name(self._claim, epoch, partition, f"{nonce}.parquet")
        return _ParquetStageWriter(Path(self._folder) / name, epoch, partition, schema)


class _ParquetStageWriter(StageWriter):
    """Writes row groups as they fill, so that memory stays bounded whatever the task's output."""

    def __init__(self, path: Path, epoch: int, partition: int, schema: pa.Schema) -> None:
        self._path = path
        self._epoch = epoch
        self._partition = partition
        self._schema = schema.remove_metadata()
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        self._held.append(conform(table, self._schema))
        self._held_bytes += table.nbytes
        self._rows += table.num_rows
        if self._held_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> StagedOutput | None:
        self._write_row_group()
        if self._writer is None:
            return None
        with storage_errors(f"stage output in {self._path}"):
            self._writer.close()
            size = self._path.stat().st_size
        return StagedOutput(self._epoch, self._partition, self._path.name, self._rows, size)

    def abort(self) -> None:
        self._held = []
        if self._writer is not None:
            with storage_errors(f"remove {self._path}"):
                self._writer.close()
                self._path.unlink(missing_ok=True)

    def _write_row_group(self) -> None:
        if not self._held:
            return
        with storage_errors(f"stage output in {self._path}"):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
            self._writer.write_table(pa.concat_tables(self._held))
        self._held, self._held_bytes = [], 0


def _local_path(text: str) -> Path:
    """Absolute, because tasks may run in another folder than the driver."""
    if text.startswith("file:/"):
        text = unquote(urlsplit(text).path)
    return Path(os.path.abspath(text))  # noqa: PTH100 - symbolic links stay as they are


def _check_local(text: str) -> None:
    scheme = _SCHEME.match(text)
    if not text or (scheme is not None and scheme[1].lower() != "file"):
        raise ConfigurationError(
            f"{text!r} is not a local folder",
            hint="hf.sinks.parquet writes to local or mounted folders: give it a path or "
            "file:///… URL (object stores have no atomic rename)",
        )


def _check_schema(schema: pa.Schema) -> None:
    if not schema.names:
        raise InputError("the output has no columns", hint="select at least one")
    for name, times in Counter(map(str.lower, schema.names)).items():
        if times > 1 or name == "epoch":
            taken = "the sink adds one itself" if name == "epoch" else f"there are {times}"
            raise InputError(
                f"the output can't have a column {name!r} in Parquet files: {taken}",
                hint="rename the column before write_to",
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
