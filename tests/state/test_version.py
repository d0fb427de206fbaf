"""Versions against a plain dict: random epochs, any P, merges of any range, also stale ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InternalError
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.run import LocalForm, Run, Segment
from holdfast.state.version import Change, Version

TABLE = "t"
HASHES = [i << 59 for i in range(32)] + [2**64 - 1]
Rows = dict[int, int | None]


def segment(name: str, first: int, last: int, span: HashRange = FULL_RANGE) -> Segment:
    return Segment(Run(name, TABLE, span, first, last, rows=5), span)


class Model:
    """A version whose runs are dicts from hash to value (None: deleted)."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.version = Version(-1)
        self.contents: dict[str, Rows] = {}
        self.state: dict[int, int] = {}
        self.stale: list[Change] = []
        self.epoch = -1

    def add_epoch(self) -> None:
        self.epoch += 1
        partitions = self.chance.choice([1, 1, 2, 3, 5])
        changes = []
        for number in range(partitions):
            within = partition_range(number, partitions)
            rows = self._new_rows(within)
            if rows:
                merge = self.chance.random() < 0.4
                present = self.version.segments(TABLE, within) if merge else ()
                changes.append(self._merge(within, self._newest_layers(present), rows))
        self.version = self.version.apply(changes, self.epoch)

    def plan_merge(self) -> None:
        """Make a merge of some range and neighbours; it may be installed much later."""
        ends = sorted(self.chance.sample(HASHES, 2))
        within = self.chance.choice([HashRange(*ends), FULL_RANGE, partition_range(1, 3)])
        present = self.version.segments(TABLE, within)
        if not present:
            return
        layers = layers_of(present)
        start = self.chance.randrange(len(layers))
        stop = self.chance.randint(start + 1, len(layers))
        picked = [s for layer in layers[start:stop] for s in layer]
        self.stale.append(self._merge(within, picked, {}, oldest=stop == len(layers)))

    def install_merge(self) -> None:
        if self.stale:
            change = self.stale.pop(self.chance.randrange(len(self.stale)))
            if self.version.can_apply(change):
                self.version = self.version.apply([change])
            else:
                with pytest.raises(InternalError, match="does not fit"):
                    self.version.apply([change])

    def check(self) -> None:
        everything = self.version.segments(TABLE, FULL_RANGE)
        for i, one in enumerate(everything):
            for other in everything[i + 1 :]:
                if one.range.overlaps(other.range):
                    assert one.run.first_epoch > other.run.last_epoch
        assert {h: v for h in HASHES if (v := self._read(h)) is not None} == self.state

    def _read(self, value: int) -> int | None:
        for found in self.version.segments(TABLE, HashRange(value, value)):
            if value in self.contents[found.run.name]:
                return self.contents[found.run.name][value]
        return None

    def _new_rows(self, within: HashRange) -> Rows:
        rows: Rows = {}
        for value in HASHES:
            if within.first <= value <= within.last and self.chance.random() < 0.3:
                rows[value] = None if self.chance.random() < 0.3 else self.epoch
                if rows[value] is None:
                    self.state.pop(value, None)
                else:
                    self.state[value] = self.epoch
        return rows

    def _newest_layers(self, present: Sequence[Segment]) -> list[Segment]:
        layers = layers_of(present)
        return [s for layer in layers[: self.chance.randint(0, len(layers))] for s in layer]

    def _merge(
        self, within: HashRange, picked: Sequence[Segment], newest: Rows, *, oldest: bool = False
    ) -> Change:
        rows: Rows = {}
        for part in reversed(picked):
            contents = self.contents[part.run.name]
            rows |= {h: v for h, v in contents.items() if part.range.first <= h <= part.range.last}
        rows |= newest
        if oldest:
            rows = {h: v for h, v in rows.items() if v is not None}
        name = f"1-{len(self.contents)}"
        self.contents[name] = rows
        epochs = [e for s in picked for e in (s.run.first_epoch, s.run.last_epoch)]
        epochs += [self.epoch] if newest else []
        output = Run(name, TABLE, within, min(epochs), max(epochs), len(rows))
        inputs = tuple(dict.fromkeys(s.run.name for s in picked))
        parts = tuple(picked) if self.chance.random() < 0.5 else ()
        if (
            newest
            and not parts
            and not Version(0, {TABLE: tuple(picked)}).can_apply(
                Change(TABLE, within, inputs, output)
            )
        ):
            parts = tuple(picked)
        return Change(TABLE, within, inputs, output, parts)


def layers_of(present: Sequence[Segment]) -> list[list[Segment]]:
    """Neighbours whose epochs interlock belong together."""
    layers: list[list[Segment]] = []
    for part in present:
        if layers and part.run.last_epoch >= min(s.run.first_epoch for s in layers[-1]):
            layers[-1].append(part)
        else:
            layers.append([part])
    return layers


@given(st.integers(0, 2**32))
def test_versions_are_what_a_dict_says(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(chance)
    steps = [model.add_epoch, model.plan_merge, model.install_merge]
    for _ in range(40):
        chance.choice(steps)()
        model.check()


def test_a_merge_of_runs_that_are_not_neighbours_does_not_fit() -> None:
    parts = segment("1-a", 1, 1), segment("1-b", 2, 2), segment("1-c", 3, 3)
    version = Version(3, {TABLE: parts})
    merged = Run("1-m", TABLE, FULL_RANGE, 1, 3, 5)
    assert not version.can_apply(Change(TABLE, FULL_RANGE, ("1-a", "1-c"), merged))
    assert version.can_apply(Change(TABLE, FULL_RANGE, ("1-a", "1-b", "1-c"), merged))
    assert not version.can_apply(Change(TABLE, FULL_RANGE, ("1-a", "1-b"), merged))


def test_a_new_run_must_be_the_newest_of_its_range() -> None:
    left, right = partition_range(0, 2), partition_range(1, 2)
    version = Version(2, {TABLE: (segment("1-a", 2, 2, left),)})
    again = Run("1-b", TABLE, FULL_RANGE, 2, 2, 5)
    assert not version.can_apply(Change(TABLE, left, (), again))
    assert version.can_apply(Change(TABLE, right, (), again))


def test_a_run_merged_in_one_half_of_its_range_can_be_merged_in_the_other() -> None:
    left = partition_range(0, 2)
    version = Version(2, {TABLE: (segment("1-a", 1, 1), segment("1-b", 2, 2))})
    half = Run("1-m", TABLE, left, 1, 2, 5)
    version = version.apply([Change(TABLE, left, ("1-a", "1-b"), half)])
    assert len(version.segments(TABLE, FULL_RANGE)) == 3
    whole = Run("1-w", TABLE, FULL_RANGE, 1, 2, 5)
    version = version.apply([Change(TABLE, FULL_RANGE, ("1-a", "1-b", "1-m"), whole)])
    assert version.segments(TABLE, FULL_RANGE) == (Segment(whole, FULL_RANGE),)


def test_a_stale_merge_can_not_bring_back_what_another_deleted() -> None:
    """The other merge left nothing, so only the parts tell that the inputs have been cut."""
    left = partition_range(0, 2)
    version = Version(3, {TABLE: tuple(segment(f"1-{e}", e, e) for e in (1, 2, 3))})
    parts = version.segments(TABLE, FULL_RANGE)[1:]
    merged = Run("1-m", TABLE, FULL_RANGE, 1, 2, 9)
    told = Change(TABLE, FULL_RANGE, ("1-1", "1-2"), merged, parts)
    untold = Change(TABLE, FULL_RANGE, ("1-1", "1-2"), merged)
    assert version.can_apply(told)
    assert version.can_apply(untold)
    version = version.apply([Change(TABLE, left, ("1-1", "1-2", "1-3"), None)])
    assert not version.can_apply(told)
    assert not version.can_apply(untold)
    parts = version.segments(TABLE, FULL_RANGE)[1:]
    planned_now = Change(TABLE, FULL_RANGE, ("1-1", "1-2"), merged, parts)
    assert version.can_apply(planned_now)


def test_an_output_keeps_to_its_own_range() -> None:
    narrow = HashRange(100, 200)
    output = Run("1-a", TABLE, narrow, 1, 1, 5)
    version = Version(0).apply([Change(TABLE, FULL_RANGE, (), output)], 1)
    assert version.segments(TABLE, FULL_RANGE) == (Segment(output, narrow),)
    assert version.epoch == 1


def test_changes_of_one_epoch_may_overlap_in_range_only_one_after_the_other() -> None:
    first = Change(TABLE, FULL_RANGE, (), Run("1-a", TABLE, FULL_RANGE, 1, 1, 5))
    replace = Change(TABLE, FULL_RANGE, ("1-a",), Run("1-b", TABLE, FULL_RANGE, 1, 1, 5))
    version = Version(0).apply([first, replace], 1)
    assert list(version.runs()) == ["1-b"]


def test_a_run_that_gained_a_form_is_known_by_it_everywhere() -> None:
    version = Version(1, {TABLE: (segment("1-a", 1, 1), segment("1-b", 2, 2))})
    known = version.runs()["1-a"]
    gained = Run(known.name, TABLE, known.range, 1, 1, 5, local=LocalForm(10, "00"))
    assert version.with_runs({"1-a": gained}).runs() == {
        "1-a": gained,
        "1-b": version.runs()["1-b"],
    }


def test_many_ranges_are_cut_in_one_pass() -> None:
    ranges = [partition_range(p, 7) for p in range(7)]
    parts = tuple(segment(f"1-{p}", 1, 1, partition_range(p, 3)) for p in range(3))
    version = Version(2, {TABLE: (*parts, segment("1-x", 2, 2))})
    assert version.partitioned(TABLE, ranges) == [version.segments(TABLE, r) for r in ranges]
    assert version.partitioned("nothing", ranges) == [()] * 7
