"""Background jobs on one host: what becomes of a piece is no other piece's business."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.background import BackgroundJobs
from holdfast.driver.engine import Engine
from holdfast.driver.local_files import LocalFiles
from holdfast.driver.site import LocalSite
from holdfast.errors import StorageError
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.local import write_local
from holdfast.state.merge import merge_runs
from holdfast.state.run import Run
from holdfast.state.schema import Column, TableSchema
from holdfast.state.version import Change, Version
from holdfast.storage import MemoryStorage
from holdfast.storage.base import Buffer
from holdfast.tasks import merging
from holdfast.tiers.opener import local_path

# Little is stored by the driver itself, which needs no more of an engine.
ENGINE = cast(Engine, SimpleNamespace(host="h1"))
SCHEMAS = {
    table: TableSchema(table, (Column(1, "k", pa.int64()),), (Column(2, "n", pa.int64()),))
    for table in ("op.first", "op.second", "op.third")
}


def write(files: LocalFiles, table: str, epoch: int) -> Change:
    """What a task makes of one row."""
    schema, name = SCHEMAS[table], f"0-{epoch}-{table}"
    columns = [pa.array([7], pa.uint64()), pa.array([1]), pa.array([1])]
    rows = pa.Table.from_arrays(columns, schema=schema.arrow)
    info = write_local(local_path(files.folder, name), schema.arrow, [rows])
    return Change(
        table, FULL_RANGE, (), Run(name, table, FULL_RANGE, epoch, epoch, 1, local=info.form)
    )


@pytest.mark.parametrize("error", [StorageError("full"), pa.ArrowMemoryError("malloc failed")])
def test_a_piece_that_fails_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    storage, ledger = MemoryStorage(f"pieces-{type(error).__name__}"), Ledger(Version(-1))
    files = LocalFiles(tmp_path, "p", storage.url)
    files.open(0, None)
    jobs = BackgroundJobs(
        engine=ENGINE,
        ledger=ledger,
        storage=storage,
        schemas=SCHEMAS,
        claim=0,
        site=LocalSite(files),
        partitions=1,
    )
    changes = [write(files, table, 0) for table in SCHEMAS]
    ledger.record_epoch(EpochRecord(0, 3, 0), changes, {}, {}, 0)

    def failing(schema: TableSchema, *given: Any, **options: Any) -> Iterator[pa.Table]:
        if schema.table == "op.second":
            raise error
        return merge_runs(schema, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(merging, "merge_runs", failing)
        result = jobs.store(ledger.version, None)
    assert str(error) in str(result.error)
    assert [change.table for change in result.changes] == ["op.first", "op.third"]
    ledger.install(result.changes)
    # The next attempt has only that one to store.
    again = jobs.store(ledger.version, None)
    assert again.error is None
    assert [change.table for change in again.changes] == ["op.second"]


def test_what_a_merge_is_writing_stays_when_an_epoch_ends_meanwhile(tmp_path: Path) -> None:
    class Storage(MemoryStorage):
        def put(self, name: str, data: Buffer) -> None:
            site.retire(ledger)
            super().put(name, data)

    storage, ledger = Storage("merging"), Ledger(Version(-1))
    files = LocalFiles(tmp_path, "p", storage.url)
    files.open(0, None)
    site = LocalSite(files)
    jobs = BackgroundJobs(
        engine=ENGINE,
        ledger=ledger,
        storage=storage,
        schemas=SCHEMAS,
        claim=0,
        site=site,
        partitions=1,
    )
    for epoch in range(8):
        with ledger.epoch():
            change = write(files, "op.first", epoch)
            ledger.record_epoch(EpochRecord(epoch, 1, 0), [change], {}, {}, 0)
        ledger.install(jobs.store(ledger.version, None).changes)
    # The next look at the folder comes while the merged run is written.
    files._since_listing = 0
    assert jobs.compact() == 1
    (run,) = ledger.version.runs()
    assert local_path(files.folder, run).exists()
