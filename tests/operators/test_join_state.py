"""The state of joins over many epochs levels off."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.operators.event_time import EventTime
from holdfast.operators.join.interval import IntervalJoinOperator
from holdfast.operators.join.operator import JoinOperator
from holdfast.operators.join.versioned import VersionedJoinOperator
from tests.operators.epochs import Epochs
from tests.operators.joining import LEFT, ON, RIGHT, Row, rows_in

TIMES: dict[str, Any] = {"left_time": EventTime("lts"), "right_time": EventTime("rts")}


def operator_of(kind: str) -> JoinOperator:
    if kind == "versioned":
        return VersionedJoinOperator("join", ON, LEFT, RIGHT, how="left", **TIMES)
    how: Any = kind
    return IntervalJoinOperator("join", ON, LEFT, RIGHT, how=how, lower_ms=-2, upper_ms=3, **TIMES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inner", "semi", "full", "anti", "versioned"])
def test_state_levels_off(kind: str) -> None:
    operator = operator_of(kind)
    epochs = Epochs(operator)
    sizes = []
    for epoch in range(200):
        rows = [
            Row(i % 2, f"k{(epoch * 7 + i) % 11}" if i % 5 else None, 1, epoch * 1000 + i * 100, i)
            for i in range(12)
        ]
        epochs.run(
            rows_in(operator, rows), epochs.clock(0, epoch - 2), partitions=1 + (epoch % 20 == 0)
        )
        held = [epochs.state._runs.get(schema.table, []) for schema in operator.tables]
        sizes.append(sum(run.num_rows for runs in held for run in runs))
    # Runs are merged every eighth epoch, so sizes go up and down, but no higher.
    assert max(sizes[150:]) <= max(sizes[30:80])
    names = [schema.table for schema in operator.tables if schema.prefix]
    assert 0 < sum(len(epochs.rows(name)) for name in names) < 100
