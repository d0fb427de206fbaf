"""Storing and merging beside epochs: whatever is dropped or fails on the way, the next plan fits."""

from __future__ import annotations

from itertools import count

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.background import plan_compaction, plan_store
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.run import LocalForm, Run, Segment, StoredForm
from holdfast.state.tiers import newest_to_merge
from holdfast.state.version import Change, Version
from holdfast.tasks.merging import Piece

TABLE = "op.t"
MB = 1 << 20


def stored(name: str, piece: Piece) -> Change:
    """What a background job makes of a piece."""
    rows = sum(s.rows for s in piece.segments)
    run = Run(
        name,
        TABLE,
        piece.range,
        min(s.run.first_epoch for s in piece.segments),
        max(s.run.last_epoch for s in piece.segments),
        max(1, rows),
        local=LocalForm(sum(s.size_bytes for s in piece.segments), "x"),
        stored=StoredForm(f"runs/{name}", 1, "x", 1),
    )
    newest = piece.segments[0]
    if len(piece.segments) == 1 and newest.range == newest.run.range:
        run = msgspec.structs.replace(newest.run, stored=run.stored)
    inputs = tuple(dict.fromkeys(s.run.name for s in piece.segments))
    return Change(TABLE, piece.range, inputs, run, parts=piece.segments)


def merged(version: Version, free: frozenset[str], new: Run) -> Change:
    """What a task makes of its new run, as it finishes."""
    stack = [Segment(new, new.range), *version.segments(TABLE, new.range)]
    picked = newest_to_merge(stack, lambda s: s.run.name in {new.name, *free})
    if not picked:
        return Change(TABLE, new.range, (), new)
    run = msgspec.structs.replace(
        new,
        name=f"{new.name}m",
        first_epoch=min(s.run.first_epoch for s in picked),
        rows=sum(s.rows for s in picked),
    )
    inputs = tuple(dict.fromkeys(s.run.name for s in picked[1:]))
    return Change(TABLE, new.range, inputs, run, parts=tuple(picked[1:]))


class Beside(RuleBasedStateMachine):
    """Epochs of any P, with checkpoints and merges beside them that are dropped or fail in part."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(Version(-1))
        self.names = count()
        self.planned: list[Change] = []

    def epoch(self, partitions: int, rows: int, size: int, beside: list[Change]) -> None:
        number = self.ledger.version.epoch + 1
        with self.ledger.epoch() as (version, free):
            self.ledger.install(beside)
            changes = [
                merged(version, free, self.new(number, partition_range(p, partitions), rows, size))
                for p in range(partitions)
            ]
            self.ledger.record_epoch(EpochRecord(number, 1, number), changes, {}, {"m": b""}, 0)

    def new(self, epoch: int, within: HashRange, rows: int, size: int) -> Run:
        form = LocalForm(size, "x")
        return Run(f"0-{next(self.names)}", TABLE, within, epoch, epoch, rows, local=form)

    @rule(
        partitions=st.sampled_from([1, 1, 2, 3, 4]),
        rows=st.sampled_from([3, 60, 700, 17_000]),
        size=st.sampled_from([1000, MB]),
        lost=st.sets(st.integers(0, 3)),
    )
    def run_epoch(self, partitions: int, rows: int, size: int, lost: set[int]) -> None:
        beside, self.planned = self.planned, []
        self.epoch(partitions, rows, size, [c for i, c in enumerate(beside) if i not in lost])

    @rule(partitions=st.sampled_from([1, 2, 4]), one_host=st.booleans())
    def store(self, partitions: int, one_host: bool) -> None:
        version = self.ledger.version
        pieces = plan_store(version, partitions, one_host=one_host)
        changes = [stored(f"0-{next(self.names)}", piece) for piece in pieces]
        after = version.apply(changes)
        assert all(run.stored is not None for run in after.runs().values())
        self.planned = changes

    @rule(partitions=st.sampled_from([1, 2, 4]), one_host=st.booleans())
    def compact(self, partitions: int, one_host: bool) -> None:
        version = self.ledger.version
        pieces = plan_compaction(version, partitions, one_host=one_host)
        changes = [stored(f"0-{next(self.names)}", piece) for piece in pieces]
        assert all(version.can_apply(change) for change in changes)
        self.planned = changes

    @rule()
    def settle(self) -> None:
        """Without an epoch beside it a checkpoint leaves nothing unsaved."""
        version = self.ledger.version
        changes = [stored(f"0-{next(self.names)}", p) for p in plan_store(version, 2)]
        self.ledger.install(changes)
        assert self.ledger.ahead().unsaved_bytes == 0

    @invariant()
    def overlapping_segments_share_no_epochs(self) -> None:
        segments = self.ledger.version.tables.get(TABLE, ())
        for index, one in enumerate(segments):
            for other in segments[index + 1 :]:
                if one.range.overlaps(other.range):
                    assert (
                        one.run.last_epoch < other.run.first_epoch
                        or other.run.last_epoch < one.run.first_epoch
                    )


TestBeside = Beside.TestCase
TestBeside.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_a_layer_that_is_stored_in_part_is_stored_by_parts() -> None:
    """The first half of three epochs was stored, the second half failed; then small epochs follow."""
    halves = [partition_range(p, 2) for p in range(2)]
    version = Version(-1)

    def add(epoch: int, within: HashRange, size: int) -> Change:
        name = f"1-{epoch}-{halves.index(within)}"
        return Change(
            TABLE, within, (), Run(name, TABLE, within, epoch, epoch, 9, local=LocalForm(size, "x"))
        )

    for epoch in range(3):
        version = version.apply([add(epoch, half, MB) for half in halves], epoch)
    first, second = plan_store(version, 2)
    assert (first.range, second.range) == tuple(halves)
    version = version.apply([stored("1-a", first)])
    version = version.apply([add(3, half, 1000) for half in halves], 3)
    again = plan_store(version, 2)
    assert [(piece.range, len(piece.segments)) for piece in again] == [
        (halves[0], 1),
        (halves[1], 4),
    ]
    version = version.apply([stored(f"1-{i}", piece) for i, piece in enumerate(again)])
    assert plan_store(version, 2) == []
    assert len(version.segments(TABLE, FULL_RANGE)) == 3


def test_one_task_merges_around_a_layer_of_which_half_is_stored() -> None:
    """An epoch merges one half while a checkpoint stores both; then epochs of one task follow."""
    beside = Beside()
    halves = [partition_range(p, 2) for p in range(2)]

    def epoch(ranges: list[HashRange], rows: list[int], stores: bool = False) -> list[Change]:
        number = beside.ledger.version.epoch + 1
        with beside.ledger.epoch() as (version, free):
            if stores:
                pieces = plan_store(version, 2)
                beside.ledger.install([stored(f"0-s{i}", p) for i, p in enumerate(pieces)])
            new = [beside.new(number, r, n, MB) for r, n in zip(ranges, rows, strict=True)]
            changes = [merged(version, free, run) for run in new]
            beside.ledger.record_epoch(EpochRecord(number, 1, number), changes, {}, {"m": b""}, 0)
        return changes

    for _ in range(3):
        epoch(halves, [1700, 1700])
    changes = epoch(halves, [1700, 300], stores=True)
    assert [bool(change.inputs) for change in changes] == [True, False]
    runs = beside.ledger.version.segments(TABLE, FULL_RANGE)
    assert {s.range for s in runs if s.run.stored} == {halves[1]}
    later = [epoch([FULL_RANGE], [6800]) for _ in range(8)]
    assert any(change.inputs for changes in later for change in changes)
    beside.settle()
