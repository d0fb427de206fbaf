"""The window function operator against plain Python, over any epochs, partitions and clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError, ProcessingError
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.operators.window.spec import GlobalWindow, SessionGap, Sliding, Tumbling
from holdfast.operators.window_function.operator import WindowFunctionOperator
from holdfast.state.schema import HASH
from tests.operators.epochs import HASHES, Epochs, Hashed, spread
from tests.operators.session_oracle import up_ms

AT = pa.timestamp("us", "UTC")
KEYS = [("user", pa.string())]
COLUMNS = [("at", AT), ("user", pa.string()), ("n", pa.int64())]
GIVEN = pa.schema([*KEYS, ("window_start", AT), ("window_end", AT), ("at", AT), ("n", pa.int64())])
Window = Tumbling | Sliding | SessionGap
Row = tuple[Any, int, int]
"""User, event time in µs, a number that tells rows apart and is their order in the source."""
Placed = tuple[Any, int, int, int, int]
"""User, start and end of the window, event time, number."""


class Recorder:
    """A function that returns what it got, and remembers it."""

    def __init__(self) -> None:
        self.calls: list[pa.Table] = []

    def __call__(self, rows: pa.Table) -> pa.Table:
        self.calls.append(rows)
        return rows


def operator(window: Any, function: Callable[[pa.Table], pa.Table] | None = None, **options: Any) -> WindowFunctionOperator:  # fmt: skip
    given = options.pop("output_schema", GIVEN)
    keys, columns = options.pop("keys", KEYS), options.pop("columns", COLUMNS)
    time = EventTime(options.pop("time", "at"))
    return WindowFunctionOperator(
        "spread",
        keys,
        window,
        columns,
        function or (lambda t: t),
        given,
        event_time=time,
        **options,
    )


def table_of(tested: WindowFunctionOperator, rows: Sequence[Row], hashed: Hashed) -> pa.Table:
    columns: dict[str, Any] = {
        HASH: [hashed((user,)) for user, _, _ in rows],
        "user": [user for user, _, _ in rows],
        TAG: [n for _, _, n in rows],
        SOURCE: [0] * len(rows),
        "at": [at for _, at, _ in rows],
        "n": [n for _, _, n in rows],
    }
    schema = tested.input_schema
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def placed_rows(table: pa.Table) -> list[Placed]:
    times = [table.column(name).cast(pa.int64()) for name in ("window_start", "window_end", "at")]
    users = (
        table.column("user").to_pylist() if "user" in table.column_names else [None] * len(table)
    )
    numbers = [column.to_pylist() for column in (*times, table.column("n"))]
    return list(zip(users, *numbers, strict=True))


class Oracle:
    """Windows as a dict of lists."""

    def __init__(self, window: Window, lateness_ms: int) -> None:
        self.window, self.lateness_ms = window, lateness_ms
        self.windows: dict[tuple[Any, int, int], list[Row]] = {}
        self.waiting: set[tuple[Any, int, int]] = set()
        self.late: list[int] = []

    def epoch(self, rows: Sequence[Row], watermark: int | None, late: int | None) -> list[Placed]:
        touched: set[tuple[Any, int, int]] = set()
        for row in rows:
            spans = [(s, e) for s, e in self._spans(row[1]) if not self._over(e, late)]
            if not spans:
                self.late.append(row[2])
            for start, end in spans:
                touched.add(self._put(row, start, end))
        out: list[Placed] = []
        for place, members in list(self.windows.items()):
            if watermark is not None and up_ms(place[2]) <= watermark:
                if place in touched or place in self.waiting:
                    out += [(*place, at, n) for _, at, n in members]
                self.waiting.discard(place)
            else:
                self.waiting.add(place)
            if self._over(place[2], watermark):
                del self.windows[place]
        return out

    def numbers(self) -> set[int]:
        """The rows that are still needed."""
        return {n for members in self.windows.values() for _, _, n in members}

    def _over(self, end: int, clock: int | None) -> bool:
        return clock is not None and up_ms(end) <= clock - self.lateness_ms

    def _spans(self, at: int) -> list[tuple[int, int]]:
        window = self.window
        if isinstance(window, SessionGap):
            return [(at, at + window.gap_ms * 1000)]
        size, slide = window.size_ms * 1000, window.slide_ms * 1000
        start = (at - window.offset_ms * 1000) // slide * slide + window.offset_ms * 1000
        spans = []
        while start > at - size:
            spans.append((start, start + size))
            start -= slide
        return spans

    def _put(self, row: Row, start: int, end: int) -> tuple[Any, int, int]:
        members = [row]
        waiting = False
        if isinstance(self.window, SessionGap):
            while near := [p for p in self.windows if p[0] == row[0] and p[1] <= end and start <= p[2]]:  # fmt: skip
                for place in near:
                    members += self.windows.pop(place)
                    waiting |= place in self.waiting
                    self.waiting.discard(place)
                    start, end = min(start, place[1]), max(end, place[2])
        else:
            members += self.windows.get((row[0], start, end), [])
            waiting = (row[0], start, end) in self.waiting
        place = (row[0], start, end)
        self.windows[place] = members
        if waiting:
            self.waiting.add(place)
        return place


WINDOWS: list[Window] = [
    Tumbling(10),
    Tumbling(10, 3),
    Sliding(20, 5),
    Sliding(20, 8, 1),
    SessionGap(10),
]


@st.composite
def some_epochs(draw: st.DrawFn) -> list[tuple[list[Row], int | None, int]]:
    watermark: int | None = None
    epochs: list[tuple[list[Row], int | None, int]] = []
    number = 0
    for _ in range(draw(st.integers(1, 9))):
        rows: list[Row] = []
        for _ in range(draw(st.integers(0, 9))):
            number += 1
            around = 2 * (watermark or 0)
            near = st.integers(around - 50, around + 20)
            at = draw(st.one_of(st.integers(-10, 120), near)) * 500
            rows.append((draw(st.sampled_from(["a", "b", None])), at, number))
        step = draw(st.sampled_from([None, 0, 1, 4, 9, 30]))
        if step is not None:
            watermark = step if watermark is None else watermark + step
        epochs.append((draw(st.permutations(rows)), watermark, draw(st.integers(1, 4))))
    return [*epochs, ([], 1000, 2)]


@given(
    epochs=some_epochs(),
    window=st.sampled_from(WINDOWS),
    lateness=st.sampled_from([0, 7, 25]),
    derived=st.booleans(),
    hashed=st.sampled_from(list(HASHES)),
    pieces=st.sampled_from([1, 3]),
)
def test_the_function_gets_all_rows_of_every_window_that_closes(
    epochs: list[tuple[list[Row], int | None, int]],
    window: Window,
    lateness: int,
    derived: bool,
    hashed: str,
    pieces: int,
) -> None:
    recorder = Recorder()
    tested = operator(window, recorder, lateness_ms=lateness)
    runner = Epochs(tested, batch_rows=4, pieces=pieces)
    oracle = Oracle(window, lateness)
    size, late = 0, []
    for rows, watermark, partitions in epochs:
        recorder.calls.clear()
        clock = runner.clock(0, watermark, derived=derived)
        expected = oracle.epoch(rows, watermark, clock.late_ms)
        result = runner.run(table_of(tested, rows, HASHES[hashed]), clock, partitions=partitions)
        assert Counter(placed_rows(result.output)) == Counter(expected)
        assert len(recorder.calls) <= partitions * pieces
        for call in recorder.calls:
            placed = placed_rows(call)
            assert placed == sorted(
                placed, key=lambda p: (p[0] is None, p[0] or "", *p[1:2], *p[3:])
            )
        late += result.sides[LATE].column("n").to_pylist()
        size += result.new_keys
        stored = [row["n"] for row in runner.rows("spread.rows")]
        assert set(stored) == oracle.numbers()
        assert size == len(stored) == len(oracle.numbers())
        if rows:
            assert result.greatest_ms == {"main": max(at for _, at, _ in rows) // 1000}
    assert sorted(late) == sorted(oracle.late)


def test_a_function_may_return_other_rows_than_it_got() -> None:
    schema = pa.schema([("user", pa.string()), ("window_start", AT), ("spread", pa.int64())])

    def spread_of(rows: pa.Table) -> pa.Table:
        found = rows.group_by(["user", "window_start"]).aggregate([("n", "max"), ("n", "min")])
        width = pc.subtract(found.column("n_max"), found.column("n_min"))
        return found.select(["user", "window_start"]).append_column("spread", width)

    tested = operator(Tumbling(10), spread_of, output_schema=schema)
    runner = Epochs(tested)
    rows = [("a", 1000, 1), ("b", 2000, 2), ("a", 3000, 7), ("a", 12_000, 9)]
    assert not runner.run(table_of(tested, rows, spread), runner.clock(0, None)).output.num_rows
    out = runner.run(table_of(tested, [], spread), runner.clock(0, 10))
    assert sorted((r["user"], r["spread"]) for r in out.rows) == [("a", 6), ("b", 0)]
    assert out.new_keys == -3


@pytest.mark.parametrize("window", [Tumbling(10), SessionGap(10)], ids=str)
def test_a_window_closes_at_its_end_and_is_forgotten_when_lateness_is_over(window: Window) -> None:
    tested = operator(window, lateness_ms=100)
    runner = Epochs(tested)
    rows = {0: [("a", 0, 1)], 3: [("a", 500, 2)]}
    fired = []
    for epoch, watermark in enumerate((None, 9, 11, 12, 110, 111)):
        table = table_of(tested, rows.get(epoch, []), spread)
        out = runner.run(table, runner.clock(0, watermark)).output
        fired.append((out.column("n").to_pylist(), len(runner.rows("spread.rows"))))
    ends = [2, 0] if isinstance(window, SessionGap) else [0, 0]
    assert [numbers for numbers, _ in fired] == [[], [], [1], [1, 2], [], []]
    assert [count for _, count in fired] == [1, 1, 1, 2, *ends]


def test_windows_of_everything_need_no_key() -> None:
    given = pa.schema([f for f in GIVEN if f.name != "user"])
    columns = [c for c in COLUMNS if c[0] != "user"]
    tested = operator(Sliding(20, 10), keys=[], columns=columns, output_schema=given)
    runner = Epochs(tested)
    oracle = Oracle(Sliding(20, 10), 0)
    rows: list[Row] = [(None, t * 1000, t) for t in (3, 30, 12, 55, 41)]
    for batch, watermark in ((rows[:2], None), (rows[2:], 5), ([], 33), ([], 99)):
        clock = runner.clock(0, watermark)
        expected = oracle.epoch(batch, watermark, clock.late_ms)
        result = runner.run(table_of(tested, batch, lambda _: 0), clock, partitions=3)
        assert Counter(placed_rows(result.output)) == Counter(expected)


def test_the_event_time_may_be_a_key() -> None:
    tested = operator(Tumbling(10), keys=[*KEYS, ("at", AT)], output_schema=pa.schema(
        [*KEYS, ("at", AT), ("window_start", AT), ("window_end", AT), ("n", pa.int64())]))  # fmt: skip
    runner = Epochs(tested)
    runner.run(table_of(tested, [("a", 1000, 1), ("a", 2000, 2)], spread), runner.clock(0, None))
    out = runner.run(table_of(tested, [], spread), runner.clock(0, 10)).output
    assert sorted(out.column("n").to_pylist()) == [1, 2]


def test_rows_without_a_time_are_in_no_window() -> None:
    tested = operator(Tumbling(10))
    nothing: Any = None
    rows = table_of(tested, [("a", nothing, 1), ("a", 5, 2)], spread)
    received = tested.receive(rows, Epochs(tested).clock(0, None))
    assert received.rows.column("n").to_pylist() == [2]
    assert not received.sides


def test_a_key_with_very_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operators.piece_keys._LARGE", 20)
    tested = operator(Sliding(100, 50))
    runner = Epochs(tested)
    oracle = Oracle(Sliding(100, 50), 0)
    number = 0
    for epoch, watermark in enumerate((None, 60, 120, 180, 9_000)):
        rows: list[Row] = []
        for user, count in (("a", 90), ("b", 5)):
            for i in range(count):
                number += 1
                rows.append((user, (epoch * 60 + i) * 1000, number))
        clock = runner.clock(0, watermark)
        expected = oracle.epoch(rows, watermark, clock.late_ms)
        result = runner.run(table_of(tested, rows, spread), clock, partitions=2)
        assert Counter(placed_rows(result.output)) == Counter(expected)


@pytest.mark.slow
@pytest.mark.parametrize("window", [Tumbling(10), Sliding(20, 5), SessionGap(10)], ids=str)
def test_state_levels_off(window: Window) -> None:
    tested = operator(window)
    runner = Epochs(tested)
    generator = np.random.default_rng(7)
    sizes, number = [], 0
    for epoch in range(200):
        rows: list[Row] = []
        # Windows of sessions end because users pause.
        users = [u for u in range(4) if (epoch // 20 + u) % 4]
        for at in generator.integers(0, 4000, 20).tolist():
            number += 1
            rows.append((str(users[number % len(users)]), epoch * 4000 + at, number))
        runner.run(table_of(tested, rows, spread), runner.clock(0, epoch * 4 - 3))
        if epoch % 4 == 0:
            sizes.append((len(runner.rows("spread.rows")), len(runner.rows("spread.ends"))))
    assert max(rows for rows, _ in sizes[25:]) <= max(rows for rows, _ in sizes[:25]) * 1.1
    assert max(hints for _, hints in sizes) <= 40


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ([1], "returned a list in epoch 1, not a table"),
        (
            GIVEN.empty_table().drop_columns(["n"]),
            "returned a table in epoch 1 that doesn't fit its output: it has the columns "
            "['user', 'window_start', 'window_end', 'at'], not "
            "['user', 'window_start', 'window_end', 'at', 'n']",
        ),
        (
            pa.table([[]] * 5, schema=GIVEN.set(4, pa.field("n", pa.int32()))),
            "returned a table in epoch 1 that doesn't fit its output: column 'n' should be bigint, "
            "but is int",
        ),
        (
            pa.table([[]] * 5, schema=GIVEN.set(0, pa.field("user", pa.large_string()))),
            "column 'user' should be string, but is large_string",
        ),
    ],
)
def test_what_a_function_returns_must_be_what_was_declared(returned: Any, words: str) -> None:
    tested = operator(Tumbling(10), lambda rows: returned)
    runner = Epochs(tested)
    runner.run(table_of(tested, [("a", 1000, 1)], spread), runner.clock(0, None))
    with pytest.raises(ProcessingError) as caught:
        runner.run(table_of(tested, [], spread), runner.clock(0, 50))
    assert words in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("timestamp, n bigint")


def test_an_error_of_the_function_says_where_it_comes_from() -> None:
    def halve(rows: pa.Table) -> pa.Table:
        raise ZeroDivisionError(rows.num_rows)

    tested = operator(Tumbling(10), halve)
    runner = Epochs(tested)
    runner.run(table_of(tested, [("a", 1000, 1)], spread), runner.clock(0, None))
    with pytest.raises(ProcessingError, match="halve raised ZeroDivisionError in epoch 1"):
        runner.run(table_of(tested, [], spread), runner.clock(0, 50))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": GlobalWindow()}, "never close"),
        ({"time": "n"}, "no timestamp"),
        ({"time": "when"}, "no timestamp"),
        ({"lateness_ms": -1}, "lateness"),
        ({"columns": [*COLUMNS, ("window_end", AT)]}, "two columns named 'window_end'"),
    ],
)
def test_what_can_not_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        operator(**{"window": Tumbling(10), **options})


def test_what_it_says_of_itself() -> None:
    words = {operator(window).describe() for window in WINDOWS}
    assert len(words) == len(WINDOWS)
    first = operator(Tumbling(10))
    assert first.describe().splitlines()[0] == "window function by user: string"
    assert first.side_schemas[LATE] == pa.schema(COLUMNS)
