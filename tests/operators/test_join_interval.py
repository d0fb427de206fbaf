"""The interval join against nested loops over plain rows, over any epochs and partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.operators.base import Clock
from holdfast.operators.event_time import EventTime
from holdfast.operators.join import entries, matching
from holdfast.operators.join.interval import IntervalJoinOperator
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
    times_of,
)

HOWS = ["inner", "left", "right", "full", "semi", "anti"]


def make(how: Any, lower: int = -2, upper: int = 3, lateness: Sequence[int] = (0, 0)) -> Any:
    return IntervalJoinOperator(
        "join",
        ON,
        LEFT,
        RIGHT,
        how=how,
        left_time=EventTime("lts", lateness[0]),
        right_time=EventTime("rts", lateness[1]),
        lower_ms=lower,
        upper_ms=upper,
    )


class Oracle:
    """Every row that came in time is kept for ever, and all pairs are looked at in every epoch."""

    def __init__(self, how: str, lower: int, upper: int, lateness: Sequence[int]) -> None:
        self.how, self.lower, self.upper, self.lateness = how, lower, upper, lateness
        self.rows: list[Row] = []
        self.put_out: Counter[tuple[int | None, int | None]] = Counter()

    def matches(self, left: Row, right: Row) -> bool:
        if left.key != right.key or left.has_null or left.at is None or right.at is None:
            return False
        return left.at + self.lower * 1000 <= right.at <= left.at + self.upper * 1000

    def over(self, row: Row, clock: Clock) -> bool:
        """Whether no row can come any more that matches this one."""
        if row.at is None:
            return True
        if clock.watermark_ms is None:
            return False
        reach = self.upper if row.side == 0 else -self.lower
        bound = ceil_ms(row.at + reach * 1000) + self.lateness[1 - row.side]
        return bound <= clock.watermark_ms

    def run(self, rows: Sequence[Row], clock: Clock) -> tuple[list[Any], list[int]]:
        late = [row.number for row in rows if is_late(row, clock, self.lateness)]
        self.rows += [row for row in rows if not is_late(row, clock, self.lateness)]
        lefts = [row for row in self.rows if row.side == 0]
        rights = [row for row in self.rows if row.side == 1]
        pairs = [(x, y) for x in lefts for y in rights if self.matches(x, y)]
        wanted: list[tuple[int | None, int | None]] = []
        if self.how in ("inner", "left", "right", "full"):
            wanted += [(x.number, y.number) for x, y in pairs]
        if self.how == "semi":
            wanted += [(n, None) for n in {x.number for x, _ in pairs}]
        if self.how in ("left", "full", "anti"):
            have = {x.number for x, _ in pairs}
            wanted += [(x.number, None) for x in lefts if x.number not in have and self.over(x, clock)]  # fmt: skip
        if self.how in ("right", "full"):
            have = {y.number for _, y in pairs}
            wanted += [(None, y.number) for y in rights if y.number not in have and self.over(y, clock)]  # fmt: skip
        fresh = Counter(wanted) - self.put_out
        assert not self.put_out - Counter(wanted), "what was put out stays true"
        self.put_out += fresh
        return sorted(fresh.elements(), key=repr), sorted(late)

    def expected_row(self, left: int | None, right: int | None) -> dict[str, Any]:
        """The whole output row of a pair."""
        of = {row.number: row.columns() for row in self.rows}
        names = [name for name, _ in ON]
        names += [name for name, _ in LEFT if name not in names]
        if self.how not in ("semi", "anti"):
            names += [name for name, _ in RIGHT if name not in names]
        row: dict[str, Any] = dict.fromkeys(names)
        for number in (left, right):
            row.update(of[number] if number is not None else {})
        return row


def as_micros(row: dict[str, Any]) -> dict[str, Any]:
    return {k: pa.scalar(v, LEFT[0][1]).cast(pa.int64()).as_py() if k in ("lts", "rts") and v is not None else v for k, v in row.items()}  # fmt: skip


def numbers_of(row: dict[str, Any]) -> tuple[int | None, int | None]:
    return row["l"], row.get("r")


@pytest.mark.slow
@settings(max_examples=120)
@given(
    plan=st.one_of(steps(), drifting_steps()),
    how=st.sampled_from(HOWS),
    bounds=st.sampled_from([(-2, 3), (0, 0), (2, 6), (-6, -2), (-30, 30), (0, 4)]),
    lateness=st.sampled_from([(0, 0), (0, 0), (4, 0), (0, 5), (3, 6)]),
    hashes=st.sampled_from(sorted(HASHES)),
    derived=st.booleans(),
    pieces=st.sampled_from([1, 2]),
)
def test_every_epoch_puts_out_what_nested_loops_do(
    plan: list[Step],
    how: str,
    bounds: tuple[int, int],
    lateness: tuple[int, int],
    hashes: str,
    derived: bool,
    pieces: int,
) -> None:
    operator = make(how, *bounds, lateness)
    epochs = Epochs(operator, batch_rows=4, pieces=pieces)
    oracle = Oracle(how, *bounds, lateness)
    watermark: int | None = None
    state = 0
    for step in plan:
        watermark = moved(watermark, step.move_ms)
        clock = epochs.clock(0, watermark, derived=derived)
        expected, late = oracle.run(step.rows, clock)
        result = epochs.run(
            rows_in(operator, step.rows, HASHES[hashes]), clock, partitions=step.partitions
        )
        assert sorted(map(numbers_of, result.rows), key=repr) == expected
        for row in result.rows:
            assert as_micros(row) == oracle.expected_row(*numbers_of(row))
        gone = [row["l"] for row in result.sides["late_left"].to_pylist()]
        gone += [row["r"] for row in result.sides["late_right"].to_pylist()]
        assert sorted(gone) == late
        for side, name in enumerate(("left", "right")):
            times = times_of(step.rows, side)
            assert result.greatest_ms.get(name) == (max(times) if times else None)
        state += result.new_keys
    if operator.needs_ticks and not any(plan.entries.expires for plan in operator.plans):
        assert state == sum(len(epochs.rows(plan.entries.name)) for plan in operator.plans)


@given(plan=steps(), how=st.sampled_from(HOWS))
def test_only_rows_that_can_still_match_or_come_out_are_in_state(
    plan: list[Step], how: str
) -> None:
    operator = make(how)
    epochs, oracle = Epochs(operator), Oracle(how, -2, 3, (0, 0))
    watermark: int | None = None
    for step in plan:
        watermark = moved(watermark, step.move_ms)
        clock = epochs.clock(0, watermark)
        oracle.run(step.rows, clock)
        epochs.run(rows_in(operator, step.rows), clock, partitions=step.partitions)
        lefts = [row for row in oracle.rows if row.side == 0 and row.at is not None]
        rights = [row for row in oracle.rows if row.side == 1 and row.at is not None]
        alive = [row for row in (*lefts, *rights) if not oracle.over(row, clock)]
        with_match = {x.number for x in lefts for y in rights if oracle.matches(x, y)}
        wanted = []
        for row in alive:
            alone = how in (("left", "full", "anti") if row.side == 0 else ("right", "full"))
            done = row.side == 0 and how in ("semi", "anti") and row.number in with_match
            if not done and (alone or not row.has_null):
                wanted.append((row.side, row.number))
        found = [(0, row["l"]) for row in epochs.rows("join.left")]
        found += [(1, row["r"]) for row in epochs.rows("join.right")]
        assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
def test_a_match_in_a_later_epoch_is_remembered_until_the_row_is_due(how: str) -> None:
    operator = make(how, -5, 5)
    epochs = Epochs(operator)
    mine = 0 if how != "right" else 1
    made = []
    for watermark, rows in (
        (0, [Row(mine, "a", 1, 4_000, 1), Row(mine, "a", 1, 14_000, 2)]),
        (1, [Row(1 - mine, "a", 1, 5_000, 3)]),
        (2, []),
        (12, []),
        (30, []),
    ):
        result = epochs.run(rows_in(operator, rows), epochs.clock(0, watermark))
        made.append([numbers_of(row) for row in result.rows])
    pair, alone = ((1, 3), (2, None)) if mine == 0 else ((3, 1), (None, 2))
    if how == "anti":
        assert made == [[], [], [], [], [(2, None)]]
    else:
        assert made == [[], [pair], [], [], [alone]]
    assert epochs.rows("join.left") == epochs.rows("join.right") == []


@given(plan=steps(most_epochs=4), how=st.sampled_from(HOWS))
def test_the_order_of_arrival_of_rows_makes_no_difference(plan: list[Step], how: str) -> None:
    outputs = []
    for turn in (1, -1):
        operator = make(how)
        epochs = Epochs(operator)
        watermark: int | None = None
        made = []
        for step in plan:
            watermark = moved(watermark, step.move_ms)
            clock = epochs.clock(0, watermark)
            result = epochs.run(rows_in(operator, step.rows[::turn]), clock)
            made.append(sorted(map(repr, result.rows)))
        outputs.append(made)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("how", HOWS)
def test_a_hot_key_is_read_for_itself(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "LARGE", 3)
    monkeypatch.setattr(entries, "_PLACE_BITS", 2)
    monkeypatch.setattr(matching, "_PIECE_PAIRS", 5)
    operator = make(how, -4, 4)
    epochs, oracle = Epochs(operator), Oracle(how, -4, 4, (0, 0))
    number = 0
    for epoch in range(12):
        rows = []
        for i in range(14):
            number += 1
            user = "a" if i < 9 else f"u{i % 3}" if i < 12 else None
            rows.append(Row(number * 7 % 2, user, 1, epoch * 2000 + number * 37 % 3000, number))
        clock = epochs.clock(0, epoch * 2 - 3)
        expected, _ = oracle.run(rows, clock)
        hashed = HASHES["shared upper half"]
        result = epochs.run(rows_in(operator, rows, hashed), clock)
        assert sorted(map(numbers_of, result.rows), key=repr) == expected


@given(plan=steps(most_epochs=3))
def test_times_ages_apart_are_ranked(plan: list[Step]) -> None:
    """Times that don't fit into one number with their key: the same pairs by another way."""
    operator = make("full", -2, 3)
    epochs, oracle = Epochs(operator), Oracle("full", -2, 3, (0, 0))
    far = 2**61 - 2**40
    for step in plan:
        rows = [row._replace(at=row.at + (far if row.number % 2 else -far)) if row.at is not None else row for row in step.rows]  # fmt: skip
        clock = epochs.clock(0, None)
        expected, _ = oracle.run(rows, clock)
        made = epochs.run(rows_in(operator, rows), clock).output
        pairs = zip(made["l"].to_pylist(), made["r"].to_pylist(), strict=True)
        assert sorted(pairs, key=repr) == expected


def test_a_row_at_the_watermark_itself_is_late() -> None:
    operator = make("inner", lateness=(0, 2))
    epochs = Epochs(operator)
    at = [(0, 5_000), (0, 5_001), (1, 3_000), (1, 3_001)]
    rows = [Row(side, "a", 1, micros, number) for number, (side, micros) in enumerate(at)]
    sides = epochs.run(rows_in(operator, rows), epochs.clock(0, 5)).sides
    assert sides["late_left"]["l"].to_pylist() == [0]
    assert sides["late_right"]["r"].to_pylist() == [2]


def test_a_join_on_the_time_itself() -> None:
    ts = LEFT[0][1]
    operator = IntervalJoinOperator(
        "join",
        [("ts", ts)],
        [("ts", ts), ("x", pa.int64())],
        [("y", pa.int64()), ("ts", ts)],
        how="full",
        left_time=EventTime("ts"),
        right_time=EventTime("ts"),
        lower_ms=0,
        upper_ms=0,
    )
    slot = operator.packing.left["x"]
    assert operator.packing.right == {"y": slot}
    columns = [[1, 1, 2], [5_000, 5_000, 6_000], [0, 1, 2], [0, 1, 1], [7, 8, 9]]
    rows = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, operator.input_schema, strict=True)],
        schema=operator.input_schema,
    )
    epochs = Epochs(operator)
    first = epochs.run(rows, epochs.clock(0, None)).output
    assert first.select(["x", "y"]).to_pylist() == [{"x": 7, "y": 8}]
    second = epochs.run(rows.slice(0, 0), epochs.clock(0, 6)).output
    assert second.to_pylist() == [{"ts": second["ts"][0].as_py(), "x": None, "y": 9}]
    assert epochs.rows("join.left") == epochs.rows("join.right") == []


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="lower bound"):
        make("inner", 4, 3)
    with pytest.raises(InputError, match="how can't be 'outer'"):
        make("outer")
    times: dict[str, Any] = {"left_time": EventTime("lts"), "right_time": EventTime("rts")}
    bounds: dict[str, Any] = {"lower_ms": 0, "upper_ms": 1}
    both = [*RIGHT, ("l", pa.string())]
    with pytest.raises(InputError, match=r"both sides of the join have a column named 'l'.*rename"):
        IntervalJoinOperator("join", ON, LEFT, both, how="inner", **times, **bounds)
    IntervalJoinOperator("join", ON, LEFT, both, how="semi", **times, **bounds)
    wide = [("user", pa.string()), ("shop", pa.int64())]
    with pytest.raises(InputError, match=r"'shop' .int64., but the left side has it as int32"):
        IntervalJoinOperator("join", wide, LEFT, RIGHT, how="inner", **times, **bounds)
    with pytest.raises(InputError, match="no timestamp column 'l'"):
        IntervalJoinOperator(
            "join", ON, LEFT, RIGHT, how="inner", left_time=EventTime("l"),
            right_time=EventTime("rts"), **bounds,
        )  # fmt: skip


def test_what_it_says_of_itself() -> None:
    assert make("inner").describe().splitlines()[:2] == [
        "inner interval join on user: string, shop: int32",
        "from -2 ms to 3 ms",
    ]
    assert make("inner").describe() != make("inner", lateness=(0, 5)).describe()
    assert not make("inner").needs_ticks
    assert not make("inner").deletes
    assert make("semi").deletes
    assert not make("semi").needs_ticks
    assert make("anti").needs_ticks
