"""The local form of a run: an Arrow stream on a host's disk, memory-mapped by every worker there.

The file is an Arrow IPC stream that any Arrow reader can read (one record batch per block),
followed by what makes it a run: an index in JSON and a tail of 24 bytes (length and xxh3-64 of the
index, then ``HFRUN001``). Opening reads the tail and the index alone; a block is decoded when it is
first used, without copying. Nothing is synced to disk: the stored form is the durable one.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from holdfast import runtime
from holdfast.errors import CorruptionError
from holdfast.state.blocks import (
    Block,
    BlockCutter,
    RunTotals,
    check_block,
    checksum,
    count_tombstones,
    verify_blocks,
)
from holdfast.state.columns import hash_values
from holdfast.state.hashing import Hashes
from holdfast.state.run import LocalForm

__all__ = ["LocalRun", "LocalRunInfo", "LocalRunWriter", "write_local"]

FORMAT = 1
MAGIC = b"HFRUN001"
# A mapped block costs nothing until its pages are touched, so blocks can be large: what each adds to
# a look-up (about 60 µs) is what counts. Large rows make smaller blocks, for they are checked whole.
BLOCK_ROWS = 1 << 18
BLOCK_BYTES = 16 << 20

_TAIL = struct.Struct("<QQ8s")
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class _LocalIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    format: int
    header_bytes: int
    header_checksum: str
    """Of the stream's schema message."""
    totals: RunTotals
    decoded_from: str = ""
    """The checksum of the stored form from which this was made; empty where the run was written."""


class LocalRunInfo(msgspec.Struct, frozen=True):
    """What a writer made."""

    form: LocalForm
    rows: int
    tombstones: int


class LocalRunWriter:
    """Writes one local run from sorted rows; the file appears under its name when it is closed."""

    def __init__(self, path: Path, schema: pa.Schema, decoded_from: str = "") -> None:
        self.path = path
        self._decoded_from = decoded_from
        self._temporary = path.with_name(f"{path.name}.{runtime.new_id()}.tmp")
        self._cutter = BlockCutter(schema, BLOCK_ROWS, BLOCK_BYTES)
        self._blocks: list[Block] = []
        self._tombstones = 0
        self._sink = pa.OSFile(str(self._temporary), "wb")
        self._stream = pa.ipc.new_stream(self._sink, schema)
        # The stream writes its schema only along with the first batch.
        self._header_bytes = len(schema.serialize())

    def write(self, table: pa.Table) -> None:
        """Add rows in the run's schema, sorted, none before those already written."""
        for batch in self._cutter.add(table):
            self._write_block(batch)

    def close(self) -> LocalRunInfo:
        """Write the index and publish the file under its name."""
        for batch in self._cutter.finish():
            self._write_block(batch)
        self._stream.close()
        header, blocks = self._checksums()
        totals = RunTotals(sum(b.rows for b in blocks), self._tombstones, blocks)
        index = msgspec.json.encode(
            _LocalIndex(FORMAT, len(header), checksum(header), totals, self._decoded_from)
        )
        digest = checksum(index)
        self._sink.write(index + _TAIL.pack(len(index), int(digest, 16), MAGIC))
        size = self._sink.tell()
        self._sink.close()
        self._temporary.replace(self.path)
        return LocalRunInfo(LocalForm(size, digest), totals.rows, totals.tombstones)

    def abort(self) -> None:
        """Leave nothing behind."""
        if not self._sink.closed:
            self._sink.close()
        self._temporary.unlink(missing_ok=True)

    def _write_block(self, batch: pa.RecordBatch) -> None:
        offset = max(self._sink.tell(), self._header_bytes)
        self._stream.write_batch(batch)
        hashes = hash_values(batch)
        length = self._sink.tell() - offset
        first, last = int(hashes[0]), int(hashes[-1])
        self._blocks.append(
            Block(batch.num_rows, first, last, offset, length, batch.nbytes, checksum="")
        )
        self._tombstones += count_tombstones(batch)

    def _checksums(self) -> tuple[pa.Buffer, tuple[Block, ...]]:
        """Checksum what was written as it stands in the page cache."""
        with pa.memory_map(str(self._temporary)) as source:
            data = source.read_buffer()
        blocks = tuple(
            msgspec.structs.replace(b, checksum=checksum(data.slice(b.offset, b.length)))
            for b in self._blocks
        )
        return data.slice(0, self._header_bytes), blocks


def write_local(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> LocalRunInfo:
    """Write sorted tables as one local run; leave nothing behind if that fails."""
    writer = LocalRunWriter(path, schema)
    try:
        for table in tables:
            writer.write(table)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


class LocalRun:
    """An open local run. Blocks are views of the mapped file, valid as long as they are referred to."""

    def __init__(
        self,
        name: str,
        mapped: mmap.mmap,
        data: pa.Buffer,
        index: _LocalIndex,
        digest: str,
        *,
        verify: bool,
    ) -> None:
        self.name = name
        self.checksum = digest
        """Of the file's index: what a :class:`LocalForm` knows it by."""
        self._mapped = mapped
        self._data = data
        self._index = index
        self._unchecked = set(range(len(index.totals.blocks))) if verify else set()
        self._batches: list[pa.RecordBatch | None] = [None] * len(index.totals.blocks)
        header = data.slice(0, index.header_bytes)
        if checksum(header) != index.header_checksum:
            raise _corrupt(name, "its schema is not what was written")
        try:
            self.schema: pa.Schema = pa.ipc.read_schema(header)
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(name, f"its schema can't be read: {error}") from error

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> LocalRun:
        """Open a run in a time that does not depend on its rows.

        ``verify`` checks each block on first use. ``CorruptionError`` if the file is not a run,
        ``FileNotFoundError`` if there is none.
        """
        name = str(path)
        mapped = _map(path)
        if mapped is None or len(mapped) < _TAIL.size:
            raise _corrupt(name, "it is too short to be a run")
        data = pa.py_buffer(mapped)
        length, digest, magic = _TAIL.unpack(data.slice(len(data) - _TAIL.size))
        start = len(data) - _TAIL.size - length
        if magic != MAGIC or start < 0:
            raise _corrupt(name, "it does not end as a run does")
        encoded = data.slice(start, length)
        found = checksum(encoded)
        if int(found, 16) != digest:
            raise _corrupt(name, "its index is not what was written")
        return cls(name, mapped, data, _decode_index(name, encoded), found, verify=verify)

    @property
    def totals(self) -> RunTotals:
        """Counts, as the index gives them."""
        return self._index.totals

    @property
    def decoded_from(self) -> str:
        """The checksum of the stored form that it was made from; empty where the run was written."""
        return self._index.decoded_from

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks, by ascending hash."""
        return self._index.totals.blocks

    def block(self, index: int) -> pa.RecordBatch:
        """One block, as a view of the mapped file."""
        batch = self._batches[index]
        if batch is None:
            block = self.blocks[index]
            data = self._data.slice(block.offset, block.length)
            if index in self._unchecked:
                self.will_need(index)
                check_block(self.name, index, block, data)
                self._unchecked.discard(index)
            try:
                batch = pa.ipc.read_record_batch(data, self.schema)
            except (pa.ArrowException, OSError) as error:
                raise _corrupt(self.name, f"block {index} can't be read: {error}") from error
            self._batches[index] = batch
        return batch

    def blocks_at(self, indexes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """One block after the other."""
        return map(self.block, indexes)

    def only_with(self, indexes: Sequence[int], wanted: Callable[[int], Hashes]) -> Sequence[int]:
        """All of them: looking is as fast as reading."""
        del wanted
        return indexes

    def will_need(self, index: int) -> None:
        """All of a block is about to be read: have it brought in as a whole."""
        block = self.blocks[index]
        start = block.offset // mmap.PAGESIZE * mmap.PAGESIZE
        _advise(self._mapped, "MADV_WILLNEED", start, block.offset + block.length - start)

    def verify(self) -> None:
        """Check every byte, and that rows are sorted and counted as the index says."""
        end = self._index.header_bytes
        for index, block in enumerate(self.blocks):
            if block.offset != end:
                raise _corrupt(self.name, f"block {index} does not follow the one before")
            self.will_need(index)
            check_block(self.name, index, block, self._data.slice(block.offset, block.length))
            end += block.length
        if self._data.slice(end, len(_END_OF_STREAM)).to_pybytes() != _END_OF_STREAM:
            raise _corrupt(self.name, "its stream does not end where it should")
        verify_blocks(self, lambda problem: _corrupt(self.name, problem))


def _map(path: Path) -> mmap.mmap | None:
    """The file's bytes, mapped; None if it has none."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return None
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    # A look-up touches a few pages here and there. Left alone, the kernel would read megabytes
    # around each of them: all of a run for a hundred keys.
    _advise(mapped, "MADV_RANDOM", 0, size)
    return mapped


def _advise(mapped: mmap.mmap, advice: str, start: int, length: int) -> None:
    if (option := getattr(mmap, advice, None)) is not None:
        mapped.madvise(option, start, length)


def _decode_index(name: str, encoded: pa.Buffer) -> _LocalIndex:
    try:
        index = msgspec.json.decode(encoded, type=_LocalIndex)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise _corrupt(name, f"its index can't be read ({error})") from error
    if index.format != FORMAT:
        raise _corrupt(name, f"it has format {index.format}, this Holdfast reads {FORMAT}")
    return index


def _corrupt(name: str, problem: str) -> CorruptionError:
    return CorruptionError(
        f"local run {name}: {problem}",
        hint="delete the file; it will be fetched again from checkpoint storage or a peer",
        on_disk=True,
    )
