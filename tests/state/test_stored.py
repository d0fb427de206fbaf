"""The stored form: what is written is read back by block, and any other byte is noticed."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import CorruptionError
from holdfast.state import stored
from holdfast.state.blocks import Block, read_slice
from holdfast.state.encoding import parquet_options
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.keys import keys_equal, sort_rows
from holdfast.state.layout import ColumnLayout
from holdfast.state.run import StoredForm
from holdfast.state.schema import HASH, TOMBSTONE, field_id
from holdfast.state.stored import StoredInfo, StoredRun, encode_stored
from holdfast.storage import MemoryStorage
from tests.state.model import (
    KEY_VALUES,
    SCHEMA,
    hash_column,
    key_columns,
    many_rows,
    state_table,
    strong_hash,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "BLOCK_ROWS", 100)


class Object:
    """An object in storage that counts what is read of it."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = bytes(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.reads.append((start, length))
        return self.data[start : start + length]


def form_of(info: StoredInfo) -> StoredForm:
    return StoredForm("runs/1-x.parquet", info.size_bytes, info.checksum, info.tail_bytes)


def opened(data: bytes | bytearray | memoryview, info: StoredInfo) -> StoredRun:
    return StoredRun.open("1-x", form_of(info), Object(data).read)


def read_all(run: StoredRun) -> pa.Table:
    return pa.Table.from_batches(list(read_slice(run, FULL_RANGE)), run.schema)


@pytest.mark.parametrize("piece", [7, 100, 101, 1000])
def test_rows_come_back_whatever_the_size_of_writes(piece: int) -> None:
    table = many_rows(1000)
    pieces = [table.slice(start, piece) for start in range(0, 1000, piece)]
    data, info = encode_stored(pieces, table.schema)
    run = opened(data, info)
    run.verify()
    assert read_all(run).equals(table)
    assert (info.rows, info.tombstones, info.size_bytes) == (1000, 0, len(data))
    assert [block.rows for block in run.blocks] == [100] * 10


@pytest.mark.parametrize("stretch_bytes", [1, 6000, 1 << 20])
@pytest.mark.parametrize("wanted", [[], [3], [0, 1, 2, 5, 6, 9], [1, 3, 5, 7], list(range(10))])
def test_blocks_that_lie_together_are_read_together(
    monkeypatch: pytest.MonkeyPatch, wanted: list[int], stretch_bytes: int
) -> None:
    monkeypatch.setattr(stored, "_STRETCH_BYTES", stretch_bytes)
    data, info = encode_stored([many_rows(1000)], SCHEMA.arrow)
    storage = Object(data)
    run = StoredRun.open("1-x", form_of(info), storage.read)
    storage.reads.clear()
    found = list(run.blocks_at(wanted))
    reads = sorted(storage.reads)
    assert [batch.to_pydict() for batch in found] == [run.block(i).to_pydict() for i in wanted]
    blocks = [run.blocks[index] for index in wanted]
    assert sum(length for _, length in reads) == sum(block.length for block in blocks)
    if stretch_bytes == 1:
        assert reads == [(block.offset, block.length) for block in blocks]
    if stretch_bytes == 1 << 20:
        gaps = sum(after != before + 1 for before, after in itertools.pairwise(wanted))
        assert len(reads) == (gaps + 1 if wanted else 0)


def test_a_bad_block_among_many_is_named() -> None:
    data, info = encode_stored([many_rows(1000)], SCHEMA.arrow)
    block = opened(data, info).blocks[6]
    bad = bytearray(data)
    bad[block.offset + 5] ^= 1
    with pytest.raises(CorruptionError, match="block 6"):
        list(opened(bad, info).blocks_at(range(10)))


def test_column_ids_travel_with_the_file() -> None:
    data, info = encode_stored([many_rows(10)], SCHEMA.arrow)
    run = opened(data, info)
    assert run.schema.equals(SCHEMA.arrow, check_metadata=True)
    assert [field_id(field) for field in list(run.schema)[1:]] == [1, 2, 3, 4, 5]


def test_columns_without_ids_are_nobodys() -> None:
    foreign = pa.schema([field.remove_metadata() for field in SCHEMA.arrow])
    with pytest.raises(CorruptionError, match="not the keys"):
        ColumnLayout.find(SCHEMA, "1-x", foreign)


def test_any_parquet_reader_can_read_the_file() -> None:
    table = many_rows(250)
    data, _ = encode_stored([table], table.schema)
    assert pq.read_table(pa.BufferReader(data)).equals(table)


@pytest.mark.parametrize("kind", list(KEY_VALUES), ids=str)
def test_every_key_type_survives(kind: pa.DataType) -> None:
    keys: list[tuple[Any, ...]] = [(value,) for value in KEY_VALUES[kind]] * 100
    columns = [hash_column(keys, strong_hash), *key_columns([kind], keys)]
    rows = sort_rows(pa.Table.from_arrays(columns, names=[HASH, "k"]), keys=1).table
    data, info = encode_stored([rows], rows.schema)
    restored = read_all(opened(data, info))
    assert restored.schema == rows.schema
    assert keys_equal(restored.select([1]), rows.select([1])).all()


def test_every_value_type_survives() -> None:
    values = {
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
        "sketch": pa.array([b"\0" * 100, None, b""], pa.binary()),
        "n.count": pa.array([1, 2, None]),
        "null": pa.nulls(3, pa.decimal128(38, 18)),
    }
    table = pa.table({HASH: pa.array([1, 2, 3], pa.uint64()), "k": [1, 2, 3], **values})
    data, info = encode_stored([table], table.schema)
    run = opened(data, info)
    run.verify()
    assert read_all(run).equals(table)


def test_a_slice_fetches_only_the_blocks_it_touches() -> None:
    table = many_rows(1000)
    data, info = encode_stored([table], table.schema)
    source = Object(data)
    run = StoredRun.open("1-x", form_of(info), source.read)
    assert source.reads == [(info.size_bytes - info.tail_bytes, info.tail_bytes)]
    hashes = table.column(0).to_pylist()
    within = HashRange(hashes[250], hashes[349])
    assert pa.Table.from_batches(read_slice(run, within)).equals(table.slice(250, 100))
    touched = [(block.offset, block.length) for block in run.blocks[2:4]]
    assert source.reads[1:] == touched


def test_every_flipped_byte_is_noticed() -> None:
    data, info = encode_stored([many_rows(300)], SCHEMA.arrow)
    good = bytes(data)
    tail = range(len(good) - info.tail_bytes, len(good))
    for position in [*range(0, len(good), 41), 0, 3, 4, *list(tail)[::97], *list(tail)[-9:]]:
        bad = bytearray(good)
        bad[position] ^= 0x04
        with pytest.raises(CorruptionError, match="1-x"):
            opened(bad, info).verify()
    opened(good, info).verify()


@pytest.mark.parametrize("change", [-1, -1000, 1])
def test_another_length_is_noticed(change: int) -> None:
    data, info = encode_stored([many_rows(300)], SCHEMA.arrow)
    changed = bytes(data) + b"x" if change > 0 else bytes(data)[:change]
    with pytest.raises(CorruptionError, match="1-x"):
        opened(changed, info).verify()


def test_a_bad_block_is_noticed_before_it_is_decoded_and_others_can_be_read() -> None:
    data, info = encode_stored([many_rows(300)], SCHEMA.arrow)
    bad = bytearray(data)
    bad[opened(data, info).blocks[1].offset + 10] ^= 1
    run = opened(bad, info)
    assert run.block(0).num_rows == 100
    with pytest.raises(CorruptionError, match="block 1"):
        run.block(1)
    assert run.block(2).num_rows == 100


def test_of_blocks_without_the_wanted_hashes_only_hashes_are_read() -> None:
    table = many_rows(1000)
    data, info = encode_stored([table], table.schema)
    there = Object(data)
    run = StoredRun.open("1-x", form_of(info), there.read)
    there.reads.clear()
    hashes = table.column(0).to_numpy()
    absent = hashes[[250, 750]] + np.uint64(1)
    assert not np.isin(absent, hashes).any()
    wanted = {2: absent[:1], 5: hashes[550:551], 7: absent[1:], 9: hashes[-1:]}
    assert run.only_with(list(wanted), wanted.__getitem__) == [5, 9]
    assert sum(length for _, length in there.reads) < sum(b.length for b in run.blocks) / 5
    # Where most blocks have some, looking first would only be slower.
    there.reads.clear()
    assert run.only_with([1, 2], lambda index: hashes[100 * index : 100 * index + 50]) == [1, 2]
    assert there.reads == []


@pytest.mark.parametrize("apart", [0, 25], ids=["one byte", "two that make up for each other"])
def test_changed_hashes_are_never_believed(apart: int) -> None:
    """Two differences can change in opposite ways: order and bounds stay, and only the page's CRC tells."""
    table = many_rows(30)
    data, info = encode_stored([table], table.schema)
    chunk = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0).column(0)
    end = chunk.data_page_offset + chunk.total_compressed_size
    hashes = table.column(0).to_numpy()
    refused = 0
    for place in range(chunk.data_page_offset, end - apart):
        changed = bytearray(data)
        for other in {place, place + apart}:
            changed[other] ^= 1
        run = opened(changed, info)
        try:
            for row in range(30):
                assert run.only_with([0], lambda _, row=row: hashes[row : row + 1]) == [0]  # type: ignore[misc]
        except CorruptionError:
            refused += 1
    # Some bytes of a page's header say nothing about its values.
    assert refused > 0.9 * (end - apart - chunk.data_page_offset)


def test_a_run_may_be_empty() -> None:
    data, info = encode_stored([], SCHEMA.arrow)
    run = opened(data, info)
    run.verify()
    assert read_all(run).num_rows == 0
    assert info.tail_bytes == info.size_bytes


def test_tombstones_are_counted() -> None:
    table = state_table({("a", 1): None, ("b", 1): (1, 1.0, None), ("c", 1): None})
    data, info = encode_stored([table], table.schema)
    assert (info.rows, info.tombstones) == (3, 2)
    opened(data, info).verify()


def test_verify_compares_rows_with_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is whole but says the wrong thing of itself (a writer's bug)."""
    monkeypatch.setattr(stored, "count_tombstones", lambda batch: 1)
    data, info = encode_stored([many_rows(300)], SCHEMA.arrow)
    with pytest.raises(CorruptionError, match="tombstones"):
        opened(data, info).verify()


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"rows": 99},
        {"rows": 2**63},
        {"first": -1},
        {"last": 2**64},
    ],
    ids=str,
)
def test_an_index_that_no_run_can_have_is_damage(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    """Anybody may have written it: with less than no rows it took the process along."""
    blocks: list[Block] = []

    def block(*values: Any) -> Block:
        blocks.append(Block(*values))
        return blocks[-1] if len(blocks) > 1 else msgspec.structs.replace(blocks[0], **change)

    monkeypatch.setattr(stored, "Block", block)
    data, info = encode_stored([many_rows(300)], SCHEMA.arrow)
    with pytest.raises(CorruptionError, match="block 0"):
        list(opened(data, info).blocks_at(range(3)))


@pytest.mark.parametrize(
    "columns",
    [
        {"k": pa.array([1, 2])},
        {"k": pa.array([1, 2]), HASH: pa.array([1, 2], pa.uint64())},
        {HASH: pa.array(["a", "b"])},
        {HASH: pa.array([1.0, float("nan")])},
        {HASH: pa.array([1, None], pa.uint64())},
        {HASH: pa.array([1, 2], pa.uint64()), TOMBSTONE: pa.array([0, 1])},
    ],
    ids=lambda columns: ", ".join(f"{name} {column.type}" for name, column in columns.items()),
)
def test_columns_that_no_run_can_have_are_damage(
    monkeypatch: pytest.MonkeyPatch, columns: dict[str, pa.Array]
) -> None:
    batch = pa.record_batch(columns)
    monkeypatch.setattr(stored, "parquet_options", lambda batch: {})
    with monkeypatch.context() as writing:
        writing.setattr(stored, "hash_values", lambda rows: np.array([1, 2], np.uint64))
        writing.setattr(stored, "count_tombstones", lambda rows: 0)
        encoder = stored._Encoder(batch.schema)
        encoder.write(batch)
        data, info = encoder.close()
    with pytest.raises(CorruptionError):
        opened(data, info).verify()


@pytest.mark.parametrize(("size", "tail"), [(10, 11), (-1, -1), (10, -1)])
def test_sizes_that_no_file_has_are_damage(size: int, tail: int) -> None:
    data, info = encode_stored([many_rows(10)], SCHEMA.arrow)
    storage = MemoryStorage("sizes")
    storage.put("runs/1-x.parquet", data)
    form = StoredForm("runs/1-x.parquet", size, info.checksum, tail)
    with pytest.raises(CorruptionError, match="can't end with"):
        StoredRun.open("1-x", form, storage.reader(form.object))


def test_encodings_suit_the_columns() -> None:
    rows = 50_000
    random = np.random.default_rng(1)
    batch = pa.RecordBatch.from_pydict(
        {
            HASH: np.arange(rows, dtype=np.uint64),
            "id": [f"user {i}" for i in range(rows)],
            "city": [f"city {i % 10}" for i in range(rows)],
            "n": np.arange(rows),
            "sum": np.arange(rows) / 7,
            "price": np.round(random.gamma(2.0, 20.0, rows), 1),
            "often zero": np.where(random.random(rows) < 0.3, 0.0, random.random(rows)),
        }
    )
    options = parquet_options(batch)
    assert options["use_dictionary"] == ["city", "price"]
    assert options["column_encoding"] == {
        HASH: "DELTA_BINARY_PACKED",
        "id": "DELTA_BYTE_ARRAY",
        "n": "BYTE_STREAM_SPLIT",
        "sum": "BYTE_STREAM_SPLIT",
        "often zero": "BYTE_STREAM_SPLIT",
    }
