"""ProcessorTester: a process without Spark, with time and state in the test's hands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import holdfast as hf

T0 = datetime(2026, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


class Cart(hf.KeyedProcess):
    """A bit of everything."""

    output = "user string, what string, total double"
    side_outputs = {"large": "user string, price double"}  # noqa: RUF012 - never changed
    total = hf.ValueState("double", default=0.0)
    items = hf.MapState("string", "long", ttl="10 minutes")
    prices = hf.ListState("double")
    rules = hf.BroadcastState("string", "double")

    def process_broadcast(self, rows: Any, ctx: hf.Context) -> None:
        """New limits."""
        for row in rows:
            self.rules[row.name] = row.limit

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> Iterator[Any]:
        """Add up."""
        for row in rows:
            self.total.value += row.price
            self.items[row.sku] = self.items.get(row.sku, 0) + 1
            self.prices.append(row.price)
            if row.price > self.rules.get("large", 100.0):
                ctx.side_output("large", (key.user, row.price))
        ctx.metrics.add("rows", len(rows))
        ctx.timers.set(rows[-1].at + 30 * MINUTE)
        yield key.user, "total", self.total.value

    def on_timer(self, key: Any, when: datetime, ctx: hf.Context) -> Iterator[Any]:
        """The cart was left."""
        yield {"user": key.user, "what": f"left at {when:%H:%M}", "total": self.total.value}
        self.total.clear()


@pytest.fixture
def tester() -> hf.testing.ProcessorTester:
    return hf.testing.ProcessorTester(
        Cart(),
        columns="user string, sku string, price double, at timestamp",
        keys="user",
        event_time="at",
        control_columns="name string, limit double",
        processing_time=T0,
    )


def test_state_can_be_read_and_set(tester: hf.testing.ProcessorTester) -> None:
    tester.process([("ann", "pen", 2.0, T0), ("ann", "pen", 3.0, T0), ("bob", "ink", 1.0, T0)])
    assert tester.state("ann") == {"total": 5.0, "items": {"pen": 2}, "prices": [2.0, 3.0]}
    tester.set_state("ann", total=1.0, items={"cup": 7}, prices=[9.0])
    assert tester.state("ann") == {"total": 1.0, "items": {"cup": 7}, "prices": [9.0]}
    assert tester.state("bob")["total"] == 1.0
    assert tester.metrics == {"rows": 3}


def test_the_watermark_fires_timers_in_order(tester: hf.testing.ProcessorTester) -> None:
    tester.process([("bob", "ink", 1.0, T0 + 5 * MINUTE), ("ann", "pen", 2.0, T0)])
    assert tester.timers("ann") == [T0 + 30 * MINUTE]
    assert tester.advance(watermark=T0 + 29 * MINUTE) == []
    fired = tester.advance(watermark=T0 + 40 * MINUTE)
    assert [(row["user"], row["what"]) for row in fired] == [
        ("ann", "left at 00:30"),
        ("bob", "left at 00:35"),
    ]
    assert tester.timers("ann") == []
    assert tester.state("ann")["total"] is None


def test_late_rows_go_aside(tester: hf.testing.ProcessorTester) -> None:
    tester.set_time(watermark=T0)
    late, there = T0, T0 + timedelta(microseconds=1)
    out = tester.process([("ann", "pen", 2.0, late), ("ann", "cup", 3.0, there)])
    assert [row["total"] for row in out] == [3.0]
    assert [row["sku"] for row in tester.side_output()] == ["pen"]


def test_what_has_expired_is_hidden(tester: hf.testing.ProcessorTester) -> None:
    tester.process([("ann", "pen", 2.0, T0)])
    tester.set_time(processing_time=T0 + 10 * MINUTE - timedelta(milliseconds=1))
    assert tester.state("ann")["items"] == {"pen": 1}
    tester.set_time(processing_time=T0 + 10 * MINUTE)
    assert tester.state("ann")["items"] == {}
    assert tester.state("ann")["prices"] == [2.0]


def test_control_rows_come_first(tester: hf.testing.ProcessorTester) -> None:
    tester.process([("ann", "pen", 2.0, T0)], control=[("large", 1.0)])
    tester.process([("ann", "pen", 1.5, T0)])
    assert tester.side_output("large") == [
        {"user": "ann", "price": 2.0},
        {"user": "ann", "price": 1.5},
    ]


def test_names_that_are_not_there_are_told(tester: hf.testing.ProcessorTester) -> None:
    assert tester.side_output("large") == []
    with pytest.raises(hf.InputError, match=r"no side output 'lrage'.*choose one of: large, late"):
        tester.side_output("lrage")
    for wrong in ("ta", "user"):
        with pytest.raises(hf.InputError, match=rf"no timestamp column '{wrong}'.*one of: at"):
            hf.testing.ProcessorTester(
                Cart(), columns="user string, at timestamp", keys="user", event_time=wrong
            )
    with pytest.raises(hf.InputError, match=r"Cart is a class, not a process.*give Cart\(\)"):
        hf.testing.ProcessorTester(Cart, columns="user string", keys="user")


def test_no_keys_are_refused() -> None:
    with pytest.raises(hf.InputError, match=r"needs keys, and keys=\(\) names no column"):
        hf.testing.ProcessorTester(Cart(), columns="user string, at timestamp", keys=())
    with pytest.raises(hf.InputError, match=r"needs keys, and initial_keys=\[\] names no column"):
        hf.testing.ProcessorTester(
            Counts(),
            columns="user string",
            keys="user",
            output="user string",
            initial_columns="user string",
            initial_keys=[],
        )


def test_tracebacks_have_the_users_lines_alone() -> None:
    class Late(Cart):
        def process(self, key: Any, rows: Any, ctx: hf.Context) -> Iterator[Any]:
            ctx.timers.set(rows[0].at)
            yield from ()

    class Narrow(Cart):
        def process(self, key: Any, rows: Any) -> Iterator[Any]:  # type: ignore[override]
            yield from ()

    for process, line in ((Late(), "ctx.timers.set(rows[0].at)"), (Narrow(), None)):
        tester = hf.testing.ProcessorTester(
            process, columns="user string, at timestamp", keys="user", processing_time=T0
        )
        with pytest.raises(hf.HoldfastError) as failed:
            tester.process([("ann", T0)])
        assert "keyed.py" not in str(failed.value)
        assert str(failed.value).count("File ") == (0 if line is None else 1)
        assert line is None or line in str(failed.value)


def test_time_does_not_go_back(tester: hf.testing.ProcessorTester) -> None:
    with pytest.raises(hf.InputError, match="can't go back"):
        tester.set_time(processing_time=T0 - MINUTE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.process([{"usr": "ann"}]), "usr"),
        (lambda t: t.state("ann", "bob"), "1 parts"),
        (lambda t: t.set_state("ann", sum=1), "no state 'sum'"),
        (lambda t: t.set_state("ann", total="much"), r"state 'total' was given 'much' \(str\)"),
        (lambda t: t.set_state("ann", prices=["x"]), "state 'prices' was given 'x'"),
        (lambda t: t.set_state("ann", items={("a", 1): 1}), r"map 'items'.*\('a', 1\).*string"),
        (lambda t: t.set_state("ann", items={1.5: 1}), "map 'items'.*1.5"),
        (lambda t: t.set_state("ann", prices=5), r"'prices' is a list of double.* 5 \(int\)"),
        (lambda t: t.set_state("ann", prices="1"), r"'prices' is a list of double.* '1' \(str\)"),
        (
            lambda t: t.set_state("ann", items=5),
            "'items' is a map of string to bigint.*give a dict",
        ),
        (lambda t: t.set_state("ann", items=[("a", 1)]), r"map of string to bigint.* \(list\)"),
        (lambda t: t.set_state(5, total=1.0), "key 'user' is declared as string"),
        (lambda t: t.process([("ann", 1, 2.0, T0)]), "column 'sku' is declared as string"),
        (lambda t: t.process([("ann",)]), "1 values, and 4 columns are declared"),
    ],
)
def test_wrong_calls_are_told(tester: hf.testing.ProcessorTester, call: Any, message: str) -> None:
    with pytest.raises(hf.InputError, match=message):
        call(tester)


class Counts(StatefulProcessor):
    """PySpark's own."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        """Count."""
        n = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((n,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000)
        yield Row(user=key[0], n=n)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Say that it is over."""
        yield Row(user=key[0], n=-1)

    def close(self) -> None:
        """Nothing to close."""


def test_a_stateful_processor_runs_unchanged() -> None:
    tester = hf.testing.ProcessorTester(
        Counts(),
        columns="user string",
        keys="user",
        output="user string, n long",
        time_mode="ProcessingTime",
        processing_time=T0,
    )
    assert tester.process([("ann",), ("ann",)]) == [{"user": "ann", "n": 2}]
    assert tester.state("ann") == {"count": {"n": 2}}
    assert tester.advance(processing_time=T0 + timedelta(seconds=1)) == [{"user": "ann", "n": -1}]


class Seeded(StatefulProcessor):
    """Begins with rows of an initial state; keeps a map by several fields and one by one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.total = handle.getValueState("total", "n long")
        self.pairs = handle.getMapState("pairs", "a int, b string", "x double")
        self.words = handle.getMapState("words", "w string", "n long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N803
        """Take a row over."""
        (n,) = self.total.get() or (0,)
        self.total.update((n + initialState.amount,))
        self.words.updateValue((initialState.note,), (1,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        """Say all that is known."""
        (n,) = self.total.get() or (0,)
        n += sum(1 for _ in rows)
        self.total.update((n,))
        words = sorted(word for (word,) in self.words.keys())  # noqa: SIM118 - no dict
        yield Row(user=key[0], n=n, words=words, pair=self.pairs.getValue((1, "b")))

    def close(self) -> None:
        """Nothing to close."""


def seeded(**given: Any) -> hf.testing.ProcessorTester:
    return hf.testing.ProcessorTester(
        Seeded(),
        columns="user string",
        keys="user",
        output="user string, n long, words array<string>, pair struct<x:double>",
        **given,
    )


def test_a_stateful_processor_begins_with_an_initial_state() -> None:
    tester = seeded(
        initial_columns="owner string, amount long, note string",
        initial_keys="owner",
        initial=[("ann", 10, "ten"), ("cid", 5, "five"), ("ann", 1, "one")],
    )
    out = tester.process([("ann",), ("bob",)])
    assert sorted(out, key=lambda row: str(row["user"])) == [
        {"user": "ann", "n": 12, "words": ["one", "ten"], "pair": None},
        {"user": "bob", "n": 1, "words": [], "pair": None},
    ]
    assert tester.state("cid")["total"] == {"n": 5}
    assert [row["n"] for row in tester.process([("ann",)])] == [13], "in the first epoch only"


def test_an_initial_state_that_does_not_fit() -> None:
    with pytest.raises(hf.InputError, match="grouped by bigint, the rows by string"):
        seeded(initial_columns="user long", initial=[(1,)])
    with pytest.raises(hf.InputError, match="initial state have no column 'user'"):
        seeded(initial_columns="owner string")
    with pytest.raises(hf.InputError, match="columns of the initial state aren't named"):
        seeded(initial=[("ann",)])
    with pytest.raises(hf.InputError, match="Cart is a KeyedProcess") as refused:
        hf.testing.ProcessorTester(
            Cart(),
            columns="user string",
            keys="user",
            control_columns="name string, limit double",
            initial_columns="user string",
        )
    assert "set_state" in str(refused.value)


def test_state_can_be_set_as_a_stateful_processor_has_it() -> None:
    tester = seeded()
    tester.set_state(
        "ann", total=(4,), pairs={(1, "b"): (0.5,)}, words={("w",): (2,), "v": {"n": 3}}
    )
    assert tester.state("ann") == {
        "total": {"n": 4},
        "pairs": {(1, "b"): {"x": 0.5}},
        "words": {"w": {"n": 2}, "v": {"n": 3}},
    }
    [row] = tester.process([("ann",)])
    assert row == {"user": "ann", "n": 5, "words": ["v", "w"], "pair": {"x": 0.5}}
