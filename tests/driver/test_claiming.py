"""Where a start, or a recovery of what was started, continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from holdfast import sinks
from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, LAST_EPOCH, entry_name
from holdfast.checkpoint.log import read_log
from holdfast.driver.claiming import (
    Own,
    _checked_epoch,
    _may_be_damaged,
    _where_to_continue,
    check_still_own,
    sink_context,
)
from holdfast.errors import CorruptionError, FencedError, InternalError, StorageError
from holdfast.storage import MemoryStorage, ObjectInfo
from holdfast.storage.base import Buffer
from tests.checkpoint.log_support import checkpoint_fields, open_log


@pytest.mark.parametrize(
    ("from_entry", "recovers", "own", "expected"),
    [
        (None, False, None, False),
        (1, False, None, True),
        (1, True, None, True),
        (1, True, "whole", False),
        (1, True, "damaged", False),
    ],
)
def test_a_recovery_does_not_read_around_what_the_pipeline_itself_has_written(
    from_entry: int | None, recovers: bool, own: str | None, expected: bool
) -> None:
    storage = MemoryStorage(f"start-{from_entry}-{recovers}-{own}")
    open_log(storage).append_checkpoint(**checkpoint_fields(0))
    log = open_log(storage, "asked to start from an entry")
    if own is not None:
        number = log.append_checkpoint(**checkpoint_fields(1)).number
        if own == "damaged":
            storage.put(entry_name(number), b"damaged")
    options: Any = SimpleNamespace(from_entry=from_entry)
    since = log.claim_number if recovers else None
    assert _may_be_damaged(options, storage, since) is expected


def test_what_a_start_was_told_holds_until_the_pipelines_own_first_checkpoint() -> None:
    storage = MemoryStorage("start-told")
    open_log(storage).append_checkpoint(**checkpoint_fields(0))
    first = read_log(storage).last_checkpoint
    assert first is not None
    open_log(storage).append_checkpoint(**checkpoint_fields(1))
    log = open_log(storage, "told to start from the first")
    options: Any = SimpleNamespace(from_entry=first.number, drop_state=["old"])

    for since in (None, log.claim_number):
        entry, dropped = _where_to_continue(options, read_log(storage), since)
        assert entry is not None
        assert (entry.number, dropped) == (first.number, ["old"])
    own = log.append_checkpoint(**checkpoint_fields(2)).number
    entry, dropped = _where_to_continue(options, read_log(storage), log.claim_number)
    assert entry is not None
    assert (entry.number, dropped) == (own, ())


def test_who_claims_anew_takes_over_from_nobody_but_himself() -> None:
    storage = MemoryStorage("start-own")
    first = open_log(storage, "recovers")
    check_still_own(read_log(storage), Own())
    check_still_own(read_log(storage), Own([first.claim_number]))
    again = open_log(storage, "recovers")
    check_still_own(read_log(storage), Own([first.claim_number, again.claim_number]))
    with pytest.raises(FencedError, match="of another driver"):
        check_still_own(read_log(storage), Own([first.claim_number]))


@pytest.mark.parametrize("fails", ["reply", "listing"])
def test_an_own_claim_whose_writing_failed_is_not_taken_for_another_drivers(fails: str) -> None:
    class Shaky(MemoryStorage):
        failing = False

        def put_if_absent(self, name: str, data: Buffer) -> bool:
            # Carried out after the reply, or after whoever asked had given up.
            created = super().put_if_absent(name, data)
            self.failing = True
            if fails == "reply":
                raise StorageError("timed out")
            return created

        def get(self, name: str) -> bytes:
            if self.failing and fails == "reply":
                raise StorageError("timed out")
            return super().get(name)

        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            if self.failing and fails == "listing":
                raise StorageError("timed out")
            return super().list(prefix)

    storage = MemoryStorage(f"start-shaky-{fails}")
    mine = Own()
    mine.claims.append(open_log(storage, "recovers", nonce=mine.nonce).claim_number)
    with pytest.raises(StorageError, match="timed out"):
        open_log(Shaky(f"start-shaky-{fails}"), "recovers", nonce=mine.nonce)
    assert read_log(storage).last_number == 1
    check_still_own(read_log(storage), mine)
    open_log(storage, "another")
    with pytest.raises(FencedError, match="of another driver"):
        check_still_own(read_log(storage), mine)


def test_a_start_does_not_use_numbers_that_state_can_not_hold() -> None:
    storage = MemoryStorage("start-numbers")
    open_log(storage, "first").append_checkpoint(**checkpoint_fields(3))
    state = read_log(storage)
    assert _checked_epoch(state) == state.last_epoch
    with pytest.raises(CorruptionError, match="too many entries of the log can't be read"):
        _checked_epoch(replace(state, last_epoch=LAST_EPOCH - EPOCHS_PER_ENTRY))


def test_a_sink_of_frames_is_valid_though_there_is_no_engine_yet_to_make_them() -> None:
    place = SimpleNamespace(schema=pa.schema([("n", pa.int64())]), key_names=())
    graph: Any = SimpleNamespace(sinks={"sink-0": place})
    options: Any = SimpleNamespace(name="p")
    context = sink_context(options, "sink-0", None, MemoryStorage("start-frames"), graph)
    sinks.foreach_batch(lambda frame, epoch, maybe_repeated: None).validate(context)
    assert context.to_dataframe is not None
    with pytest.raises(InternalError, match="while its pipeline is being validated"):
        context.to_dataframe(place.schema.empty_table())
