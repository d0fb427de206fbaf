"""The stored form of a run: Parquet in checkpoint storage, one row group per block.

The run's description vouches for the last ``tail_bytes`` of the file (Parquet's footer), the footer
for the bytes of each block: so a single block can be fetched, checked and decoded alone
(invariant 10). The index is JSON under the key ``holdfast`` of the footer's metadata.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

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
from holdfast.state.columns import hash_values, one_array
from holdfast.state.encoding import parquet_options
from holdfast.state.hashing import FULL_RANGE, Hashes
from holdfast.state.run import StoredForm
from holdfast.state.schema import HASH, KEY_HASH, TOMBSTONE

__all__ = ["StoredInfo", "StoredRun", "encode_stored"]

FORMAT = 1
INDEX_KEY = "holdfast"
# Small, so that a few keys can be read from a run that isn't here without reading much of it; smaller
# ones would take longer to decode.
BLOCK_ROWS = 1 << 13
BLOCK_BYTES = 32 << 20
_STRETCH_BYTES = 2 << 20
_THREADS = 4
# Single columns are small: it is their latency that takes time.
_LOOKING_THREADS = 8
# With more keys per block most blocks have some, and would be read twice.
_FEW = 4
# Everybody takes them to be of these types, and without nulls.
_OURS = {HASH: pa.uint64(), KEY_HASH: pa.uint64(), TOMBSTONE: pa.bool_()}


class StoredInfo(msgspec.Struct, frozen=True):
    """What was encoded, as far as a :class:`StoredForm` must know it."""

    size_bytes: int
    checksum: str
    tail_bytes: int
    rows: int
    tombstones: int


class _StoredIndex(msgspec.Struct, frozen=True):
    format: int
    totals: RunTotals
    page_checksums: bool = False
    """Whether every page has a CRC, so that columns can be read alone."""


def encode_stored(tables: Iterable[pa.Table], schema: pa.Schema) -> tuple[memoryview, StoredInfo]:
    """Encode sorted tables as one stored run."""
    cutter = BlockCutter(schema, BLOCK_ROWS, BLOCK_BYTES)
    encoder = _Encoder(schema)
    for table in tables:
        for batch in cutter.add(table):
            encoder.write(batch)
    for batch in cutter.finish():
        encoder.write(batch)
    return encoder.close()


class _Encoder:
    """Writes blocks as row groups and remembers where each lies."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._blocks: list[Block] = []
        self._tombstones = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = self._open(batch)
        # The first block takes in the file's leading magic, so that blocks and tail are all of it.
        start = self._sink.tell() if self._blocks else 0
        self._writer.write_table(pa.Table.from_batches([batch]), row_group_size=batch.num_rows)
        end = self._sink.tell()
        with self._sink.getbuffer() as view:
            digest = checksum(view[start:end])
        hashes = hash_values(batch)
        first, last = int(hashes[0]), int(hashes[-1])
        self._blocks.append(
            Block(batch.num_rows, first, last, start, end - start, batch.nbytes, digest)
        )
        self._tombstones += count_tombstones(batch)

    def close(self) -> tuple[memoryview, StoredInfo]:
        if self._writer is None:
            self._writer = self._open(pa.RecordBatch.from_pylist([], self._schema))
        rows = sum(block.rows for block in self._blocks)
        totals = RunTotals(rows, self._tombstones, tuple(self._blocks))
        index = msgspec.json.encode(_StoredIndex(FORMAT, totals, page_checksums=True)).decode()
        self._writer.add_key_value_metadata({INDEX_KEY: index})
        self._writer.close()
        data = self._sink.getbuffer()
        end = self._blocks[-1].offset + self._blocks[-1].length if self._blocks else 0
        tail = data[end:]
        info = StoredInfo(len(data), checksum(tail), len(tail), rows, self._tombstones)
        return data, info

    def _open(self, first: pa.RecordBatch) -> pq.ParquetWriter:
        return pq.ParquetWriter(self._sink, self._schema, **parquet_options(first))


class StoredRun:
    """An open stored run: its footer is in memory, blocks are fetched when they are used."""

    def __init__(
        self, name: str, form: StoredForm, read: Callable[[int, int], bytes], tail: bytes
    ) -> None:
        self.name = name
        """What messages call it."""
        self._form = form
        self._read = read
        try:
            footer = pq.ParquetFile(pa.BufferReader(tail), pre_buffer=False)
            self._metadata = footer.metadata
            self.schema: pa.Schema = footer.schema_arrow.remove_metadata()
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(name, f"its footer can't be read: {error}") from error
        if self.schema.types[:1] != [pa.uint64()] or any(
            _OURS.get(field.name, field.type) != field.type for field in self.schema
        ):
            raise _corrupt(name, f"it can't be a run with columns {self.schema.names}")
        index = self._read_index()
        self.totals: RunTotals = index.totals
        self._page_checksums = index.page_checksums
        self._latest: tuple[int, pa.RecordBatch] | None = None

    @classmethod
    def open(cls, name: str, form: StoredForm, read: Callable[[int, int], bytes]) -> StoredRun:
        """Open the run of this name; ``read(start, length)`` gives bytes of its object."""
        if not 0 <= form.tail_bytes <= form.size_bytes:
            raise _corrupt(name, f"its {form.size_bytes} bytes can't end with {form.tail_bytes}")
        tail = read(form.size_bytes - form.tail_bytes, form.tail_bytes)
        if len(tail) != form.tail_bytes or checksum(tail) != form.checksum:
            raise _corrupt(name, "its footer is not what was written")
        return cls(name, form, read, tail)

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks, by ascending hash."""
        return self.totals.blocks

    def block(self, index: int) -> pa.RecordBatch:
        """Fetch, check and decode one block; the latest one is kept."""
        latest = self._latest
        if latest is None or latest[0] != index:
            (batch,) = self._load(range(index, index + 1))
            latest = self._latest = (index, batch)
        return latest[1]

    def blocks_at(self, indexes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Fetch, check and decode blocks, in ascending order: neighbours together, and some ahead."""
        if len(indexes) < 2:
            yield from map(self.block, indexes)
            return
        for batches in runtime.ahead(self._load, self._stretches(indexes), _THREADS):
            yield from batches

    def only_with(self, indexes: Sequence[int], wanted: Callable[[int], Hashes]) -> Sequence[int]:
        """Those of these blocks that have any of the hashes wanted of each, by their hashes alone.

        Those are about a fifth of a block, and keys that are new need no more.
        """
        asked = sum(len(wanted(index)) for index in indexes)
        if not self._page_checksums or asked > _FEW * len(indexes):
            return indexes
        found = runtime.each(
            lambda index: self._has_any(index, wanted(index)), indexes, _LOOKING_THREADS
        )
        return [index for index, has in zip(indexes, found, strict=True) if has]

    def _has_any(self, index: int, wanted: Hashes) -> bool:
        hashes = self._hashes(index)
        # None is above the block's last one, so every position is in bounds.
        return bool((hashes[hashes.searchsorted(wanted)] == wanted).any())

    def _hashes(self, index: int) -> Hashes:
        """Fetch, check and decode the hashes of a block alone."""
        block = self.blocks[index]
        self._check_chunks(index, block)
        start, end = _extent(self._metadata.row_group(index).column(0))
        file = self._opened(start, self._read(start, end - start), check=True)
        try:
            table = file.read_row_group(index, columns=self.schema.names[:1], use_threads=False)
            hashes = hash_values(table)
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(self.name, f"hashes of block {index} can't be read: {error}") from error
        bounds = (int(hashes[0]), int(hashes[-1])) if len(hashes) == block.rows else None
        if bounds != (block.first, block.last) or not (hashes[1:] >= hashes[:-1]).all():
            raise _corrupt(self.name, f"hashes of block {index} are not what was written")
        return hashes

    def _stretches(self, indexes: Sequence[int]) -> Iterator[range]:
        """Those of these blocks that lie together, as far as they are worth one read."""
        start, size = indexes[0], 0
        for index, following in itertools.zip_longest(indexes, indexes[1:]):
            size += self.blocks[index].length
            if following != index + 1 or size >= _STRETCH_BYTES:
                yield range(start, index + 1)
                start, size = following, 0

    def _checked(self, stretch: range) -> bytes:
        """The bytes of blocks that lie together."""
        blocks = self.blocks[stretch.start : stretch.stop]
        first = blocks[0].offset
        data = self._read(first, blocks[-1].offset + blocks[-1].length - first)
        for index, block in zip(stretch, blocks, strict=True):
            start = block.offset - first
            check_block(self.name, index, block, memoryview(data)[start : start + block.length])
        return data

    def _load(self, stretch: range) -> list[pa.RecordBatch]:
        """Fetch, check and decode blocks that lie together."""
        blocks = self.blocks[stretch.start : stretch.stop]
        for index, block in zip(stretch, blocks, strict=True):
            self._check_chunks(index, block)
        first, data = blocks[0].offset, self._checked(stretch)
        try:
            # All at once: a call for each would take longer than to decode it.
            table = self._opened(first, data).read_row_groups(list(stretch), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            which = f"blocks {stretch.start} to {stretch.stop - 1}"
            raise _corrupt(self.name, f"{which} can't be read: {error}") from error
        arrays = [one_array(column) for column in table.columns]
        for field, array in zip(self.schema, arrays, strict=True):
            if array.null_count and (field.name in _OURS or array is arrays[0]):
                raise _corrupt(self.name, f"its column {field.name} has nulls")
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        ends = itertools.accumulate(block.rows for block in blocks)
        return [
            rows.slice(end - block.rows, block.rows)
            for end, block in zip(ends, blocks, strict=True)
        ]

    def _opened(self, start: int, data: bytes, *, check: bool = False) -> pq.ParquetFile:
        """The file, of which these bytes can be read: one for each, for threads to use."""
        window = _PartOfFile(self._form.size_bytes, start, data)
        return pq.ParquetFile(
            window,
            metadata=self._metadata,
            pre_buffer=False,
            page_checksum_verification=check,
        )

    def will_need(self, index: int) -> None:
        """Nothing to do: a block is always fetched as a whole."""

    def check_bytes(self) -> None:
        """Check the bytes of every block, without decoding them."""
        for stretch in self._stretches(range(len(self.blocks))):
            self._checked(stretch)

    def verify(self) -> None:
        """Check every byte, and that rows are sorted and counted as the index says."""
        end = 0
        for index, block in enumerate(self.blocks):
            if block.offset != end:
                raise _corrupt(self.name, f"block {index} does not follow the one before")
            end += block.length
        if end + self._form.tail_bytes != self._form.size_bytes:
            raise _corrupt(self.name, "its blocks and footer are not all of it")
        if self._read(self._form.size_bytes, 1):
            raise _corrupt(self.name, "it is longer than what was written")
        verify_blocks(self, lambda problem: _corrupt(self.name, problem))

    def _read_index(self) -> _StoredIndex:
        try:
            encoded = self._metadata.metadata[INDEX_KEY.encode()]
            index = msgspec.json.decode(encoded, type=_StoredIndex)
        except (KeyError, TypeError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            raise _corrupt(self.name, f"its index can't be read ({error})") from error
        if index.format != FORMAT:
            raise _corrupt(self.name, f"it has format {index.format}, this Holdfast reads {FORMAT}")
        if len(index.totals.blocks) != self._metadata.num_row_groups:
            raise _corrupt(self.name, "it has another number of row groups than its index says")
        for number, block in enumerate(index.totals.blocks):
            if not _is_possible(block, self._form.size_bytes):
                raise _corrupt(self.name, f"block {number} can't be what its index says")
        return index

    def _check_chunks(self, index: int, block: Block) -> None:
        group = self._metadata.row_group(index)
        if group.num_rows != block.rows:
            raise _corrupt(
                self.name, f"block {index} has another number of rows than its index says"
            )
        for number in range(group.num_columns):
            start, end = _extent(group.column(number))
            if start < block.offset or end > block.offset + block.length:
                raise _corrupt(self.name, f"column {number} of block {index} lies outside of it")


def _is_possible(block: Block, size_bytes: int) -> bool:
    """Whether a file of this size can have such a block: anybody may have written the index."""
    return (
        block.rows >= 0
        and 0 <= block.first <= block.last <= FULL_RANGE.last
        and 0 <= block.offset <= block.offset + block.length <= size_bytes
    )


def _extent(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where the bytes of a column of a block begin and end."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


class _PartOfFile(io.RawIOBase):
    """A file of which only one stretch can be read: what Parquet's reader sees of an object."""

    def __init__(self, size: int, start: int, data: bytes) -> None:
        self._size = size
        self._position = 0
        self._start = start
        self._data = data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        offset = self._position - self._start
        if offset < 0 or size < 0:
            return b""
        data = self._data[offset : offset + size]
        self._position += len(data)
        return data


def _corrupt(name: str, problem: str) -> CorruptionError:
    return CorruptionError(
        f"stored run {name}: {problem}",
        hint="restore the run from another copy, or start from an older entry that is whole",
    )
