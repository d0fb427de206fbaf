"""The versioned join against a plain loop over all versions, over any epochs and partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.operators.base import Clock
from holdfast.operators.event_time import EventTime
from holdfast.operators.join.versioned import VersionedJoinOperator
from tests.operators.epochs import HASHES, Epochs
from tests.operators.joining import (
    LEFT,
    ON,
    RIGHT,
    Row,
    Step,
    ceil_ms,
    drifting_steps,
    is_late,
    moved,
    rows_in,
    steps,
)

Pair = tuple[int, int | None]


def make(how: Any = "left", lateness: Sequence[int] = (0, 0), deleted: str | None = None) -> Any:
    return VersionedJoinOperator(
        "join",
        ON,
        LEFT,
        RIGHT,
        how=how,
        left_time=EventTime("lts", lateness[0]),
        right_time=EventTime("rts", lateness[1]),
        deleted=deleted,
    )


class Oracle:
    """Keeps all rows that came in time, and looks at all versions for every left row."""

    def __init__(self, how: str, lateness: Sequence[int], deletes: bool) -> None:
        self.how, self.lateness, self.deletes = how, lateness, deletes
        self.waiting: list[Row] = []
        self.versions: list[Row] = []

    def version(self, left: Row) -> int | None:
        best: Row | None = None
        for row in self.versions:
            if row.key != left.key or row.has_null or row.at is None or left.at is None:
                continue
            if row.at <= left.at and (best is None or best.at is None or row.at >= best.at):
                best = row
        return None if best is None or (self.deletes and best.gone) else best.number

    def due(self, left: Row, clock: Clock) -> bool:
        if left.at is None:
            return True
        if clock.watermark_ms is None:
            return False
        return ceil_ms(left.at) + self.lateness[1] <= clock.watermark_ms

    def run(self, rows: Sequence[Row], clock: Clock) -> tuple[list[Pair], list[int]]:
        late = [row.number for row in rows if is_late(row, clock, self.lateness)]
        good = [row for row in rows if not is_late(row, clock, self.lateness)]
        self.versions += [row for row in good if row.side == 1]
        self.waiting += [row for row in good if row.side == 0]
        done = [row for row in self.waiting if self.due(row, clock)]
        self.waiting = [row for row in self.waiting if not self.due(row, clock)]
        pairs = [(row.number, self.version(row)) for row in done]
        if self.how == "inner":
            pairs = [pair for pair in pairs if pair[1] is not None]
        return sorted(pairs, key=repr), sorted(late)


def pairs_of(table: pa.Table) -> list[Pair]:
    pairs = zip(table["l"].to_pylist(), table["r"].to_pylist(), strict=True)
    return sorted(pairs, key=repr)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    plan=st.one_of(steps(), drifting_steps()),
    how=st.sampled_from(["inner", "left"]),
    lateness=st.sampled_from([(0, 0), (0, 0), (4, 0), (0, 5), (3, 6)]),
    deletes=st.booleans(),
    hashes=st.sampled_from(sorted(HASHES)),
    derived=st.booleans(),
    pieces=st.sampled_from([1, 2]),
)
def test_every_row_is_joined_with_the_version_of_its_time(
    plan: list[Step],
    how: str,
    lateness: tuple[int, int],
    deletes: bool,
    hashes: str,
    derived: bool,
    pieces: int,
) -> None:
    operator = make(how, lateness, "gone" if deletes else None)
    epochs = Epochs(operator, batch_rows=4, pieces=pieces)
    oracle = Oracle(how, lateness, deletes)
    watermark: int | None = None
    state = 0
    for step in plan:
        watermark = moved(watermark, step.move_ms)
        clock = epochs.clock(0, watermark, derived=derived)
        expected, late = oracle.run(step.rows, clock)
        result = epochs.run(
            rows_in(operator, step.rows, HASHES[hashes]), clock, partitions=step.partitions
        )
        assert pairs_of(result.output) == expected
        gone = [row["l"] for row in result.sides["late_left"].to_pylist()]
        gone += [row["r"] for row in result.sides["late_right"].to_pylist()]
        assert sorted(gone) == late
        state += result.new_keys
        held = {name: epochs.rows(f"join.{name}") for name in ("waiting", "versions")}
        assert state == len(held["waiting"]) + len(held["versions"])
        wanted = [row.number for row in oracle.waiting if how == "left" or not row.has_null]
        assert sorted(row["l"] for row in held["waiting"]) == sorted(wanted)
        assert sorted(row["r"] for row in held["versions"]) == needed(oracle, clock)


def needed(oracle: Oracle, clock: Clock) -> list[int]:
    """Versions that a left row may still be joined with, however late it comes or long it waits."""
    horizon = None
    if clock.watermark_ms is not None:
        horizon = (clock.watermark_ms - max(oracle.lateness)) * 1000
    newest: dict[tuple[Any, int], Row] = {}
    for row in oracle.versions:
        if row.at is not None and not row.has_null:
            newest[row.key, row.at] = row
    past: dict[Any, Row] = {}
    found = []
    for (key, at), row in sorted(newest.items(), key=lambda item: item[0][1]):
        if horizon is None or at > horizon:
            found.append(row.number)
        else:
            past[key] = row
    found += [row.number for row in past.values() if not (oracle.deletes and row.gone)]
    return sorted(found)


@given(plan=steps(most_epochs=1, most_rows=24), cuts=st.lists(st.integers(0, 24), max_size=5))
def test_the_result_does_not_depend_on_the_order_of_arrival(
    plan: list[Step], cuts: list[int]
) -> None:
    rows = list({(row.side, row.key, row.at): row for step in plan for row in step.rows}.values())
    outputs = []
    for turn, marks in ((1, cuts), (-1, []), (-1, cuts)):
        operator = make("left", deleted="gone")
        epochs = Epochs(operator)
        ordered, total = rows[::turn], Counter[str]()
        places = sorted({0, *(min(cut, len(rows)) for cut in marks), len(rows)})
        for first, last in pairwise(places):
            part = rows_in(operator, ordered[first:last])
            total.update(map(repr, epochs.run(part, epochs.clock(0, None)).rows))
        total.update(map(repr, epochs.run(rows_in(operator, []), epochs.clock(0, 30)).rows))
        assert epochs.rows("join.waiting") == []
        outputs.append(total)
    assert outputs[0] == outputs[1] == outputs[2]
    assert sum(outputs[0].values()) == sum(row.side == 0 for row in rows)


def test_whole_rows_come_out_and_the_later_arrival_wins() -> None:
    operator = make("left")
    epochs = Epochs(operator)
    first = [Row(1, "a", 1, 1_000, 1), Row(0, "a", 1, 1_500, 2), Row(1, "a", 1, 1_000, 3)]
    assert epochs.run(rows_in(operator, first), epochs.clock(0, 0)).rows == []
    second = [Row(1, "a", 1, 1_000, 4), Row(1, "a", 1, 1_501, 5)]
    assert epochs.run(rows_in(operator, second), epochs.clock(0, 0)).rows == []
    (row,) = epochs.run(rows_in(operator, []), epochs.clock(0, 2)).rows
    assert list(row) == ["user", "shop", "lts", "l", "lname", "r", "rts", "rother", "gone"]
    assert (row["user"], row["shop"], row["l"], row["lname"], row["r"]) == ("a", 1, 2, "n2", 4)
    assert [row["r"] for row in epochs.rows("join.versions")] == [5]


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="how can't be 'full'"):
        make("full")
    with pytest.raises(InputError, match="no boolean column 'r'"):
        make(deleted="r")
    with pytest.raises(InputError, match="both sides"):
        VersionedJoinOperator(
            "join", ON, LEFT, [*RIGHT, ("l", pa.int64())], how="left",
            left_time=EventTime("lts"), right_time=EventTime("rts"),
        )  # fmt: skip


def test_what_it_says_of_itself() -> None:
    words = {make().describe(), make("inner").describe(), make(deleted="gone").describe()}
    assert len(words) == 3
    assert make().needs_ticks
    assert make().deletes
