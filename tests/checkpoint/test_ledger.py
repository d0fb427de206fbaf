"""The ledger: epochs are recorded whole, and background changes wait for the epoch in hand."""

from __future__ import annotations

from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, Checkpoint, EpochRecord, StagedOutput
from holdfast.checkpoint.ledger import Ledger
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.run import LocalForm, Run, StoredForm
from holdfast.state.version import Change, Version

TABLE = "counts.groups"


def run(name: str, first: int, last: int, *, stored: bool = False) -> Run:
    form = StoredForm(f"runs/{name}.parquet", 10, "00", 4) if stored else None
    return Run(name, TABLE, FULL_RANGE, first, last, 5, local=LocalForm(100, "00"), stored=form)


def add(output: Run, *inputs: str) -> Change:
    return Change(TABLE, FULL_RANGE, inputs, output)


def record(ledger: Ledger, epoch: int, *changes: Change) -> None:
    staged = {"sink-0": [StagedOutput(epoch, 0, f"{epoch}.parquet", 5, 50)]}
    ledger.record_epoch(EpochRecord(epoch, 5, 1000 + epoch), changes, staged, {"metadata": b"m"}, 5)


def names(ledger: Ledger) -> list[str]:
    return [s.run.name for s in ledger.version.segments(TABLE, FULL_RANGE)]


def test_a_background_change_waits_for_the_running_epoch() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    with ledger.epoch() as (version, mergeable):
        assert mergeable == {"1-a"}
        ledger.install([add(run("1-s", 0, 0, stored=True), "1-a")])
        assert names(ledger) == ["1-a"]
        assert version.epoch == 0
        record(ledger, 1, add(run("1-b", 1, 1)))
        assert names(ledger) == ["1-b", "1-s"]


def test_a_background_change_is_dropped_when_the_epoch_merged_its_inputs() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    with ledger.epoch():
        ledger.install([add(run("1-s", 0, 0, stored=True), "1-a")])
        record(ledger, 1, add(run("1-m", 0, 1), "1-a"))
    assert names(ledger) == ["1-m"]


def test_what_was_stored_during_an_epoch_is_not_stored_by_the_next_attempt() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    record(ledger, 1, add(run("1-b", 1, 1)))
    with ledger.epoch() as (version, _):
        ledger.install([add(run("1-s", 0, 1, stored=True), "1-a", "1-b")])
        again = ledger.snapshot()
        assert again is not None
        assert list(again.version.runs()) == ["1-s"]
        # The epoch goes by the version that it was given.
        assert ledger.version == version
        record(ledger, 2, add(run("1-m", 0, 2), "1-a", "1-b"))
    assert names(ledger) == ["1-m"]


def test_a_background_change_is_installed_when_the_epoch_fails() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    try:
        with ledger.epoch():
            ledger.install([add(run("1-s", 0, 0, stored=True), "1-a")])
            raise ValueError("the epoch failed")
    except ValueError:
        pass
    assert names(ledger) == ["1-s"]
    assert ledger.version.epoch == 0


def test_runs_that_a_job_works_on_are_not_mergeable_and_stay() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    with ledger.busy(["1-a", "1-old"]):
        with ledger.epoch() as (_, mergeable):
            assert mergeable == frozenset()
        assert ledger.live_runs() == {"1-a", "1-old"}
    assert ledger.live_runs() == {"1-a"}


def test_results_that_wait_are_not_garbage() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    with ledger.epoch():
        ledger.install([add(run("1-s", 0, 0, stored=True), "1-a")])
        assert "runs/1-s.parquet" in ledger.live_objects()
        assert "1-s" in ledger.live_runs()


def test_how_far_processing_is_ahead() -> None:
    ledger = Ledger(Version(-1))
    assert ledger.snapshot() is None
    record(ledger, 0, add(run("1-a", 0, 0)))
    record(ledger, 1, add(run("1-b", 1, 1, stored=True)))
    ahead = ledger.ahead()
    assert (ahead.epochs, ahead.unsaved_bytes, ahead.oldest_ms) == (2, 200, 1000)
    snapshot = ledger.snapshot()
    assert snapshot is not None
    assert [r.epoch for r in snapshot.epochs] == [0, 1]
    assert [o.epoch for o in snapshot.staged["sink-0"]] == [0, 1]


def entry_for(ledger: Ledger) -> Checkpoint:
    """The entry that a checkpoint of all there is would write."""
    taken = ledger.snapshot()
    assert taken is not None
    return Checkpoint(
        format=1,
        number=7,
        claim=1,
        nonce="n",
        pipeline="p",
        written_ms=0,
        epoch=taken.version.epoch,
        runs=(),
        tables={},
        schemas=(),
        program={},
        spark={},
        epochs=taken.epochs,
        pending={},
        staged={},
        state_rows=0,
        new_bytes=0,
        shared_bytes=0,
        duration_ms=0,
    )


def skip(ledger: Ledger, epoch: int) -> None:
    ledger.skip_epoch(EpochRecord(epoch, 0, 1000 + epoch), {"metadata": b"s"})


def test_a_skipped_epoch_is_in_the_next_entry_but_asks_for_none() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    skip(ledger, 1)
    entry = entry_for(ledger)
    assert [r.epoch for r in entry.epochs] == [0, 1]
    ledger.covered(entry)
    skip(ledger, 2)
    assert ledger.snapshot() is None
    assert ledger.version.epoch == 2
    assert ledger.ahead().epochs == 0


def test_skipped_epochs_do_not_gather_until_somebody_asks_for_an_entry() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    for epoch in range(1, 100):
        skip(ledger, epoch)
    record(ledger, 100, add(run("1-b", 100, 100)))
    # Also when numbers run out and no entry can be had.
    for epoch in range(EPOCHS_PER_ENTRY // 2 - 50, EPOCHS_PER_ENTRY // 2 + 50):
        skip(ledger, epoch)
    entry = entry_for(ledger)
    assert [r.epoch for r in entry.epochs] == [0, 99, 100, entry.epoch]
    ledger.covered(entry)
    assert ledger.snapshot() is None


def test_epochs_skipped_while_a_checkpoint_was_written_ask_for_no_further_one() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    entry = entry_for(ledger)
    skip(ledger, 1)
    skip(ledger, 2)
    ledger.covered(entry)
    assert ledger.snapshot() is None
    assert ledger.ahead().oldest_ms is None


def test_an_epoch_behind_skipped_ones_asks_for_an_entry() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    entry = entry_for(ledger)
    skip(ledger, 1)
    record(ledger, 2, add(run("1-b", 2, 2)))
    skip(ledger, 3)
    ledger.covered(entry)
    taken = ledger.snapshot()
    assert taken is not None
    assert [r.epoch for r in taken.epochs] == [1, 2, 3]
    assert (taken.version.epoch, taken.position) == (3, {"metadata": b"s"})


def test_numbers_of_idle_epochs_ask_for_an_entry_before_they_run_out() -> None:
    ledger = Ledger(Version(-1))
    record(ledger, 0, add(run("1-a", 0, 0)))
    ledger.covered(entry_for(ledger))
    skip(ledger, EPOCHS_PER_ENTRY // 2 - 1)
    assert ledger.snapshot() is None
    skip(ledger, EPOCHS_PER_ENTRY // 2)
    taken = ledger.snapshot()
    assert taken is not None
    assert taken.version.epoch == EPOCHS_PER_ENTRY // 2
    ledger.covered(entry_for(ledger))
    assert ledger.snapshot() is None
    assert ledger.ahead().numbers == 0
