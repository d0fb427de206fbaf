"""The session operator against plain Python, over any epochs, partitions and clocks."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.session.operator import SessionOperator
from holdfast.operators.spans import merge_spans
from holdfast.operators.window.spec import CHANGE, COUNT, PANE, TIME, Emit
from holdfast.state.schema import HASH
from tests.operators.epochs import HASHES, Epochs, Hashed, spread
from tests.operators.session_oracle import Item, Oracle

TIMES = pa.timestamp("us", "UTC")
X = Input("x", pa.int32())
AGGREGATES = [
    AggregateSpec("n", "count"),
    AggregateSpec("most", "max", (X,)),
    AggregateSpec("seen", "collect_set", (X,), (("limit", 100),)),
]
KEYS = [("user", pa.string())]


def operator(gap_ms: int = 10, **options: Any) -> SessionOperator:
    options = {"time_type": TIMES, **options}
    return SessionOperator("visits", options.pop("keys", KEYS), gap_ms, AGGREGATES, **options)


def table_of(operator: SessionOperator, items: Sequence[Item], hashed: Hashed = spread) -> pa.Table:
    known = [[v for v in item.values if v is not None] for item in items]
    columns: dict[str, Any] = {
        HASH: [hashed((item.key,)) for item in items],
        "user": [item.key for item in items],
        PANE: [item.first for item in items],
        TIME: [item.last for item in items],
        COUNT: [len(item.values) for item in items],
        "n.count": [len(item.values) for item in items],
        "most.max": [max(values, default=None) for values in known],
        "seen.values": [sorted(set(values)) for values in known],
    }
    schema = operator.input_schema
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def result_rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows as the oracle gives them."""
    bounds = ("window_start", "window_end")
    for name in bounds:
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.int64()))
    rows = []
    for row in table.to_pylist():
        values = (row.get("user"), *(row[name] for name in bounds), row["n"], row["most"])
        change = (row[CHANGE],) if CHANGE in row else ()
        rows.append((*change, *values, tuple(row["seen"])))
    return Counter(rows)


some_values = st.one_of(st.none(), st.integers(-3, 3))


@st.composite
def some_items(draw: st.DrawFn, watermark: int) -> Item:
    # Around the watermark is where it matters what is late, closed, open or open again.
    first = draw(
        st.one_of(st.integers(0, 120), st.integers(2 * watermark - 50, 2 * watermark + 20))
    )
    lasts = draw(st.sampled_from([0, 0, 0, 1000, 9999]))
    key = draw(st.sampled_from(["a", "b", None]))
    values = tuple(draw(st.lists(some_values, min_size=1, max_size=3)))
    return Item(key, first * 500, first * 500 + lasts, values)


@st.composite
def some_epochs(draw: st.DrawFn) -> list[tuple[list[Item], int | None, int]]:
    """Rows, the watermark and the number of partitions of each epoch."""
    watermark: int | None = None
    epochs = []
    for _ in range(draw(st.integers(1, 9))):
        items = draw(st.lists(some_items(watermark or 0), max_size=8))
        step = draw(st.sampled_from([None, 0, 1, 4, 9, 30]))
        if step is not None:
            watermark = step if watermark is None else watermark + step
        epochs.append((items, watermark, draw(st.integers(1, 5))))
    return [*epochs, ([], 1000, 2)]


@given(
    epochs=some_epochs(),
    output_mode=st.sampled_from(["append", "update", "retract"]),
    late=st.booleans(),
    lateness=st.sampled_from([0, 7, 25]),
    derived=st.booleans(),
    hashed=st.sampled_from(list(HASHES)),
    combine=st.booleans(),
    pieces=st.sampled_from([1, 3]),
)
def test_sessions_are_those_of_plain_python(
    epochs: list[tuple[list[Item], int | None, int]],
    output_mode: Any,
    late: bool,
    lateness: int,
    derived: bool,
    hashed: str,
    combine: bool,
    pieces: int,
) -> None:
    late = late or (output_mode == "retract" and lateness > 0)
    tested = operator(output_mode=output_mode, lateness_ms=lateness, emit=Emit(late=late))
    runner = Epochs(tested, batch_rows=3, combine=combine, pieces=pieces)
    oracle = Oracle(10, lateness, output_mode, fires_late=late)
    late_rows, size = 0, 0
    for items, watermark, partitions in epochs:
        clock = runner.clock(0, watermark, derived=derived)
        expected = oracle.epoch(items, watermark, clock.late_ms)
        rows = table_of(tested, items, HASHES[hashed])
        result = runner.run(rows, clock, partitions=partitions)
        assert result_rows(result.output) == Counter(expected)
        if items:
            assert result.greatest_ms == {"main": max(item.last for item in items) // 1000}
        late_rows += result.late_rows
        size += result.new_keys
        stored = {
            (r["user"], r["window_start"], r["window_end"]) for r in runner.rows("visits.sessions")
        }
        assert stored == {(s.key, s.start, s.end) for s in oracle.sessions}
        assert size == len(oracle.sessions)
    assert late_rows == oracle.late_rows


@given(epochs=some_epochs(), lateness=st.sampled_from([0, 25]))
def test_retractions_add_up_to_the_sessions_there_are(
    epochs: list[tuple[list[Item], int | None, int]], lateness: int
) -> None:
    tested = operator(output_mode="retract", lateness_ms=lateness)
    runner = Epochs(tested)
    oracle = Oracle(10, lateness, "update", fires_late=True)
    there: Counter[tuple[Any, ...]] = Counter()
    for items, watermark, partitions in epochs:
        clock = runner.clock(0, watermark)
        oracle.epoch(items, watermark, clock.late_ms)
        result = runner.run(table_of(tested, items), clock, partitions=partitions)
        for (change, *row), count in result_rows(result.output).items():
            there[tuple(row)] += change * count
        assert set(there.values()) <= {0, 1}
        assert {s.row() for s in oracle.sessions} <= {row for row, count in there.items() if count}


def test_rows_exactly_a_gap_apart_are_of_one_session_as_in_spark() -> None:
    tested = operator(gap_ms=5_000)
    runner = Epochs(tested)
    second = 1_000_000
    times = {"a": (0, 5), "b": (0, 6), "c": (0, 4)}
    items = [Item(k, t * second, t * second, (1,)) for k, ts in times.items() for t in ts]
    runner.run(table_of(tested, items), runner.clock(0, None))
    out = result_rows(runner.run(table_of(tested, []), runner.clock(0, 60_000)).output)
    # What Spark 4.3 answers to the same rows with session_window("t", "5 seconds").
    spans = {(key, start // second, end // second, n) for key, start, end, n, *_ in out}
    assert spans == {("a", 0, 10, 2), ("b", 0, 5, 1), ("b", 6, 11, 1), ("c", 0, 9, 2)}


def test_a_row_between_two_sessions_makes_them_one() -> None:
    tested = operator(output_mode="retract")
    runner = Epochs(tested)
    ms = 1000
    first = [Item("a", 0, 0, (1,)), Item("a", 15 * ms, 15 * ms, (2,))]
    runner.run(table_of(tested, first), runner.clock(0, None))
    out = runner.run(table_of(tested, [Item("a", 8 * ms, 8 * ms, (3,))]), runner.clock(0, 5))
    assert out.output.column(CHANGE).to_pylist() == [-1, -1, 1]
    assert out.new_keys == -1
    assert len(runner.rows("visits.sessions")) == 1


def test_a_session_that_opens_again_closes_at_its_new_end() -> None:
    tested = operator(lateness_ms=100)
    runner = Epochs(tested)
    rows = {0: [Item("a", 0, 0, (1,))], 2: [Item("a", 8000, 8000, (2,))]}
    fired = []
    for epoch, watermark in enumerate((None, 12, 13, 17, 18, 110, 118)):
        result = runner.run(table_of(tested, rows.get(epoch, [])), runner.clock(0, watermark))
        fired.append([(end // 1000, n) for _, _, end, n, *_ in result_rows(result.output)])
    assert fired == [[], [(10, 1)], [], [], [(18, 2)], [], []]
    assert runner.rows("visits.sessions") == []


@pytest.mark.parametrize("derived", [True, False])
def test_without_late_firings_only_what_came_in_time_fires(derived: bool) -> None:
    tested = operator(lateness_ms=50, emit=Emit(late=False))
    runner = Epochs(tested)
    runner.run(table_of(tested, []), runner.clock(0, 5, derived=derived))
    # Other operators' results may be as old as the watermark before, 5: this one is closed by 30 at
    # once. Of a source whose watermark is 30, the same row is late.
    result = runner.run(
        table_of(tested, [Item("a", 0, 0, (1,))]), runner.clock(0, 30, derived=derived)
    )
    assert result.output.num_rows == derived
    again = runner.run(
        table_of(tested, [Item("a", 5, 5, (2,))]), runner.clock(0, 31, derived=derived)
    )
    assert again.output.num_rows == 0
    assert result.late_rows == again.late_rows == 0


def test_sessions_of_everything_need_no_key() -> None:
    tested = operator(keys=[])
    runner = Epochs(tested)
    oracle = Oracle(10, 0, "append", fires_late=True)
    assert tested.output_schema.names == ["window_start", "window_end", "n", "most", "seen"]
    items = [Item(None, t * 1000, t * 1000, (t,)) for t in (3, 30, 12, 55, 41)]
    for batch, watermark in ((items[:2], None), (items[2:], 5), ([], 33), ([], 99)):
        clock = runner.clock(0, watermark)
        expected = oracle.epoch(batch, watermark, clock.late_ms)
        rows = table_of(tested, batch, lambda _: 0)
        assert result_rows(runner.run(rows, clock, partitions=3).output) == Counter(expected)


def test_what_it_says_of_itself_goes_to_tasks_with_it() -> None:
    tested = operator(output_mode="retract", lateness_ms=5)
    sent = pickle.loads(pickle.dumps(tested))
    assert sent.describe() == tested.describe()
    assert sent.tables == tested.tables
    assert sent.kept_schema == tested.kept_schema
    assert operator(output_mode="retract", lateness_ms=9).describe() == tested.describe()
    assert operator().describe() != tested.describe() != operator(gap_ms=11).describe()


def test_rows_without_a_time_are_in_no_session() -> None:
    tested = operator()
    nothing: Any = None
    rows = table_of(tested, [Item("a", nothing, nothing, (1,)), Item("a", 5, 5, (2,))])
    received = tested.receive(rows, Epochs(tested).clock(0, None))
    assert received.rows.num_rows == 1
    assert received.late_rows == 0


def test_a_key_with_very_many_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operators.piece_keys._LARGE", 20)
    tested = operator(lateness_ms=100)
    runner = Epochs(tested)
    oracle = Oracle(10, 100, "append", fires_late=True)
    for start, watermark in ((0, None), (7, 300), (900, 1500), (10_000, 9_000)):
        items = [
            Item(key, t * 1000, t * 1000, (1,))
            for key, step in (("a", 21), ("b", 200))
            for t in range(start, start + 2000, step)
        ]
        clock = runner.clock(0, watermark)
        expected = oracle.epoch(items, watermark, clock.late_ms)
        result = runner.run(table_of(tested, items), clock, partitions=2)
        assert result_rows(result.output) == Counter(expected)


@pytest.mark.slow
def test_state_levels_off_and_busy_keys_write_few_hints() -> None:
    tested = operator(gap_ms=1000)
    runner = Epochs(tested)
    generator = np.random.default_rng(7)
    sizes, hints, results = [], [], 0
    for epoch in range(200):
        times = (epoch * 100 + generator.integers(0, 100, 30)) * 1000
        # User 0 never pauses; the others come and go.
        users = np.where(generator.random(30) < 0.3, 0, epoch // 3 % 40 + 1)
        pairs = zip(users.tolist(), times.tolist(), strict=True)
        items = [Item(str(user), t, t, (1,)) for user, t in pairs]
        watermark = None if epoch == 0 else epoch * 100 - 50
        results += runner.run(table_of(tested, items), runner.clock(0, watermark)).output.num_rows
        if epoch % 4 == 0:
            sizes.append(len(runner.rows("visits.sessions")))
            ahead = [row for row in runner.rows("visits.ends") if row["user"] == "0"]
            hints.append(len(ahead))
    assert max(sizes[25:]) <= max(sizes[5:25]) <= 8
    assert max(hints) <= 2
    assert results > 50


def test_a_sum_that_does_not_fit_names_aggregate_and_key() -> None:
    total = AggregateSpec("total", "sum", (Input("x", pa.int64()),))
    tested = SessionOperator("visits", KEYS, 10, [total], time_type=TIMES)
    runner = Epochs(tested, combine=True)
    for attempt in range(2):
        columns: dict[str, Any] = {HASH: [1], "user": ["kim"], PANE: [5], TIME: [5], COUNT: [1]}
        arrays = [
            pa.array(columns.get(f.name, [2**62] if f.type == pa.int64() else [1]), f.type)
            for f in tested.input_schema
        ]
        rows = pa.table(arrays, schema=tested.input_schema)
        if attempt:
            with pytest.raises(InputError, match=r"'total': sum of key \(user='kim'\)"):
                runner.run(rows, runner.clock(0, None))
        else:
            runner.run(rows, runner.clock(0, None))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"emit": Emit(early_rows=5)}, "early results"),
        ({"emit": Emit(late=False), "output_mode": "retract", "lateness_ms": 5}, "late ones too"),
        ({"gap_ms": 0}, "gap of a session"),
        ({"lateness_ms": -1}, "lateness"),
        ({"keys": [("window_end", pa.int64())]}, "two columns named 'window_end'"),
        ({"keys": [("most", pa.int64())]}, "two columns named 'most'"),
    ],
)
def test_what_can_not_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        operator(**options)


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-20, 20), st.integers(0, 9)), max_size=20
    ),
    scale=st.sampled_from([1, 2**56]),
)
def test_merged_spans_are_those_of_a_plain_loop(
    spans: list[tuple[int, int, int]], scale: int
) -> None:
    groups, starts, lengths = (np.array([s[i] for s in spans], np.int64) for i in range(3))
    starts, lengths = starts * scale, lengths * scale
    order, firsts = merge_spans(groups, starts, starts + lengths)
    places = range(len(spans)) if order is None else order.tolist()
    expected: list[list[int]] = []
    reach: dict[int, int] = {}
    for place in sorted(range(len(spans)), key=lambda i: (groups[i], starts[i])):
        group, start = int(groups[place]), int(starts[place])
        if group not in reach or start > reach[group]:
            expected.append([])
        expected[-1].append(place)
        reach[group] = max(reach.get(group, start), start + int(lengths[place]))
    cuts = [*firsts.tolist(), len(spans)]
    assert [list(places)[a:b] for a, b in pairwise(cuts)] == expected
