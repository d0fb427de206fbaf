"""The window operator against plain loops, over any rows, epochs, partitions and clocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.choices import OutputMode
from holdfast.operators.window.operator import WindowOperator
from holdfast.operators.window.spec import Emit, GlobalWindow, Sliding, Tumbling
from tests.operators.epochs import HASHES, EpochResult, Epochs
from tests.operators.window_oracle import (
    AGGREGATES,
    TIMES,
    Oracle,
    Row,
    Window,
    as_told,
    buffer_rows,
)

KEYS = [("user", pa.string()), ("item", pa.int32())]


@dataclass(frozen=True)
class Epoch:
    """The input of an epoch."""

    rows: list[Row]
    partitions: int
    grouped: bool
    later_ms: int
    """How much processing time has passed."""


@dataclass(frozen=True)
class Way:
    """How a run goes, apart from its rows."""

    hashes: str
    delay_ms: int
    derived: bool
    batch_rows: int
    pieces: int
    combine: bool


def some_rows(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Epoch]]:
    times = st.builds(
        lambda ms, us: ms * 1000 + us, st.integers(-15, 60), st.sampled_from([0, 1, 999])
    )
    rows = st.builds(Row, keys, times, st.sampled_from([1, -2, 5, 0, None]))
    epochs = st.builds(
        Epoch,
        st.lists(rows, max_size=8),
        st.integers(1, 5),
        st.booleans(),
        st.integers(0, 20),
    )
    return st.lists(epochs, min_size=1, max_size=9)


pairs = st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([1, None]))
ways = st.builds(
    Way,
    hashes=st.sampled_from(sorted(HASHES)),
    delay_ms=st.sampled_from([0, 3, 12]),
    derived=st.booleans(),
    batch_rows=st.sampled_from([2, 100]),
    pieces=st.sampled_from([1, 4]),
    combine=st.booleans(),
)
windows: st.SearchStrategy[Window] = st.sampled_from(
    [
        Tumbling(10),
        Tumbling(10, 3),
        Sliding(10, 5),
        Sliding(10, 4),
        Sliding(9, 2, 1),
        Sliding(10, 10, -2),
    ]
)
latenesses = st.sampled_from([0, 4, 25])
early_triggers = st.sampled_from(
    [
        Emit(early_rows=2),
        Emit(early_every_ms=10),
        Emit(early_rows=3, early_every_ms=25),
        Emit(early_rows=1, late=False),
    ]
)
triggers = st.sampled_from([Emit(), Emit(late=False)])


class Run:
    """An operator and its oracle, side by side."""

    def __init__(self, oracle: Oracle, way: Way, *, keyed: bool = True) -> None:
        self.oracle, self.way = oracle, way
        self.operator = WindowOperator(
            "w",
            KEYS if keyed else [],
            oracle.window,
            AGGREGATES,
            time_type=TIMES,
            emit=oracle.emit,
            output_mode=cast(OutputMode, oracle.output_mode),
            lateness_ms=oracle.lateness,
        )
        self.epochs = Epochs(
            self.operator, batch_rows=way.batch_rows, pieces=way.pieces, combine=way.combine
        )
        self.now = 1_000
        self.greatest: int | None = None
        self.kept = 0

    def epoch(self, epoch: Epoch) -> list[tuple[Any, ...]]:
        """Run an epoch on both and compare everything."""
        self.now += epoch.later_ms
        watermark = None if self.greatest is None else self.greatest - self.way.delay_ms
        clock = self.epochs.clock(self.now, watermark, derived=self.way.derived)
        given = buffer_rows(
            self.operator, epoch.rows, HASHES[self.way.hashes], grouped=epoch.grouped
        )
        result: EpochResult = self.epochs.run(given, clock, partitions=epoch.partitions)
        expected, late = self.oracle.run(epoch.rows, clock)
        told = as_told(self.operator, result.output)
        assert Counter(told) == Counter(expected)
        assert result.late_rows == late
        most = max((row.at // 1000 for row in epoch.rows), default=None)
        assert result.greatest_ms == ({} if most is None else {"main": most})
        if most is not None:
            self.greatest = most if self.greatest is None else max(most, self.greatest)
        self.kept += result.new_keys
        stored = self.epochs.rows("w.windows")
        names = [name for name, _ in self.operator.window_tables.keys]
        named = Counter(
            (tuple(row[name] for name in names), row["window_start"] // 1000) for row in stored
        )
        assert named == Counter(self.oracle.state.keys())
        assert self.kept == len(self.oracle.state)
        return told


@given(some_rows(pairs), ways, windows, latenesses, triggers)
def test_append_puts_a_window_out_when_the_watermark_reaches_its_end(
    epochs: list[Epoch], way: Way, window: Window, lateness: int, emit: Emit
) -> None:
    run = Run(Oracle(window, emit, "append", lateness), way)
    for epoch in epochs:
        run.epoch(epoch)


@given(some_rows(pairs), ways, windows, latenesses, triggers)
def test_update_puts_out_every_change(
    epochs: list[Epoch], way: Way, window: Window, lateness: int, emit: Emit
) -> None:
    run = Run(Oracle(window, emit, "update", lateness), way)
    for epoch in epochs:
        run.epoch(epoch)


@given(
    some_rows(pairs),
    ways,
    st.one_of(windows, st.just(GlobalWindow())),
    latenesses,
    st.one_of(triggers, early_triggers),
)
def test_retract_takes_back_what_was_put_out(
    epochs: list[Epoch], way: Way, window: Window, lateness: int, emit: Emit
) -> None:
    run = Run(Oracle(window, emit, "retract", lateness), way)
    standing: Counter[Any] = Counter()
    for epoch in epochs:
        told = run.epoch(epoch)
        for key, start, results, change in told:
            standing[key, start, results] += change
            if epoch.partitions == way.pieces == 1:
                assert standing[key, start, results] in (0, 1)
        assert set(standing.values()) <= {0, 1}
        changes = [change for *_, change in told]
        if epoch.partitions == way.pieces == 1:
            assert changes == sorted(changes)
        # Of each window one result stands at most.
        held = Counter((key, start) for (key, start, _), n in standing.items() if n)
        assert set(held.values()) <= {1}


@given(
    some_rows(pairs), ways, st.one_of(windows, st.just(GlobalWindow())), latenesses, early_triggers
)
def test_early_triggers_put_out_results_before_the_end(
    epochs: list[Epoch], way: Way, window: Window, lateness: int, emit: Emit
) -> None:
    run = Run(Oracle(window, emit, "append", lateness), way)
    for epoch in epochs:
        run.epoch(epoch)


@given(
    some_rows(st.just(())),
    ways,
    windows,
    latenesses,
    st.sampled_from(["append", "update", "retract"]),
)
def test_windows_without_keys(
    epochs: list[Epoch], way: Way, window: Window, lateness: int, output_mode: str
) -> None:
    run = Run(Oracle(window, Emit(), output_mode, lateness), way, keyed=False)
    for epoch in epochs:
        run.epoch(epoch)
