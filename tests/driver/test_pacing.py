"""How many tasks, and whether to group on the map side, is learnt from the epochs before."""

from __future__ import annotations

import pytest

from holdfast.driver.pacing import Pacing, StageShape


def test_the_first_epoch_gets_all_partitions() -> None:
    assert Pacing(8).next() == StageShape(8, preaggregate=False, shuffle=True)


def test_tiny_epochs_run_as_one_task_without_a_shuffle() -> None:
    pacing = Pacing(8)
    pacing.learn(received=100, keys=90, source_rows=100)
    assert pacing.next() == StageShape(1, preaggregate=False, shuffle=False)


def test_a_burst_after_tiny_epochs_is_spread() -> None:
    pacing = Pacing(8)
    pacing.learn(received=100, keys=90, source_rows=100)
    assert pacing.next(input_partitions=40) == StageShape(8, preaggregate=False, shuffle=True)


def test_grouping_is_used_when_keys_repeat_and_dropped_when_they_do_not() -> None:
    pacing = Pacing(4)
    pacing.learn(received=1_000_000, keys=150_000, source_rows=1_000_000)
    assert pacing.next().preaggregate
    # Grouped, the rows that arrive tell how well it works.
    pacing.learn(received=180_000, keys=150_000, source_rows=1_000_000, grouped=True)
    assert pacing.next() == StageShape(4, preaggregate=True, shuffle=True)
    pacing.learn(received=900_000, keys=800_000, source_rows=1_000_000, grouped=True)
    assert not pacing.next().preaggregate


def test_tasks_follow_the_rows_that_arrive() -> None:
    pacing = Pacing(16)
    pacing.learn(received=120_000, keys=100_000, source_rows=120_000)
    assert pacing.next().partitions == 3


def test_few_rows_that_take_long_are_spread() -> None:
    pacing = Pacing(8)
    pacing.learn(received=900, keys=900, source_rows=900, work_s=9.0)
    # The first epoch's work is mostly imports.
    assert pacing.next() == StageShape(1, preaggregate=False, shuffle=False)
    pacing.learn(received=900, keys=900, source_rows=900, work_s=0.7)
    assert pacing.next() == StageShape(3, preaggregate=False, shuffle=True)
    pacing.learn(received=900, keys=900, source_rows=900, work_s=0.2)
    assert pacing.next() == StageShape(1, preaggregate=False, shuffle=False)


def test_some_aggregates_always_need_grouping() -> None:
    pacing = Pacing(4, must_preaggregate=True)
    assert pacing.next().preaggregate
    pacing.learn(received=10, keys=10, source_rows=10)
    assert pacing.next().preaggregate


@pytest.mark.parametrize("sent", [90_000, 100_000])
def test_grouping_that_did_not_help_is_not_tried_again_at_once(sent: int) -> None:
    pacing = Pacing(4)
    pacing.learn(received=100_000, keys=20_000, source_rows=100_000)
    assert pacing.next().preaggregate
    # Keys come at many times, and a group holds but one.
    pacing.learn(received=sent, keys=20_000, source_rows=100_000, grouped=True)
    assert not pacing.next().preaggregate
    pacing.learn(received=100_000, keys=20_000, source_rows=100_000)
    assert not pacing.next().preaggregate
    pacing.learn(received=100_000, keys=1_000, source_rows=100_000)
    assert pacing.next().preaggregate
