"""BatchProcess: user code on columns, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.operators.base import Clock, Update
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.operators.process.batch import BatchOperator
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import Hashes
from holdfast.state.keys import sort_rows
from holdfast.state.schema import HASH
from holdfast.testing.memory_state import MemoryState

KEYS = [("user", pa.string())]
COLUMNS = [("user", pa.string()), ("price", pa.int64())]


class Totals(hf.BatchProcess):
    """A running total per user; it is forgotten when it is 0."""

    output = "user string, total long"
    total = hf.ValueState("long", default=0)
    rows = hf.ValueState("long")

    def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
        """Add up."""
        total = batch.state["total"].to_numpy() + batch.reduce(np.add, "price")
        before = batch.state["rows"].fill_null(0).to_numpy()
        state = {
            "total": pa.array(total, mask=total == 0),
            "rows": pa.array(before + batch.counts, mask=total == 0),
        }
        return hf.BatchResult(state, {"user": batch.keys["user"], "total": total})


def hashes(users: list[str]) -> Hashes:
    return np.array([(len(u) << 40) + sum(map(ord, u)) for u in users], np.uint64)


class Runner:
    def __init__(self, process: hf.BatchProcess) -> None:
        self.operator = BatchOperator("process", KEYS, COLUMNS, process)
        self.state = MemoryState(self.operator.tables)
        self.epoch = -1

    def run(self, rows: list[tuple[str, int]], now_ms: int = 0) -> Update:
        self.epoch += 1
        users = [user for user, _ in rows]
        columns = {
            HASH: pa.array(hashes(users), pa.uint64()),
            "user": pa.array(users, pa.string()),
            TAG: pa.array(range(len(rows)), pa.int64()),
            SOURCE: pa.array([0] * len(rows), pa.int8()),
            "price": pa.array([price for _, price in rows], pa.int64()),
        }
        table = pa.table(columns, schema=self.operator.input_schema)
        self.state.clock = TableClock(now_ms, None)
        update = self.operator.update(sort_rows(table, 1), self.state, Clock(self.epoch, now_ms))
        self.state.apply(update.changes)
        return update


@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", "cc"]), st.integers(-3, 3)))))
def test_it_equals_a_loop_over_the_rows(epochs: list[list[tuple[str, int]]]) -> None:
    runner, totals = Runner(Totals()), dict[str, int]()
    for rows in epochs:
        known = len(totals)
        for user, price in rows:
            totals[user] = totals.get(user, 0) + price
        touched = {user for user, _ in rows}
        expected = {user: totals[user] for user in touched}
        totals = {u: t for u, t in totals.items() if t or u not in touched}
        update = runner.run(rows)
        out = update.output.to_pylist()
        assert {row["user"]: row["total"] for row in out} == expected
        assert update.new_keys == len(totals) - known


def test_a_default_stands_where_there_is_no_state() -> None:
    seen: list[list[object]] = []

    class Looks(Totals):
        def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
            seen.append([batch.state["total"].to_pylist(), batch.state["rows"].to_pylist()])
            return super().process(batch)

    runner = Runner(Looks())
    runner.run([("a", 2)])
    runner.run([("a", 3), ("b", 1)])
    assert seen == [[[0], [None]], [[2, 0], [1, None]]]


def test_a_value_expires() -> None:
    class Short(hf.BatchProcess):
        output = "user string, before long"
        n = hf.ValueState("long", default=0, ttl="1 s")

        def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
            before = batch.state["n"].to_numpy()
            return hf.BatchResult({"n": before + 1}, {"user": batch.keys["user"], "before": before})

    runner = Runner(Short())
    before = [
        runner.run([("a", 1)], now_ms).output["before"].to_pylist()
        for now_ms in (0, 999, 1999, 5000)
    ]
    assert before == [[0], [1], [0], [0]]


class Wrong(hf.BatchProcess):
    """Returns what a test wants."""

    output = "user string"
    n = hf.ValueState("long")

    def __init__(self, result: object) -> None:
        self.result = result

    def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
        """Whatever it is."""
        return self.result  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("nothing", "Wrong.process returned str in epoch 0, not a BatchResult"),
        (hf.BatchResult({"n": [1, 2]}), "state 'n' has 2 values for 1 keys"),
        (hf.BatchResult({"n": ["x"]}), "Wrong.process, in epoch 0: state 'n' should be bigint"),
        (hf.BatchResult({"m": [1]}), r"state \['m'\], which it doesn't declare"),
        (hf.BatchResult({}, {"who": ["a"]}), r"columns \['who'\], not \['user'\]"),
    ],
)
def test_what_is_wrong_with_a_result_is_said(result: object, message: str) -> None:
    with pytest.raises(hf.ProcessingError, match=message):
        Runner(Wrong(result)).run([("a", 1)])


def test_whole_numbers_are_decimals_too() -> None:
    class Money(hf.BatchProcess):
        output = "total decimal(10,2)"
        total = hf.ValueState("decimal(10,2)")

        def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
            n = np.arange(batch.keys.num_rows) + self.first
            return hf.BatchResult({"total": n}, {"total": n})

        def __init__(self, first: int) -> None:
            self.first = first

    out = Runner(Money(3)).run([("a", 1)]).output
    assert list(map(str, out["total"].to_pylist())) == ["3.00"]
    with pytest.raises(hf.ProcessingError, match=r"be decimal\(10,2\).*: it has too many digits"):
        Runner(Money(10**9)).run([("a", 1)])


def test_only_value_states_are_columns() -> None:
    class Lists(hf.BatchProcess):
        output = "user string"
        xs = hf.ListState("long")

    with pytest.raises(hf.InputError, match=r"xs is a ListState.*value states only"):
        Runner(Lists())


def test_an_error_shows_the_users_own_traceback() -> None:
    class Raises(hf.BatchProcess):
        output = "user string"

        def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
            raise ValueError("no such thing")

    with pytest.raises(hf.ProcessingError) as caught:
        Runner(Raises()).run([("a", 1)])
    assert "no such thing" in str(caught.value)
    assert 'raise ValueError("no such thing")' in str(caught.value)
    assert "epoch 0" in str(caught.value)
