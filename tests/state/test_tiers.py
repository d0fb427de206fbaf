"""The merge policy: few runs, and few rewrites, whatever the sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.run import Run, Segment
from holdfast.state.tiers import plan_merge
from holdfast.state.version import Change, Version

TABLE = "t"


def segment(first: int, last: int, rows: int, span: HashRange = FULL_RANGE) -> Segment:
    return Segment(Run(f"1-{first}-{last}-{span.first}", TABLE, span, first, last, rows), span)


class Simulation:
    """Flushes and merges of sets of keys, newest first, with the rows written counted."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, set[int]]] = []
        self.written = 0
        self.most = 0

    def flush(self, epoch: int, keys: set[int]) -> None:
        self.runs.insert(0, (epoch, epoch, keys))
        self.written += len(keys)
        while True:
            chosen = plan_merge([segment(a, b, len(keys)) for a, b, keys in self.runs])
            if chosen is None:
                break
            picked = self.runs[chosen]
            assert len(picked) > 1
            merged = set().union(*(keys for _, _, keys in picked))
            self.runs[chosen] = [(picked[-1][0], picked[0][1], merged)]
            self.written += len(merged)
        self.most = max(self.most, len(self.runs))


@pytest.mark.parametrize("keys", [500, 20_000, 100_000, 10**9])
def test_a_thousand_flushes_keep_few_runs_and_rewrite_seldom(keys: int) -> None:
    random = np.random.default_rng(keys)
    simulation = Simulation()
    flushed = 0
    for epoch in range(1000):
        batch = set(random.integers(0, keys, 100).tolist())
        flushed += len(batch)
        simulation.flush(epoch, batch)
    largest = max(len(keys) for _, _, keys in simulation.runs)
    levels = math.log(largest / 64, 4) + 1
    assert simulation.most <= 3 * levels + 2
    assert simulation.written <= 6 * flushed


def test_flushes_of_changing_size_keep_few_runs() -> None:
    random = np.random.default_rng(3)
    simulation = Simulation()
    for epoch in range(600):
        size = int(10 ** random.uniform(0, 4))
        simulation.flush(epoch, set(random.integers(0, 200_000, size).tolist()))
    assert simulation.most <= 3 * math.ceil(math.log(200_000, 4) + 1)


@given(st.lists(st.integers(0, 10**6), max_size=40))
def test_runs_are_bounded_whatever_their_sizes(sizes: list[int]) -> None:
    stack = [segment(-i, -i, rows) for i, rows in enumerate(sizes)]
    while (chosen := plan_merge(stack)) is not None:
        picked = stack[chosen]
        assert len(picked) >= 4
        epochs = picked[-1].run.first_epoch, picked[0].run.last_epoch
        stack[chosen] = [segment(*epochs, sum(s.rows for s in picked))]
    assert len(stack) <= 3 * (math.log(max(4, sum(sizes)), 4) + 1)


def test_runs_side_by_side_count_as_one() -> None:
    quarters = [segment(1, 1, 1000, partition_range(p, 4)) for p in range(4)]
    assert plan_merge(quarters) is None
    assert plan_merge([segment(2, 2, 4000), *quarters]) is None
    newer = [segment(epoch, epoch, 4000) for epoch in (4, 3, 2)]
    assert plan_merge([*newer, *quarters]) == slice(0, 7)


def test_runs_whose_epochs_interlock_are_merged_together() -> None:
    """P was 2: one half merged epochs 1 to 3, the other did not."""
    left, right = partition_range(0, 2), partition_range(1, 2)
    interlocked = [
        segment(1, 3, 300, left),
        segment(3, 3, 100, right),
        segment(2, 2, 100, right),
        segment(1, 1, 100, right),
    ]
    assert plan_merge(interlocked) is None
    assert plan_merge([segment(4, 4, 600), *interlocked]) == slice(0, 5)
    version = Version(4, {TABLE: (segment(4, 4, 600), *interlocked)})
    inputs = tuple(s.run.name for s in version.segments(TABLE, FULL_RANGE))
    merged = Run("1-m", TABLE, FULL_RANGE, 1, 4, 1200)
    assert version.can_apply(Change(TABLE, FULL_RANGE, inputs, merged))


def test_what_a_merge_would_fill_is_taken_in_at_once() -> None:
    stack = [segment(-i, -i, 100) for i in range(4)]
    stack += [segment(-i, -i, 400) for i in range(4, 7)]
    assert plan_merge(stack) == slice(0, 7)
    assert plan_merge(stack[:6]) == slice(0, 4)
