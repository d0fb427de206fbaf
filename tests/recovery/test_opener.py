"""Runs are opened from the nearest tier: disk, on demand from storage, fetched as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import StateLostError
from holdfast.recovery.opener import RunOpener, local_path
from holdfast.recovery.storing import store_run
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.local import LocalRun, write_local
from holdfast.state.run import Run
from holdfast.state.stored import StoredRun
from holdfast.storage import LocalStorage, MemoryStorage

SCHEMA = pa.schema(
    [pa.field("hash", pa.uint64(), nullable=False), ("word", pa.string()), ("n", pa.int64())]
)
ROWS = 300_000  # more than two blocks of the stored form


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    numbers = np.arange(ROWS)
    words = pa.array(np.char.add("w", numbers.astype(str)))
    hashes = (numbers * (2**64 // ROWS)).astype(np.uint64)
    return pa.Table.from_arrays([pa.array(hashes), words, pa.array(numbers)], schema=SCHEMA)


@pytest.fixture(scope="module")
def stored(
    rows: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, LocalStorage, Path]:
    """A run, the storage with its stored form, and the folder with its local form."""
    folder = tmp_path_factory.mktemp("written")
    storage = LocalStorage(tmp_path_factory.mktemp("ck"))
    info = write_local(local_path(folder, "3-7-0-a"), SCHEMA, [rows])
    form = msgspec.structs.replace(info.form, hosts=("h1",))
    run = Run("3-7-0-a", "words.sums", FULL_RANGE, 7, 7, ROWS, local=form)
    return store_run(storage, run, [rows], SCHEMA), storage, folder


@pytest.fixture(autouse=True)
def _closed(tmp_path: Path) -> Iterator[None]:
    yield
    RunOpener(tmp_path, MemoryStorage("unused")).keep_only(())


def test_what_is_on_disk_is_mapped_and_nothing_is_fetched(
    stored: tuple[Run, LocalStorage, Path],
) -> None:
    run, _, folder = stored
    opener = RunOpener(folder, MemoryStorage("empty"), touching=1)
    assert isinstance(opener.open(run), LocalRun)
    assert (opener.fetched_bytes, opener.local_bytes) == (0, run.size_bytes)


def test_few_keys_are_read_on_demand(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage, touching=2)
    opened = opener.open(run)
    assert isinstance(opened, StoredRun)
    before = opener.fetched_bytes
    block = opened.block(1)
    assert block.equals(
        rows.slice(len(opened.block(0)), len(block)).combine_chunks().to_batches()[0]
    )
    assert run.stored is not None
    assert before < opener.fetched_bytes < run.stored.size_bytes
    assert not local_path(tmp_path, run.name).exists()


def test_many_keys_are_worth_a_fetch_and_the_next_worker_finds_the_file(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage, touching=1000)
    assert isinstance(opener.open(run), LocalRun)
    assert opener.fetched == [run.name]
    opener.keep_only(())
    found = RunOpener(tmp_path, MemoryStorage("empty"), own_claim=9).open(run)
    blocks = [found.block(index) for index in range(len(found.blocks))]
    assert pa.Table.from_batches(blocks).equals(rows)


def test_a_file_with_other_rows_is_not_the_run(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    write_local(local_path(tmp_path, run.name), SCHEMA, [rows.slice(0, 10)])
    opener = RunOpener(tmp_path, storage)
    assert opener.open(run).totals.rows == ROWS
    assert opener.fetched == [run.name]


def test_a_run_that_was_read_on_demand_is_mapped_once_it_is_here(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage, touching=1)
    assert isinstance(opener.open(run), StoredRun)
    RunOpener(tmp_path, storage).fetch(run)
    assert isinstance(opener.open(run), LocalRun)


def test_the_map_of_a_file_that_another_worker_deleted_is_let_go(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage, touching=1)
    opener.fetch(run)
    local_path(tmp_path, run.name).unlink()
    assert isinstance(opener.open(run), StoredRun)


def test_a_run_that_only_another_host_has_is_out_of_reach(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, _ = stored
    unsaved = msgspec.structs.replace(run, stored=None)
    with pytest.raises(StateLostError, match=r"3-7-0-a of words\.sums .* \(written on h1\)"):
        RunOpener(tmp_path, storage).open(unsaved)


def test_a_file_of_another_claim_is_checked_and_replaced_when_it_is_bad(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, folder = stored
    path = local_path(tmp_path, run.name)
    data = bytearray(local_path(folder, run.name).read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    opener = RunOpener(tmp_path, storage, own_claim=9)
    opened = opener.open(run)
    with pytest.raises(Exception, match="block 0"):
        opened.block(0)
    assert opener.drop_bad() == [run.name]
    again = RunOpener(tmp_path, storage, own_claim=9)
    assert again.open(run).block(0).num_rows > 0
    assert again.fetched == [run.name]
