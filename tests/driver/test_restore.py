"""What a start reads back of an entry, checked before it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checkpoint.coordinator import Coordinator, StoreResult
from holdfast.checkpoint.entry import Checkpoint, EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.retention import Retention
from holdfast.driver.restore import newest_whole, read_position
from holdfast.errors import CorruptionError
from holdfast.state.expiry import TableClock
from holdfast.state.version import Version
from holdfast.storage import LocalStorage, MemoryStorage, Storage
from tests.checkpoint.log_support import open_log


class StoresNothing:
    """For pipelines without state."""

    def store(self, version: Version, clock: TableClock | None) -> StoreResult:
        del version, clock
        return StoreResult(())


def positions(epoch: int) -> dict[str, bytes]:
    offsets = b'v1\n{"batchWatermarkMs":0}\n{"topic":{"0":%d}}' % (1800 + epoch)
    return {"metadata": b"{}", f"offsets/{epoch}": offsets, f"commits/{epoch}": b"v1\n{}"}


def checkpointed(storage: Storage, epochs: int = 1) -> list[Checkpoint]:
    """The entries of a pipeline that has read some epochs."""
    ledger = Ledger(Version(-1))
    log = open_log(storage)
    coordinator = Coordinator(
        log=log,
        storage=storage,
        ledger=ledger,
        storer=StoresNothing(),
        sinks={},
        schemas=(),
        program={},
        retention=Retention(),
        now_ms=lambda: 1,
    )
    entries = []
    for epoch in range(epochs):
        ledger.record_epoch(EpochRecord(epoch, 1, 1), [], {}, positions(epoch), 0)
        entries.append(coordinator.checkpoint())
    return [entry for entry in entries if entry is not None]


def test_sparks_position_is_read_back_as_it_was_stored() -> None:
    storage = MemoryStorage("position")
    (entry,) = checkpointed(storage)
    assert read_position(entry, storage) == positions(0)


def test_any_changed_bit_of_sparks_position_is_noticed() -> None:
    storage = MemoryStorage("position-damaged")
    (entry,) = checkpointed(storage)
    blob = entry.spark["offsets/0"]
    whole = storage.get(blob)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        storage.put(blob, bytes(changed))
        with pytest.raises(CorruptionError, match=f"entry {entry.number} names {blob}"):
            read_position(entry, storage)


def test_bytes_that_changed_only_on_their_way_are_read_again() -> None:
    class Careless(MemoryStorage):
        reads = 0

        def get(self, name: str) -> bytes:
            Careless.reads += 1
            return super().get(name)[: -1 if Careless.reads == 1 else None]

    storage = Careless("position-careless")
    (entry,) = checkpointed(storage)
    assert read_position(entry, storage) == positions(0)


def test_a_checkpoint_with_a_damaged_position_is_not_called_whole(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "ck")
    first, second, third = checkpointed(storage, 3)
    storage.put(second.spark["offsets/1"], b"something else")
    assert newest_whole([third, second, first], storage, below=third.number) == first
