"""``hf.testing.simulate``: what is right passes, and what is wrong with user code is said."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import Simulated, simulate

COLUMNS = "user string, sku string, price double, at timestamp"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
_RUNS: dict[str, int] = {}


def bought(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    at = BEGIN
    for _ in range(50):
        at += timedelta(seconds=rng.randrange(600))
        yield rng.choice("abcd"), rng.choice(["kelp", "rock"]), float(rng.randrange(9)), at


class Cart(hf.KeyedProcess):
    output = "user string, total double, items long, left boolean"
    side_outputs: ClassVar[dict[str, object]] = {"dear": "user string, price double"}
    total = hf.ValueState("double", default=0.0)
    items = hf.MapState("string", "long", ttl="2 hours", ttl_clock="event")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            if row.price > 7:
                ctx.side_output("dear", (key.user, row.price))
            self.total.value += row.price
            self.items[row.sku] = self.items.get(row.sku, 0) + 1
        ctx.timers.set(rows[-1].at + timedelta(minutes=30))
        yield key.user, self.total.value, len(self.items), False

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield key.user, self.total.value, len(self.items), True
        self.items.clear()


class Told(hf.KeyedProcess):
    """Puts out per key what a function makes of the rows."""

    output = "user string, said string"

    def say(self, rows: Sequence[Any]) -> object:
        raise NotImplementedError

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        yield key.user, str(self.say(rows))


class Clock(Told):
    def say(self, rows: Sequence[Any]) -> object:
        return time.time()


class Unsorted(Told):
    def say(self, rows: Sequence[Any]) -> object:
        return list({f"{row.sku}{row.price}" for row in rows})


class Global(Told):
    def say(self, rows: Sequence[Any]) -> object:
        user = rows[0].user
        _RUNS[user] = _RUNS.get(user, 0) + 1
        return _RUNS[user]


class Attribute(Told):
    def say(self, rows: Sequence[Any]) -> object:
        self.runs = getattr(self, "runs", 0) + 1
        return self.runs


class Raises(Told):
    def say(self, rows: Sequence[Any]) -> object:
        if any(row.price > 5 for row in rows):
            raise ValueError("too dear")
        return "cheap"


def run(process: Any, seeds: Any = 3, **options: Any) -> Simulated:
    options = {"columns": COLUMNS, "keys": "user", "rows": bought, **options}
    return simulate(process, seeds=seeds, processes=1, **options)


def test_a_process_that_is_right_passes_and_what_befell_it_is_told() -> None:
    done = run(Cart(), 3, event_time="at", watermark_delay="5 minutes")
    assert done.seeds == (0, 1, 2)
    assert done.epochs >= 6
    assert done.checkpoints >= 3
    assert done.restarts > 0
    assert sum(done.faults.values()) > 0
    lines = [line.split() for line in str(done).splitlines()]
    assert ["restarts", str(done.restarts)] in lines


@pytest.mark.parametrize(
    ("process", "why"),
    [
        (Clock(), "it reads a clock"),
        (Unsorted(), "goes by the order of a set"),
        (Global(), "something outlives a task that isn't state"),
        (Attribute(), "something outlives a task that isn't state"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Told) else "",
)
def test_what_does_not_depend_on_rows_and_state_alone_is_found(process: Told, why: str) -> None:
    with pytest.raises(AssertionError, match=why) as failed:
        run(process, [0])
    said = str(failed.value)
    assert "What is put out in epoch" in said
    assert "  here      user='" in said
    assert "  in peace  user='" in said
    assert "\nOnce more: seeds=[" in said


def test_user_code_that_raises_is_told_with_the_line_that_repeats_it() -> None:
    with pytest.raises(AssertionError) as failed:
        run(Raises(), [2, 1])
    said = str(failed.value)
    assert said.startswith("seed 2: The pipeline fails, because Raises.process raised ValueError")
    assert 'raise ValueError("too dear")' in said
    assert "Once more: seeds=[2]" in said
    assert "driver starts, partitions=" in said
    # As it says.
    with pytest.raises(AssertionError, match="seed 2: The pipeline fails"):
        run(Raises(), [2])


def test_one_seed_runs_in_this_process_where_a_debugger_sees_it() -> None:
    seen = []

    class Seen(Told):
        def say(self, rows: Sequence[Any]) -> object:
            seen.append(len(rows))
            return len(rows)

    run(Seen(), [1])
    assert sum(seen) >= 50


@pytest.mark.slow
class Last(hf.KeyedProcess):
    output = "user string, total double"
    total = hf.ValueState("double", default=0.0)
    latest = hf.ValueState("double")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        self.total.value += sum(row.price for row in rows)
        self.latest.value = rows[-1].price
        yield key.user, self.total.value


def test_states_that_are_not_declared_by_the_alphabet_are_what_they_are_in_peace() -> None:
    done = simulate(Last(), columns=COLUMNS, keys="user", rows=bought, seeds=[0])
    assert done.seeds == (0,)


def test_code_that_never_ends_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Told):
        def say(self, rows: Sequence[Any]) -> object:
            while os.getpid() != here:
                time.sleep(0.01)
            return len(rows)

    here = os.getpid()
    monkeypatch.setattr("holdfast.testing.under_faults._MOST_S", 15.0)
    with pytest.raises(AssertionError, match="it goes on after 15 s"):
        run(Endless(), [0])


@pytest.mark.slow
def test_the_same_seed_does_the_same() -> None:
    assert run(Cart(), [5], event_time="at") == run(Cart(), [5], event_time="at")


class Sums(hf.BatchProcess):
    output = "user string, total double"
    total = hf.ValueState("double", default=0.0)

    def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
        bounds = list(batch.offsets)
        prices = batch.rows.column("price").to_pylist()
        before = batch.state.column("total").to_pylist()
        totals = [
            (before[i] or 0.0) + sum(prices[bounds[i] : bounds[i + 1]])
            for i in range(len(bounds) - 1)
        ]
        users = batch.keys.column("user")
        return hf.BatchResult(
            state={"total": pa.array(totals)}, rows={"user": users, "total": pa.array(totals)}
        )


class Numbered(hf.Process):
    output = "n long, sku string"
    counts = hf.OperatorList("long")

    def process(self, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        n = sum(self.counts)
        for n, row in enumerate(rows, n + 1):  # noqa: B020
            yield n, row.sku
        self.counts.set([n])


@pytest.mark.parametrize(("process", "keys"), [(Sums(), "user"), (Numbered(), ())])
def test_other_kinds_of_processes(process: Any, keys: Any) -> None:
    done = run(process, [0], keys=keys)
    assert done.epochs > 3


@pytest.mark.slow
def test_pysparks_stateful_processor() -> None:
    streaming = pytest.importorskip("pyspark.sql.streaming")
    row = pytest.importorskip("pyspark.sql").Row

    class Counter(streaming.StatefulProcessor):  # type: ignore[misc, name-defined]
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Any, _: Any) -> Iterator[Any]:
            n = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
            self.count.update((n,))
            yield row(user=key[0], n=n)

        def close(self) -> None:
            pass

    assert run(Counter(), [0], output="user string, n long").epochs > 3


ROWS = [("ann", "kelp", 1.0, BEGIN)] * 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"process": Cart}, r"Cart is a class.*give Cart\(\)"),
        ({"process": Cart()}, "lives by event time"),
        ({"process": Numbered()}, "without keys"),
        ({"keys": "nobody"}, "have no column 'nobody'"),
        ({"keys": ()}, "names no column"),
        ({"event_time": "sku"}, "no timestamp column 'sku'"),
        ({"rows": [("ann",)]}, "a row has 1 values"),
        ({"seeds": []}, "are none"),
        ({"seeds": "10"}, "seeds='10' are none"),
        ({"seeds": 2.0}, "are none"),
        ({"rows": lambda _: [("ann", "kelp", time.time(), BEGIN)]}, "makes others each time"),
        ({"watermark_delay": "soon"}, "watermark_delay"),
    ],
)
def test_what_cannot_be_simulated_is_said(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"process": Clock(), "seeds": 1, "rows": ROWS, **change}
    with pytest.raises(hf.InputError, match=said):
        run(given.pop("process"), given.pop("seeds"), **given)


def test_what_cannot_be_sent_to_another_process_is_said() -> None:
    class Holds(Told):
        def __init__(self) -> None:
            self.held = threading.Lock()

    with pytest.raises(hf.InputError, match="Holds can't be sent to another Python process"):
        run(Holds(), 1, rows=ROWS)


def test_without_greenlets_it_says_what_to_install() -> None:
    check = (
        "import sys; sys.modules['greenlet'] = None\n"
        "import holdfast as hf\n"
        "class A(hf.KeyedProcess): output = 'k long'\n"
        "hf.testing.simulate(A(), columns='k long', keys='k', rows=[(1,)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], check=False, capture_output=True, text=True
    )
    assert "pip install 'holdfast[simulate]'" in done.stderr
    assert "ConfigurationError" in done.stderr
