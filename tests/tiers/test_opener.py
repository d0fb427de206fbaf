"""Runs are opened from the nearest tier: disk, on demand from storage, fetched as a whole."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import CorruptionError, StateLostError
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.local import LocalRun, write_local
from holdfast.state.run import Run
from holdfast.state.stored import StoredRun
from holdfast.storage import LocalStorage, MemoryStorage
from holdfast.tiers import opener as opener_module
from holdfast.tiers.opener import RunOpener, local_path, open_local
from holdfast.tiers.stored_copy import copy_path
from holdfast.tiers.storing import store_run

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
    opener = RunOpener(folder, MemoryStorage("empty"), wanted_keys=1)
    assert isinstance(opener.open(run), LocalRun)
    assert (opener.fetched_bytes, opener.local_bytes) == (0, run.size_bytes)


def test_few_keys_are_read_on_demand(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage, wanted_keys=2)
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
    opener = RunOpener(tmp_path, storage, wanted_keys=1000)
    opener.open(run)
    assert opener.fetched == [run.name]
    opener.keep_only(())
    found = RunOpener(tmp_path, MemoryStorage("empty"), own_claim=9).open(run)
    blocks = [found.block(index) for index in range(len(found.blocks))]
    assert pa.Table.from_batches(blocks).equals(rows)


def test_a_copy_has_the_stored_bytes_and_is_read_without_storage(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    assert run.stored is not None
    opener = RunOpener(tmp_path, storage)
    opener.copy(run)
    assert opener.fetched == [run.name]
    assert copy_path(tmp_path, run.name).read_bytes() == storage.get(run.stored.object)
    opener.keep_only(())
    empty = RunOpener(tmp_path, MemoryStorage("empty"), wanted_keys=1)
    found = empty.open(run)
    assert pa.Table.from_batches(found.blocks_at(range(len(found.blocks)))).equals(rows)
    assert (empty.fetched, empty.fetched_bytes, empty.local_bytes) == ([], 0, run.size_bytes)
    assert empty.copy(run) is found


def test_a_copy_is_decoded_without_storage_and_gives_way_to_the_local_form(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    RunOpener(tmp_path, storage).copy(run)
    opener = RunOpener(tmp_path, MemoryStorage("empty"))
    found = opener.fetch(run)
    assert isinstance(found, LocalRun)
    assert pa.Table.from_batches(found.blocks_at(range(len(found.blocks)))).equals(rows)
    assert not opener.fetched
    assert not copy_path(tmp_path, run.name).exists()
    assert opener.open(run) is opener.copy(run) is found


def test_bytes_that_storage_got_wrong_are_no_copy(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, _ = stored
    assert run.stored is not None
    data = bytearray(storage.get(run.stored.object))
    data[len(data) // 3] ^= 1
    wrong = MemoryStorage("wrong")
    wrong.put(run.stored.object, bytes(data))
    with pytest.raises(CorruptionError, match="block"):
        RunOpener(tmp_path, wrong).copy(run)
    with pytest.raises(CorruptionError, match="there is no object"):
        RunOpener(tmp_path, MemoryStorage("none")).copy(run)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("damage", ["block", "length", "footer"])
def test_a_copy_that_went_bad_is_replaced(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path, damage: str
) -> None:
    run, storage, _ = stored
    RunOpener(tmp_path, storage).copy(run)
    RunOpener(tmp_path, storage).keep_only(())
    path = copy_path(tmp_path, run.name)
    data = bytearray(path.read_bytes())
    data[{"block": len(data) // 3, "length": 0, "footer": -9}[damage]] ^= 1
    path.write_bytes(data[:-1] if damage == "length" else data)
    opener = RunOpener(tmp_path, storage, wanted_keys=1000)
    opened = opener.open(run)
    if damage == "block":
        # Nobody looks at all of it when it is opened.
        with pytest.raises(CorruptionError, match="block"):
            list(opened.blocks_at(range(len(opened.blocks))))
        assert opener.drop_bad() == [run.name]
        opened = opener.open(run)
    assert opener.fetched == [run.name]
    assert sum(len(block) for block in opened.blocks_at(range(len(opened.blocks)))) == ROWS


def test_a_bad_copy_is_not_decoded_but_fetched_anew(
    stored: tuple[Run, LocalStorage, Path], rows: pa.Table, tmp_path: Path
) -> None:
    run, storage, _ = stored
    RunOpener(tmp_path, storage).copy(run)
    path = copy_path(tmp_path, run.name)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    opener = RunOpener(tmp_path, storage)
    found = opener.fetch(run)
    assert pa.Table.from_batches(found.blocks_at(range(len(found.blocks)))).equals(rows)
    assert opener.fetched == [run.name]
    assert not path.exists()


def test_a_deleted_run_has_no_file_of_either_form(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage)
    opener.copy(run)
    opener.delete(run.name)
    assert not copy_path(tmp_path, run.name).exists()
    opener.fetch(run)
    opener.delete(run.name)
    assert not local_path(tmp_path, run.name).exists()


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
    opener = RunOpener(tmp_path, storage, wanted_keys=1)
    assert isinstance(opener.open(run), StoredRun)
    RunOpener(tmp_path, storage).fetch(run)
    assert isinstance(opener.open(run), LocalRun)


def test_the_map_of_a_file_that_another_worker_deleted_is_let_go(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path
) -> None:
    run, storage, _ = stored
    opener = RunOpener(tmp_path, storage, wanted_keys=1)
    opener.fetch(run)
    local_path(tmp_path, run.name).unlink()
    assert isinstance(opener.open(run), StoredRun)


def test_a_file_that_another_worker_deletes_while_it_is_opened_is_as_good_as_none(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, storage, _ = stored
    RunOpener(tmp_path, storage).fetch(run)
    RunOpener(tmp_path, storage).keep_only(())

    def deleted_first(run: Run, path: Path, *, verify: bool) -> LocalRun:
        path.unlink()
        return open_local(run, path, verify=verify)

    monkeypatch.setattr(opener_module, "open_local", deleted_first)
    assert isinstance(RunOpener(tmp_path, storage, wanted_keys=1).open(run), StoredRun)


@pytest.mark.parametrize("form", ["local", "copy", "on demand"])
def test_a_reused_worker_lets_go_of_what_an_earlier_claim_had_open(
    stored: tuple[Run, LocalStorage, Path], tmp_path: Path, form: str
) -> None:
    run, storage, _ = stored
    earlier, later = tmp_path / "3", tmp_path / "8"
    opener = RunOpener(earlier, storage, wanted_keys=1)
    opened = {"local": opener.fetch, "copy": opener.copy, "on demand": opener.open}[form](run)
    held = weakref.ref(opened)
    del opened, opener
    earlier.mkdir(exist_ok=True)
    later.mkdir()
    RunOpener(later, storage).keep_only(())
    assert held() is not None, "another pipeline's, for all that is known"
    shutil.rmtree(earlier)  # as the later claim does when it begins
    RunOpener(later, storage).keep_only(())
    gc.collect()
    assert held() is None


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
