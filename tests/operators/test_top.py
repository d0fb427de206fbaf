"""The top operator against plain lists that are sorted anew, over any epochs and partitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cmp_to_key
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.operators.top import TopOperator
from holdfast.state.schema import HASH
from tests.operators.epochs import HASHES, Epochs

TIME = pa.timestamp("us", "UTC")
KEYS = [("k", pa.string()), ("end", TIME)]
COLUMNS = [("x", pa.float64()), ("end", TIME), ("s", pa.string()), ("k", pa.string()), ("at", TIME), ("n", pa.int64())]  # fmt: skip

Row = dict[str, Any]
Order = Sequence[tuple[str, bool]]


def rows_in(operator: TopOperator, rows: Sequence[Row], hashed: str = "spread") -> pa.Table:
    values: dict[str, list[Any]] = {
        HASH: [HASHES[hashed]((row["k"], row["end"])) for row in rows],
        TAG: list(range(len(rows))),
        SOURCE: [0] * len(rows),
        **{name: [row[name] for row in rows] for name, _ in COLUMNS},
    }
    schema = operator.input_schema
    # Rows reach a task in any order: only their tags say which came first.
    table = pa.table([pa.array(values[f.name], f.type) for f in schema], schema=schema)
    return table.take(
        pa.array(sorted(range(len(rows)), key=lambda i: (i * 7919) % 104729), pa.int64())
    )


def plain(rows: Sequence[Row]) -> list[Row]:
    """Rows with times as µs."""
    return [
        {name: _micros(value) if name in ("end", "at") else value for name, value in row.items()}
        for row in rows
    ]


def _micros(value: Any) -> Any:
    return None if value is None else round(value.timestamp() * 1_000_000)


def compare(a: Any, b: Any) -> int:
    """Spark's order of two values: nulls first, NaN last."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, float):
        a, b = (math.isnan(a), 0.0 if math.isnan(a) else a), (math.isnan(b), 0.0 if math.isnan(b) else b)  # fmt: skip
    return int(a > b) - int(a < b)


def first_rows(rows: Sequence[Row], order: Order, n: int) -> list[Row]:
    """The first n of rows that stand in the order in which they came."""

    def both(a: Row, b: Row) -> int:
        for name, down in order:
            found = compare(a[name], b[name])
            if found:
                return -found if down else found
        return 0

    return sorted(rows, key=cmp_to_key(both))[:n]


class Model:
    """What the operator should know: of each key every row that it took."""

    def __init__(self, n: int, order: Order) -> None:
        self.n, self.order = n, order
        self.taken: dict[tuple[Any, Any], list[Row]] = {}

    def take(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.taken.setdefault((row["k"], row["end"]), []).append(row)

    def top(self, key: tuple[Any, Any]) -> list[Row]:
        return first_rows(self.taken.get(key, []), self.order, self.n)

    def ranks(self) -> set[tuple[int, int]]:
        """Number and rank of every row at the top."""
        return {(row["n"], i) for key in self.taken for i, row in enumerate(self.top(key), 1)}


orders = st.sampled_from(
    [
        [("x", True)],
        [("x", False)],
        [("s", True), ("x", False)],
        [("s", False)],
        [("k", True), ("x", False), ("s", True)],
        [("at", True)],
        [("end", False)],
    ]
)
values = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "", None]),
        "end": st.sampled_from([10_000, 20_000, 30_001, None]),
        "x": st.sampled_from([1.0, 2.0, 2.5, -0.0, 0.0, math.nan, -math.inf, None]),
        "s": st.sampled_from(["p", "q", "é", "", None]),
        "at": st.integers(0, 40_000),
    }
)
epoch_lists = st.lists(st.lists(values, max_size=15), max_size=6)


def numbered(epochs: Sequence[Sequence[Row]]) -> list[list[Row]]:
    count = iter(range(10**9))
    return [[{**row, "n": next(count)} for row in epoch] for epoch in epochs]


@given(
    epochs=epoch_lists,
    order=orders,
    n=st.sampled_from([1, 2, 3, 10]),
    partitions=st.lists(st.integers(1, 5), min_size=6, max_size=6),
    hashed=st.sampled_from(sorted(HASHES)),
    pieces=st.sampled_from([1, 3]),
    combine=st.booleans(),
    ranked=st.booleans(),
)
def test_changes_lead_from_one_top_to_the_next(
    epochs: list[list[Row]],
    order: Order,
    n: int,
    partitions: list[int],
    hashed: str,
    pieces: int,
    combine: bool,
    ranked: bool,
) -> None:
    runner = top_runner(n, order, ranked, pieces=pieces, combine=combine)
    check_changes(runner, numbered(epochs), partitions, hashed)


@pytest.mark.parametrize("seed", range(12))
def test_changes_lead_on_where_rows_of_few_keys_come_and_leave_all_the_time(seed: int) -> None:
    random = Random(seed)
    # Later epochs bring better rows, many of them equal: places change hands again and again.
    epochs = [
        [
            {"k": random.choice("abc"), "end": None, "x": float(random.randrange(epoch, epoch + 5)),
             "s": random.choice("pq"), "at": 0}
            for _ in range(random.randrange(25))
        ]
        for epoch in range(10)
    ]  # fmt: skip
    order = random.choice([[("x", True)], [("x", True), ("s", False)], [("s", True), ("x", True)]])
    runner = top_runner(random.randrange(1, 8), order, seed % 2 == 0, combine=seed % 4 < 2)
    hashed = random.choice(sorted(HASHES))
    check_changes(runner, numbered(epochs), [random.randrange(1, 5) for _ in epochs], hashed)


def top_runner(n: int, order: Order, ranked: bool, **options: Any) -> Epochs:
    rank = "rank" if ranked else None
    return Epochs(TopOperator("top", KEYS, COLUMNS, n, order, rank=rank), **options)


def check_changes(
    runner: Epochs, epochs: Sequence[Sequence[Row]], partitions: Sequence[int], hashed: str
) -> None:
    operator = runner.operator
    assert isinstance(operator, TopOperator)
    ranked = operator.rank is not None
    model = Model(operator.n, operator.order)
    before: set[tuple[int, int]] = set()
    stored = 0
    for rows, count in zip(epochs, partitions, strict=False):
        model.take(rows)
        result = runner.run(
            rows_in(operator, rows, hashed), runner.clock(0, None), partitions=count
        )
        after = model.ranks()
        found: list[tuple[int, ...]]
        expected: set[tuple[int, ...]]
        if ranked:
            gone, come = before - after, after - before
            found = [(row["n"], row["rank"], row["change"]) for row in result.rows]
            expected = {(*row, -1) for row in gone} | {(*row, 1) for row in come}
        else:
            was, now = {number for number, _ in before}, {number for number, _ in after}
            found = [(row["n"], row["change"]) for row in result.rows]
            expected = {(number, -1) for number in was - now} | {
                (number, 1) for number in now - was
            }
        assert len(found) == len(set(found))
        assert set(found) == expected
        of_key: dict[tuple[Any, Any], list[int]] = {}
        for row in result.rows:
            of_key.setdefault((row["k"], row["end"]), []).append(row["change"])
        assert all(changes == sorted(changes) for changes in of_key.values())
        before = after
        stored += result.new_keys
        assert stored == len(after) == len(runner.rows("top.rows"))


def test_rows_come_and_leave_whole() -> None:
    operator = TopOperator("top", KEYS, COLUMNS, 1, [("x", True)])
    runner = Epochs(operator)
    first: Row = {"k": "a", "end": 5_000, "x": 1.5, "s": None, "at": 1_000, "n": 1}
    second: Row = {"k": "a", "end": 5_000, "x": 2.5, "s": "é", "at": 2_000, "n": 2}
    out = runner.run(rows_in(operator, [first]), runner.clock(0, None)).rows
    assert list(out[0]) == ["x", "end", "s", "k", "at", "n", "change"]
    assert plain(out) == [{**first, "change": 1}]
    out = runner.run(rows_in(operator, [second]), runner.clock(0, None)).rows
    assert plain(out) == [{**first, "change": -1}, {**second, "change": 1}]


@given(
    epochs=epoch_lists,
    watermarks=st.lists(st.integers(0, 12), min_size=8, max_size=8),
    lateness=st.sampled_from([0, 0, 5]),
    derived=st.booleans(),
    n=st.sampled_from([1, 3]),
    partitions=st.lists(st.integers(1, 4), min_size=8, max_size=8),
    hashed=st.sampled_from(sorted(HASHES)),
    pieces=st.sampled_from([1, 3]),
    output_mode=st.sampled_from(["append", "retract"]),
)
def test_keys_are_over_when_the_watermark_reaches_their_end(
    epochs: list[list[Row]],
    watermarks: list[int],
    lateness: int,
    derived: bool,
    n: int,
    partitions: list[int],
    hashed: str,
    pieces: int,
    output_mode: Any,
) -> None:
    operator = expiring(n, lateness, output_mode)
    runner = Epochs(operator, pieces=pieces)
    check_expiry(runner, numbered(epochs), watermarks, partitions, derived, hashed)


@pytest.mark.parametrize("output_mode", ["append", "retract"])
@pytest.mark.parametrize("seed", range(6))
def test_keys_are_over_in_time_where_many_live_side_by_side(seed: int, output_mode: Any) -> None:
    random = Random(seed)
    epochs = [
        [
            {"k": random.choice("abc"), "end": 1000 * (3 * epoch + random.randrange(1, 15)),
             "x": float(random.randrange(5)), "s": None, "at": 10**6}
            for _ in range(random.randrange(20))
        ]
        for epoch in range(10)
    ]  # fmt: skip
    runner = Epochs(expiring(random.randrange(1, 5), random.choice([0, 0, 2]), output_mode))
    steps = [random.randrange(6) for _ in range(12)]
    partitions = [random.randrange(1, 5) for _ in range(12)]
    hashed = random.choice(sorted(HASHES))
    check_expiry(runner, numbered(epochs), steps, partitions, seed % 2 == 0, hashed)


def expiring(n: int, lateness: int, output_mode: Any) -> TopOperator:
    time = EventTime("at", lateness)
    return TopOperator(
        "top", KEYS, COLUMNS, n, [("x", True), ("s", False)],
        event_time=time, output_mode=output_mode, expires="end", rank="rank",
    )  # fmt: skip


def check_expiry(
    runner: Epochs,
    epochs: Sequence[Sequence[Row]],
    watermarks: Sequence[int],
    partitions: Sequence[int],
    derived: bool,
    hashed: str,
) -> None:
    operator = runner.operator
    assert isinstance(operator, TopOperator)
    lateness, output_mode = operator.lateness_ms, operator.output_mode
    model = Model(operator.n, operator.order)
    watermark: int | None = None
    stored = 0
    # Two epochs without rows at the end: what is due then goes out all the same.
    for number, rows in enumerate([*epochs, [], []]):
        late_ms = watermark
        if number:
            watermark = (watermark or 0) + watermarks[number]
        late_ms = late_ms if derived else watermark
        ranks_before = model.ranks()
        taken: list[Row] = []
        late: list[Row] = []
        for row in rows:
            ends = [row["at"]] if row["end"] is None else [row["at"], row["end"]]
            is_late = late_ms is not None and min(ends) <= (late_ms - lateness) * 1000
            (late if is_late else taken).append(row)
        model.take(taken)
        clock = runner.clock(0, watermark, derived=derived)
        table = rows_in(operator, rows, hashed)
        result = runner.run(table, clock, partitions=partitions[number])
        assert sorted(row["n"] for row in result.sides[LATE].to_pylist()) == [r["n"] for r in late]
        stored += result.new_keys
        reached = None if watermark is None else (watermark - lateness) * 1000
        if output_mode == "append":
            due = [key for key in model.taken if _over(key[1], reached)]
            expected = [(row["n"], i) for key in due for i, row in enumerate(model.top(key), 1)]
            assert sorted((row["n"], row["rank"]) for row in result.rows) == sorted(expected)
            for key in due:
                del model.taken[key]
            assert stored == len(model.ranks())
        else:
            after = model.ranks()
            changes = {(*row, -1) for row in ranks_before - after}
            changes |= {(*row, 1) for row in after - ranks_before}
            assert {(row["n"], row["rank"], row["change"]) for row in result.rows} == changes
            bound = None if late_ms is None else (late_ms - lateness) * 1000
            for key in [key for key in model.taken if _over(key[1], bound)]:
                del model.taken[key]
        assert len(runner.rows("top.rows")) == len(model.ranks())


def _over(end: int | None, reached: int | None) -> bool:
    return end is not None and reached is not None and end <= reached


@pytest.mark.slow
@pytest.mark.parametrize("output_mode", ["append", "retract"])
def test_state_levels_off_where_keys_expire(output_mode: Any) -> None:
    operator = TopOperator(
        "top", KEYS, COLUMNS, 2, [("x", True)],
        event_time=EventTime("at"), output_mode=output_mode, expires="end",
    )  # fmt: skip
    runner = Epochs(operator)
    sizes, out = [], 0
    for epoch in range(200):
        at = epoch * 10_000
        rows = [
            {"k": k, "end": at + 30_000, "x": float(i), "s": None, "at": at + 1_000, "n": i}
            for k in "abc"
            for i in range(4)
        ]
        clock = runner.clock(0, epoch * 10 - 5)
        out += runner.run(rows_in(operator, rows), clock, partitions=1 + epoch % 3).output.num_rows
        sizes.append(len(runner.rows("top.rows")))
    assert max(sizes[10:]) == min(sizes[10:]) <= 24
    # By the last watermark, 1985, the keys of epochs 0 to 195 are over.
    assert out == (6 * 196 if output_mode == "append" else 6 * 200)
    if output_mode == "append":
        ends = pa.concat_tables(runner.state.scan("top.ends"))
        assert ends.num_rows < 3 * 30


def test_late_rows_are_counted_where_no_event_time_is_known() -> None:
    operator = TopOperator("top", KEYS, COLUMNS, 2, [("x", True)], expires="end")
    runner = Epochs(operator)
    rows: list[Row] = [
        {"k": "a", "end": end, "x": 1.0, "s": None, "at": 0, "n": end} for end in (9_000, 10_001)
    ]
    result = runner.run(rows_in(operator, rows), runner.clock(0, 10))
    assert result.late_rows == 1
    assert [row["n"] for row in result.rows] == [10_001]
    assert not result.sides


def test_what_it_says_of_itself() -> None:
    operator = TopOperator("top", KEYS, COLUMNS, 2, [("x", True), ("s", False)], expires="end")
    assert operator.describe() == (
        "top 2 by k: string, end: timestamp[us, tz=UTC]\norder: x descending, s ascending\n"
        "output: retract\nuntil 0 ms after end"
    )
    assert operator.key_columns == 2
    assert not operator.needs_ticks
    assert LATE not in operator.side_schemas


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "at least"),
        ({"order": []}, "at least"),
        ({"keys": []}, "at least"),
        ({"order": [("y", True)]}, "no column 'y'"),
        ({"columns": [*COLUMNS, ("l", pa.list_(pa.int64()))], "order": [("l", True)]}, "in order"),
        ({"rank": "x"}, "two columns named 'x'"),
        ({"rank": "change"}, "two columns named 'change'"),
        ({"expires": "at"}, "not a timestamp column of the key"),
        ({"expires": "k"}, "not a timestamp column of the key"),
        ({"output_mode": "update"}, "not offered"),
        ({"output_mode": "append"}, "when a key is complete"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"keys": KEYS, "columns": COLUMNS, "n": 1, "order": [("x", True)]}
    with pytest.raises(InputError, match=words):
        TopOperator("top", **{**given, **options})
