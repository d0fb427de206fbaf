"""Sinks that can't stage output themselves: it waits in checkpoint storage for its entry.

A task stores its output as one object (an Arrow stream, zstd) under ``staged/``; after the log entry
the driver reads an epoch's objects back and delivers them in one piece. That is at-least-once by
itself: a driver that dies between delivery and acknowledgement delivers again, and says so. The
objects are removed with the entries that name them (invariant 9), never by the sink.
"""

from __future__ import annotations

import mmap
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import xxhash

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import CorruptionError, InternalError
from holdfast.failpoints import failpoint
from holdfast.sinks._files import storage_errors
from holdfast.sinks._staged import by_epoch, conform, staged_name
from holdfast.sinks.base import Sink, SinkContext, Stager, StageWriter
from holdfast.storage import NotFoundError, Storage

__all__ = ["STAGED_EXTENSION", "WriteAheadSink", "is_content_of", "read_staged"]

_FOLDER = "staged/"
STAGED_EXTENSION = ".arrows"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


class WriteAheadSink(Sink):
    """Stages output in checkpoint storage; subclasses say how an epoch of it is delivered.

    >>> class Printed(WriteAheadSink):
    ...     def describe(self):
    ...         return "printed"
    ...
    ...     def deliver(self, epoch, table, *, maybe_repeated):
    ...         print(epoch, table.to_pylist(), "again" if maybe_repeated else "")
    >>> Printed().deliver(7, pa.table({"n": [1]}), maybe_repeated=False)
    7 [{'n': 1}]
    """

    repeats_show = True
    _context: SinkContext | None = None
    _attempted = -1
    """The newest epoch whose delivery was begun since :meth:`open`, maybe in vain."""
    _delivered = -1
    """The newest epoch delivered since :meth:`open`. Epochs come in order."""

    @abstractmethod
    def deliver(self, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Hand over an epoch's rows, in the order of their partitions.

        Called again for the same epoch if it raised, or if nobody knows whether it was called;
        ``maybe_repeated`` then says so. A driver that is paused in the very moment before the call, until
        another has taken over and delivered, can't know: only the system itself can refuse that.
        """

    @property
    def context(self) -> SinkContext:
        """What the sink was opened with."""
        if self._context is None:
            raise InternalError(f"{self.describe()} was used before it was opened")
        return self._context

    def validate(self, context: SinkContext) -> None:
        """Any output can be staged."""
        del context

    def open(self, context: SinkContext) -> None:
        """Remember the storage."""
        self.validate(context)
        self._context = context
        self._attempted = self._delivered = -1

    def stager(self) -> Stager:
        """Writes objects into checkpoint storage."""
        return _WriteAheadStager(self.context.storage, self.context.claim)

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        """Nothing: an object in storage is durable from the beginning."""
        del staged

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        """Deliver every epoch that this sink has not delivered since it was opened."""
        storage = self.context.storage
        for epoch, parts in by_epoch(staged):
            if epoch <= self._delivered:
                continue
            repeated = maybe_repeated or epoch <= self._attempted
            table = pa.concat_tables([read_staged(storage, output) for output in parts])
            # Reading may have taken long, as may have the epochs before: another driver may have taken
            # over and delivered this one, and here it would be said to be new.
            self.context.check_not_fenced()
            failpoint("sink.write_ahead.before_deliver")
            self._attempted = epoch
            self.deliver(epoch, table, maybe_repeated=repeated)
            self._delivered = epoch
            failpoint("sink.write_ahead.after_deliver")


def read_staged(storage: Storage, output: StagedOutput) -> pa.Table:
    """The rows of one task, checked against the checksum in the object's name (invariant 10)."""
    try:
        data = storage.get(output.name)
    except NotFoundError:
        raise _corrupt(storage, output, "is missing") from None
    if len(data) != output.size_bytes or not is_content_of(output.name, data):
        raise _corrupt(storage, output, "doesn't hold the bytes that were written")
    try:
        table = pa.ipc.open_stream(data).read_all()
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(storage, output, f"can't be read: {error}") from error
    if table.num_rows != output.rows:
        raise _corrupt(storage, output, f"holds {table.num_rows} rows instead of {output.rows}")
    return table


def is_content_of(name: str, data: bytes) -> bool:
    """Whether these are the bytes that were staged under a name."""
    return name.removesuffix(STAGED_EXTENSION).endswith(f"-{_checksum(data)}")


@dataclass(frozen=True, slots=True)
class _WriteAheadStager(Stager):
    storage: Storage
    claim: int

    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        return _ObjectWriter(self, epoch, partition, nonce, schema)


class _ObjectWriter(StageWriter):
    """Collects the object in an unnamed file, so that a task's memory stays bounded."""

    def __init__(
        self, stager: _WriteAheadStager, epoch: int, partition: int, nonce: str, schema: pa.Schema
    ) -> None:
        self._stager = stager
        self._epoch = epoch
        self._partition = partition
        self._nonce = nonce
        self._schema = schema.remove_metadata()
        self._rows = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def write(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        with storage_errors("write output to the temporary folder"):
            if self._writer is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close and abort
                target = pa.PythonFile(self._file, mode="w")
                self._writer = pa.ipc.new_stream(target, self._schema, options=_OPTIONS)
            self._writer.write_table(conform(table, self._schema))
        self._rows += table.num_rows

    def close(self) -> StagedOutput | None:
        if self._writer is None or self._file is None:
            return None
        with storage_errors("write output to the temporary folder"):
            self._writer.close()
            self._file.flush()
            size = self._file.tell()
            mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
        # The checksum in the name also keeps apart two sinks that stage the same attempt.
        with mapped, memoryview(mapped) as data:
            rest = f"{self._nonce}-{_checksum(data)}{STAGED_EXTENSION}"
            name = _FOLDER + staged_name(self._stager.claim, self._epoch, self._partition, rest)
            self._stager.storage.put(name, data)
        self._file.close()
        return StagedOutput(self._epoch, self._partition, name, self._rows, size)

    def abort(self) -> None:
        # An object that was put already is left to the collector, as nobody will name it.
        if self._file is not None:
            self._file.close()
        self._file = self._writer = None


def _checksum(data: bytes | memoryview) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def _corrupt(storage: Storage, output: StagedOutput, what: str) -> CorruptionError:
    return CorruptionError(
        f"staged output {output.name} of epoch {output.epoch} in {storage.url} {what}",
        hint="restore the object from a copy, or start from an older entry",
    )
