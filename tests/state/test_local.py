"""The local form: what is written is read back, lazily, and any other byte is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import CorruptionError, InternalError
from holdfast.state import local
from holdfast.state.blocks import read_slice
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.local import LocalRun, LocalRunInfo, LocalRunWriter
from tests.state.model import SCHEMA, many_rows, state_table


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BLOCK_ROWS", 100)


def write(path: Path, *tables: pa.Table) -> LocalRunInfo:
    writer = LocalRunWriter(path, tables[0].schema)
    for table in tables:
        writer.write(table)
    return writer.close()


def read_all(run: LocalRun) -> pa.Table:
    return pa.Table.from_batches(list(read_slice(run, FULL_RANGE)), run.schema)


@pytest.mark.parametrize("piece", [1, 7, 99, 100, 101, 1000])
def test_rows_come_back_whatever_the_size_of_writes(tmp_path: Path, piece: int) -> None:
    table = many_rows(1000)
    pieces = [table.slice(start, piece) for start in range(0, 1000, piece)]
    info = write(tmp_path / "run", *pieces)
    run = LocalRun.open(tmp_path / "run")
    run.verify()
    assert read_all(run).equals(table)
    assert run.schema.equals(SCHEMA.arrow, check_metadata=True)
    assert (info.rows, info.tombstones) == (1000, 0)
    assert [block.rows for block in run.blocks] == [100] * 10
    assert info.form.size_bytes == (tmp_path / "run").stat().st_size


def test_any_arrow_reader_can_read_the_file(tmp_path: Path) -> None:
    table = many_rows(250)
    write(tmp_path / "run", table)
    with pa.ipc.open_stream(tmp_path / "run") as reader:
        assert reader.read_all().equals(table)


def test_a_hash_is_never_split_between_blocks(tmp_path: Path) -> None:
    table = many_rows(1000, hash_of=lambda key: hash(key[0]) % 4)
    write(tmp_path / "run", *(table.slice(start, 60) for start in range(0, 1000, 60)))
    run = LocalRun.open(tmp_path / "run")
    run.verify()
    assert [(b.first, b.last) for b in run.blocks] == [(h, h) for h in range(4)]
    assert read_all(run).equals(table)


def test_large_rows_make_blocks_of_few_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BLOCK_BYTES", 10_000)
    table = state_table({(f"w{i}", 0): (i, 0.0, "x" * 1000) for i in range(200)})
    write(tmp_path / "run", table)
    run = LocalRun.open(tmp_path / "run")
    assert all(block.decoded_bytes <= 11_000 for block in run.blocks)
    assert read_all(run).equals(table)


def test_a_slice_reads_only_the_blocks_it_touches(tmp_path: Path) -> None:
    table = many_rows(1000)
    write(tmp_path / "run", table)
    run = LocalRun.open(tmp_path / "run")
    hashes = table.column(0).to_pylist()
    within = HashRange(hashes[250], hashes[349])
    assert pa.Table.from_batches(read_slice(run, within)).equals(table.slice(250, 100))
    assert [i for i, batch in enumerate(run._batches) if batch is not None] == [2, 3]
    between = HashRange(hashes[250] + 1, hashes[251] - 1)
    assert list(read_slice(run, between)) == []


def test_tombstones_are_counted(tmp_path: Path) -> None:
    table = state_table({("a", 1): None, ("b", 1): (1, 1.0, None), ("c", 1): None})
    info = write(tmp_path / "run", table)
    assert (info.rows, info.tombstones) == (3, 2)
    LocalRun.open(tmp_path / "run").verify()


def test_a_run_may_be_empty(tmp_path: Path) -> None:
    write(tmp_path / "run", SCHEMA.arrow.empty_table())
    run = LocalRun.open(tmp_path / "run")
    run.verify()
    assert read_all(run).num_rows == 0
    assert run.schema == SCHEMA.arrow


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write(path, many_rows(300))
    good = path.read_bytes()
    for position in [*range(0, len(good), 37), *range(len(good) - 60, len(good))]:
        bad = bytearray(good)
        bad[position] ^= 0x10
        path.write_bytes(bad)
        with pytest.raises(CorruptionError, match=str(path)):
            LocalRun.open(path).verify()
    path.write_bytes(good)
    LocalRun.open(path).verify()


@pytest.mark.parametrize("length", [0, 5, 23, 24, 1000, -1])
def test_a_truncated_file_is_noticed_at_once(tmp_path: Path, length: int) -> None:
    path = tmp_path / "run"
    write(path, many_rows(300))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CorruptionError, match=str(path)):
        LocalRun.open(path)


def test_with_verify_a_bad_block_is_noticed_on_first_use(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write(path, many_rows(300))
    block = LocalRun.open(path).blocks[1]
    data = bytearray(path.read_bytes())
    data[block.offset + block.length - 1] ^= 1
    path.write_bytes(data)
    run = LocalRun.open(path, verify=True)
    assert run.block(0).num_rows == 100
    with pytest.raises(CorruptionError, match="block 1"):
        run.block(1)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalRun.open(tmp_path / "nothing")


def test_nothing_is_visible_before_close_and_nothing_left_after_abort(tmp_path: Path) -> None:
    writer = LocalRunWriter(tmp_path / "run", SCHEMA.arrow)
    writer.write(many_rows(300))
    assert not (tmp_path / "run").exists()
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    table = many_rows(300)
    writer = LocalRunWriter(tmp_path / "run", SCHEMA.arrow)
    writer.write(table.slice(100))
    with pytest.raises(InternalError, match="order"):
        writer.write(table.slice(0, 100))
    with pytest.raises(InternalError, match="order"):
        writer.write(table.take(pa.array(np.arange(300)[::-1])))
    with pytest.raises(InternalError, match="was given"):
        writer.write(table.select([0, 1]))
    writer.abort()


def test_a_run_stays_readable_after_its_file_is_deleted(tmp_path: Path) -> None:
    table = many_rows(300)
    write(tmp_path / "run", table)
    run = LocalRun.open(tmp_path / "run")
    (tmp_path / "run").unlink()
    assert read_all(run).equals(table)
