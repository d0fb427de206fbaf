"""What window operators refuse, say of themselves and leave in state."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import InputError
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.base import Clock
from holdfast.operators.window.operator import WindowOperator
from holdfast.operators.window.spec import (
    COUNT,
    PANE,
    TIME,
    Emit,
    GlobalWindow,
    SessionGap,
    Sliding,
    Tumbling,
    WindowSpec,
)
from holdfast.state.schema import HASH
from tests.operators.epochs import Epochs, spread
from tests.operators.window_oracle import AGGREGATES, TIMES, Row, buffer_rows

KEYS = [("user", pa.string())]


def windowed(window: WindowSpec | None = None, **options: Any) -> WindowOperator:
    options.setdefault("time_type", TIMES)
    return WindowOperator("w", KEYS, window or Tumbling(10), AGGREGATES, **options)


def at(user: str | None, ms: int, x: int | None = 1) -> Row:
    return Row((user,), ms * 1000, x)


def run(epochs: Epochs, rows: list[Row], watermark: int | None, now: int = 0) -> list[Any]:
    """One epoch; what it put out as (user, start in ms, n, change)."""
    operator = epochs.operator
    assert isinstance(operator, WindowOperator)
    result = epochs.run(buffer_rows(operator, rows, spread), epochs.clock(now, watermark))
    return [
        (row["user"], row["window_start"].microsecond // 1000, row["n"], row.get("change"))
        for row in result.rows
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tumbling(0),
        lambda: Sliding(-5, 1),
        lambda: Sliding(5, 0),
        lambda: SessionGap(0),
        lambda: Emit(early_rows=0),
        lambda: Emit(early_every_ms=-1),
        lambda: windowed(SessionGap(5)),
        lambda: windowed(lateness_ms=-1),
        lambda: windowed(GlobalWindow()),
        lambda: windowed(GlobalWindow(), emit=Emit(late=False)),
        lambda: windowed(output_mode="update", emit=Emit(early_rows=1)),
        lambda: windowed(time_type=pa.int64()),
        lambda: windowed(time_type=pa.timestamp("ms")),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(make: Any) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert refused.value.hint


def test_a_slide_larger_than_the_size_is_refused() -> None:
    with pytest.raises(InputError, match="rows between windows would be lost"):
        Sliding(5, 6)


@pytest.mark.parametrize("name", ["window_start", "window_end", "user", "change"])
def test_result_columns_need_names_of_their_own(name: str) -> None:
    aggregates = [AggregateSpec(name, "count")]
    with pytest.raises(InputError, match=name):
        WindowOperator("w", KEYS, Tumbling(10), aggregates, time_type=TIMES, output_mode="retract")


def test_every_window_is_a_whole_number_of_panes() -> None:
    assert Tumbling(60).pane_ms == 60
    assert Sliding(60, 25).pane_ms == 5
    assert Sliding(60, 20).pane_ms == 20


def test_what_it_says_of_itself_tells_states_apart() -> None:
    operators = [
        windowed(),
        windowed(Tumbling(11)),
        windowed(Tumbling(10, 1)),
        windowed(Sliding(10, 5)),
        windowed(GlobalWindow(), emit=Emit(early_rows=5)),
        windowed(output_mode="update"),
        windowed(lateness_ms=5),
        windowed(emit=Emit(late=False)),
        windowed(emit=Emit(early_rows=5)),
        windowed(emit=Emit(early_every_ms=5)),
        WindowOperator("w", [], Tumbling(10), AGGREGATES, time_type=TIMES),
        WindowOperator("w", KEYS, Tumbling(10), AGGREGATES[:1], time_type=TIMES),
    ]
    assert len({operator.describe() for operator in operators}) == len(operators)
    for operator in operators:
        again = pickle.loads(pickle.dumps(operator))
        assert again.describe() == operator.describe()
        assert again.input_schema == operator.input_schema


def test_schemas_and_tables() -> None:
    emit = Emit(early_every_ms=50)
    operator = windowed(output_mode="retract", emit=emit, lateness_ms=5)
    assert operator.input_schema.names[:5] == [HASH, "user", PANE, TIME, COUNT]
    assert operator.kept_schema.names[:4] == [HASH, "user", "window_start", COUNT]
    assert operator.key_columns == 2
    assert [t.table for t in operator.tables] == ["w.windows", "w.ends", "w.early"]
    assert operator.tables[0].prefix == 1
    names = ["user", "window_start", "window_end", "n", "total", "seen", "change"]
    assert operator.output_schema.names == names
    assert operator.output_schema.field("window_end").type == TIMES
    alone = WindowOperator("w", [], Tumbling(10), AGGREGATES, time_type=TIMES)
    assert [t.table for t in alone.tables] == ["w.windows", "w.ends"]
    assert alone.tables[0].key_names == ["window_start"]
    assert alone.tables[0].prefix == 0
    everything = windowed(GlobalWindow(), emit=Emit(early_rows=3))
    assert [t.table for t in everything.tables] == ["w.windows"]
    assert everything.output_schema.names == ["user", "n", "total", "seen"]
    assert not everything.needs_ticks
    assert windowed().needs_ticks


def test_late_rows_are_counted_by_the_rows_they_stand_for() -> None:
    operator = windowed(Sliding(10, 5))
    rows = [at("a", 3), at("a", 4), at("a", 4), at("b", 12), at("c", 7)]
    for grouped in (False, True):
        table = buffer_rows(operator, rows, spread, grouped=grouped)
        signed = table.set_column(0, HASH, table.column(0).combine_chunks().view(pa.int64()))
        received = operator.receive(signed, Clock(1, 0, 10))
        # Of c's windows [0, 10) has closed and [5, 15) has not: it isn't late.
        assert received.late_rows == 3
        assert received.greatest_ms == {"main": 12}
        starts = received.rows.column("window_start").to_pylist()
        assert sorted(starts) == [5_000, 5_000, 10_000]


def test_rows_without_event_time_are_in_no_window() -> None:
    operator = windowed()
    table = buffer_rows(operator, [at("a", 3), at("b", 4)], spread)
    nothing = pa.array([None, 0], pa.int64())
    table = table.set_column(2, PANE, nothing).set_column(3, TIME, nothing)
    epochs = Epochs(operator)
    result = epochs.run(table, epochs.clock(0, None))
    assert result.greatest_ms == {"main": 0}
    assert [row["user"] for row in epochs.rows("w.windows")] == ["b"]
    assert result.late_rows == 0


def test_a_window_fires_once_and_is_forgotten() -> None:
    epochs = Epochs(windowed())
    assert run(epochs, [at("a", 3), at("a", 12)], None) == []
    assert run(epochs, [at("a", 4)], 9) == []
    assert run(epochs, [], 10) == [("a", 0, 2, None)]
    assert run(epochs, [], 10) == []
    assert run(epochs, [at("a", 5)], 10) == []
    assert run(epochs, [], 20) == [("a", 10, 1, None)]
    assert epochs.rows("w.windows") == []


def test_late_rows_bring_a_new_result_while_lateness_lasts() -> None:
    epochs = Epochs(windowed(lateness_ms=5))
    assert run(epochs, [at("a", 3)], None) == []
    assert run(epochs, [], 10) == [("a", 0, 1, None)]
    assert run(epochs, [at("a", 4), at("b", 9)], 12) == [("a", 0, 2, None), ("b", 0, 1, None)]
    assert run(epochs, [], 14) == []
    assert run(epochs, [at("a", 4)], 15) == []
    assert epochs.rows("w.windows") == []


@pytest.mark.parametrize("output_mode", ["update", "retract"])
def test_a_window_that_closed_in_silence_stays_closed(output_mode: str) -> None:
    epochs = Epochs(windowed(output_mode=output_mode, lateness_ms=20, emit=Emit(late=False)))
    change = 1 if output_mode == "retract" else None
    assert run(epochs, [at("a", 3), at("b", 14)], None) == [
        ("a", 0, 1, change),
        ("b", 10, 1, change),
    ]
    # No row comes in the epoch in which a's window closes: only its end says so.
    assert run(epochs, [], 10) == []
    assert run(epochs, [at("a", 4)], 12) == []
    assert [row["_holdfast_closed"] for row in epochs.rows("w.windows")].count(True) == 1
    assert run(epochs, [], 40) == []
    assert epochs.rows("w.windows") == []


def test_rows_of_other_operators_may_come_between_two_watermarks() -> None:
    operator = windowed()
    epochs = Epochs(operator)
    for watermark, rows, expected in [
        (5, [at("a", 3)], []),
        # Both windows are over by this epoch's watermark, and not by the one before.
        (25, [at("a", 7), at("b", 15)], [("a", 2), ("b", 1)]),
        (30, [at("a", 16), at("a", 27)], [("a", 1)]),
    ]:
        clock = epochs.clock(0, watermark, derived=True)
        result = epochs.run(buffer_rows(operator, rows, spread), clock)
        assert sorted((row["user"], row["n"]) for row in result.rows) == expected
    assert epochs.rows("w.windows") == []


def test_early_results_by_time_need_new_rows() -> None:
    epochs = Epochs(windowed(emit=Emit(early_every_ms=100)))
    assert run(epochs, [at("a", 1)], None, now=1_000) == []
    assert run(epochs, [at("a", 2)], None, now=1_099) == []
    assert run(epochs, [], None, now=1_100) == [("a", 0, 2, None)]
    assert run(epochs, [], None, now=1_300) == []
    # Its time came while it had nothing new.
    assert run(epochs, [at("a", 2)], None, now=1_350) == [("a", 0, 3, None)]
    assert run(epochs, [at("a", 2)], None, now=1_400) == []
    assert run(epochs, [], None, now=1_450) == [("a", 0, 4, None)]
    assert run(epochs, [], 10, now=1_500) == [("a", 0, 4, None)]


def test_retractions_come_first_and_only_where_something_changed() -> None:
    operator = WindowOperator(
        "w",
        KEYS,
        Tumbling(10),
        [AggregateSpec("n", "max", (Input("x", pa.float64()),))],
        time_type=TIMES,
        output_mode="retract",
    )
    epochs = Epochs(operator)

    def put(values: list[tuple[str, float | None]]) -> list[tuple[Any, ...]]:
        users = [user for user, _ in values]
        columns = {
            HASH: [spread((user,)) for user in users],
            "user": users,
            PANE: [0] * len(users),
            TIME: [1] * len(users),
            COUNT: [1] * len(users),
            "n.max": [x for _, x in values],
        }
        table = pa.table([pa.array(columns[f.name], f.type) for f in operator.input_schema],
                         schema=operator.input_schema)  # fmt: skip
        rows = epochs.run(table, epochs.clock(0, None)).rows
        return [(row["user"], repr(row["n"]), row["change"]) for row in rows]

    nan = float("nan")
    assert sorted(put([("a", 1.0), ("b", None), ("c", nan)])) == [
        ("a", "1.0", 1),
        ("b", "None", 1),
        ("c", "nan", 1),
    ]
    assert put([("a", 0.5), ("b", None), ("c", nan)]) == []
    told = put([("a", 2.0), ("b", 3.0)])
    assert [change for *_, change in told] == [-1, -1, 1, 1]
    assert set(told) == {("a", "1.0", -1), ("b", "None", -1), ("a", "2.0", 1), ("b", "3.0", 1)}


def test_an_overflow_names_aggregate_and_key() -> None:
    operator = windowed()
    epochs = Epochs(operator)
    huge = 2**63 - 1
    rows = buffer_rows(operator, [at("a", 1, huge), at("b", 1, 1)], spread)
    epochs.run(rows, epochs.clock(0, None))
    # In one epoch rows of both signs fit, whatever the order.
    both = buffer_rows(operator, [at("a", 1, 5), at("a", 1, -9)], spread)
    epochs.run(both, epochs.clock(0, None))
    with pytest.raises(InputError, match=r"aggregate 'total': sum of key \(user='a'\) exceeds"):
        epochs.run(buffer_rows(operator, [at("a", 1, 9)], spread), epochs.clock(0, None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output_mode", "emit", "lateness"),
    [
        ("append", Emit(), 0),
        ("append", Emit(early_rows=3, early_every_ms=20), 15),
        ("update", Emit(), 15),
        ("retract", Emit(early_every_ms=20), 0),
    ],
)
def test_state_levels_off(output_mode: str, emit: Emit, lateness: int) -> None:
    operator = windowed(Sliding(20, 10), output_mode=output_mode, emit=emit, lateness_ms=lateness)
    epochs = Epochs(operator)
    sizes, hints = [], []
    for e in range(200):
        now = 10 * e
        rows = [at(user, now + shift) for user in "abcdef" for shift in (0, 3, -8)]
        clock = epochs.clock(now, now - 10 if e else None)
        given = buffer_rows(operator, rows, spread, grouped=True)
        epochs.run(given, clock, partitions=1 + e % 10 // 9)
        if e % 5 == 0:
            sizes.append(len(epochs.rows("w.windows")))
            hints.append(sum(len(epochs.rows(t.table)) for t in operator.tables[1:]))
    assert max(sizes[20:]) <= max(sizes[4:12])
    assert max(sizes) <= 6 * (4 + lateness // 10 + 1)
    assert max(hints[20:]) <= max(hints[4:12])
    # Merges drop tombstones and hints that are dead.
    kept = sum(table.num_rows for runs in epochs.state._runs.values() for table in runs)
    assert kept <= 6 * 200
