"""Bad programs and bad values: what is said, and to whom it happened. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import HoldfastError, InputError, ProcessingError
from holdfast.operators.process.declare import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    declared_states,
)
from holdfast.operators.process.keyed import KeyedProcess
from tests.operators.process_harness import Harness

WALL: Any = "wall"
KEYS = (("k", pa.string()), ("n", pa.int32()))


def running(process: type[KeyedProcess], folder: Path) -> Harness:
    return Harness(process, folder, KEYS, (*KEYS, ("a", pa.int64())))


def failure(body: Callable[[Any, Any], Any], folder: Path, **more: Any) -> HoldfastError:
    """What comes of code that runs for key (k='it', n=3) in epoch 1."""

    def process(self: Any, key: Any, rows: Sequence[Any], ctx: Any) -> Any:
        return body(self, ctx) if key.k == "it" else None

    harness = running(
        type("Bad", (KeyedProcess,), {"output": "s string, n long", "process": process, **more}),
        folder,
    )
    harness.run([("fine", 1, 0)], 1000)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(HoldfastError) as raised:
        harness.run([("fine", 1, 0), ("it", 3, 0), ("other", 1, 0)], 1001)
    after = {path: path.read_bytes() for path in folder.iterdir()}
    assert after == before, "a failed attempt leaves nothing"
    return raised.value


class Base(KeyedProcess):
    output = "s string"
    total = ValueState("long")


def test_a_state_declared_twice_is_named() -> None:
    class Twice(Base):
        total = ValueState("long")

    with pytest.raises(InputError, match="Twice declares state 'total' twice"):
        declared_states(Twice)

    shared = ValueState("long")

    class Shared(KeyedProcess):
        first = shared
        second = shared

    with pytest.raises(InputError, match="one state twice: as 'first' and as 'second'"):
        declared_states(Shared)


def test_a_state_can_not_have_the_name_of_a_key(tmp_path: Path) -> None:
    class Clash(KeyedProcess):
        output = "s string"
        k = ValueState("long")

    with pytest.raises(InputError, match="two columns named 'k'"):
        running(Clash, tmp_path).run([], 1)


@pytest.mark.parametrize("kind", ["array<int>", "map<string,int>", "struct<a:int,b:array<int>>"])
def test_a_type_that_can_not_name_entries(kind: str) -> None:
    with pytest.raises(InputError, match="can't be found by " + kind[:5]):
        MapState(kind, "long")


@pytest.mark.parametrize(
    ("kind", "default", "message"),
    [
        ("long", "x", "default 'x' is no bigint"),
        ("long", 1.5, "default 1.5 is no bigint"),
        ("int", 2**40, "default 1099511627776 is no int"),
        ("string", 5, "default 5 is no string"),
        ("struct<a:int>", {"b": 1}, r"is no struct<a:int>.*fields \['b'\]"),
        ("array<int>", ["x"], "is no array<int>"),
        ("timestamp", "2026-01-01", "is no timestamp"),
    ],
)
def test_a_default_of_the_wrong_type(kind: str, default: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ValueState(kind, default=default)


@pytest.mark.parametrize("ttl", [0, 0.0, "0 s", "0 days", 0.0001])
def test_a_ttl_of_zero(ttl: Any) -> None:
    for declare in (
        lambda: ValueState("long", ttl=ttl),
        lambda: ListState("long", ttl=ttl),
        lambda: MapState("long", "long", ttl=ttl),
        lambda: ReducingState("long", ttl=ttl),
        lambda: AggregatingState("long", create=int, add=max, ttl=ttl),
    ):
        with pytest.raises(InputError, match=f"a ttl of {ttl!r} would forget every value"):
            declare()


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: ValueState("long", ttl=-1), "can't be negative"),
        (lambda: ValueState("long", ttl="soon"), "ttl can't be 'soon'"),
        (lambda: ValueState("long", ttl=1, ttl_clock=WALL), "ttl_clock can't be 'wall'"),
        (lambda: MapState("long", "long", ttl=1, ttl_on=WALL), "ttl_on can't be 'wall'"),
        (lambda: ReducingState("long", cast(Any, "avg")), "merge can't be 'avg'"),
        (lambda: ValueState("lonng"), "no type 'lonng'"),
        (lambda: ValueState(int), "int .* is no type"),
    ],
)
def test_other_declarations_that_make_no_sense(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        declare()


def test_a_process_must_say_what_it_puts_out(tmp_path: Path) -> None:
    class Silent(KeyedProcess):
        pass

    with pytest.raises(InputError, match="Silent doesn't say which columns"):
        running(Silent, tmp_path).run([], 1)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("a", "b"), r"field 'n' should be bigint, but is 'b' \(str\)"),
        (("a", 1.5), r"field 'n' should be bigint, but is 1.5 \(float\)"),
        (("a", np.float64(2)), r"field 'n' should be bigint, but is .*2.0.* \(float64\)"),
        (("a", 2**63), r"field 'n' should be bigint, but is 9223372036854775808 \(int\): .*too"),
        ({"s": 5, "n": 1}, r"field 's' should be string, but is 5 \(int\)"),
        ({"s": "a"}, "no field 'n'"),
        ({"s": "a", "n": 1, "more": 2}, "a field 'more' too many"),
        (("a",), "it has 1 fields, not 2"),
        ("ab", r"'ab' \(str\) is no row; yield a dict or a tuple"),
        (7, r"7 \(int\) is no row"),
        (None, r"None \(NoneType\) is no row"),
    ],
)
def test_a_row_that_does_not_fit_the_output(row: Any, problem: str, tmp_path: Path) -> None:
    error = failure(lambda p, c: [("fine", 1), row], tmp_path)
    assert isinstance(error, ProcessingError)
    assert error.message.startswith("Bad put out a row for key (k='it', n=3) in epoch 1 that")
    assert re.search(problem, error.message), error.message
    assert error.hint == "the output is declared as s string, n bigint"


def test_a_row_of_nested_columns_that_does_not_fit(tmp_path: Path) -> None:
    nested = {"output": "s struct<a:long,b:array<int>>"}
    for value in ({"a": 1.5}, {"a": 1, "b": [1.5]}, {"a": 1, "c": 2}, {"b": ["x"]}, "text"):
        error = failure(_putting_out((value,)), tmp_path, **nested)
        assert "field 's' should be struct<a:bigint,b:array<int>>, but is" in error.message
        assert repr(value) in error.message


@pytest.mark.parametrize(
    "value", [10**9, -(10**8), np.int64(10**8), Decimal("100000000.5"), 10**40]
)
def test_a_number_of_too_many_digits(value: Any, tmp_path: Path) -> None:
    def keep(process: Any, ctx: Any) -> None:
        process.total.value = value

    def name(process: Any, ctx: Any) -> None:
        process.seen[value] = 1

    given = rf"{re.escape(repr(value))} \({type(value).__name__}\)"
    states = {
        "total": ValueState("decimal(10,2)"),
        "seen": MapState("decimal(10,2)", "long"),
        "many": ListState("array<decimal(10,2)>"),
    }
    for body, said in (
        (keep, rf"state 'total' was given {given}, which is no decimal\(10,2\): "),
        (name, rf"an entry was called {given}, which is no decimal\(10,2\): "),
        (lambda p, c: p.many.append([value]), r"state 'many' was given .*: "),
        (_putting_out((value,)), rf"field 'd' should be decimal\(10,2\), but is {given}: "),
    ):
        error = failure(body, tmp_path, output="d decimal(10,2)", **states)
        assert re.search(said + "it has too many digits", error.message), error.message


def test_what_else_is_no_decimal_is_not_called_too_long(tmp_path: Path) -> None:
    error = failure(_putting_out((Decimal("1.234"),)), tmp_path, output="d decimal(10,2)")
    assert "but is Decimal('1.234') (Decimal): Rescaling" in error.message
    for no_number in (Decimal("NaN"), Decimal("Infinity"), True):
        error = failure(_putting_out((no_number,)), tmp_path, output="d decimal(10,2)")
        assert "digits" not in error.message


def test_a_row_that_does_not_fit_a_side_output(tmp_path: Path) -> None:
    sides = {"side_outputs": {"notes": "n long"}}
    error = failure(lambda p, c: c.side_output("notes", ("x",)), tmp_path, **sides)
    assert "key (k='it', n=3)" in error.message
    assert "output 'notes': field 'n' should be bigint, but is 'x' (str)" in error.message
    error = failure(lambda p, c: c.side_output("nots", (1,)), tmp_path, **sides)
    assert isinstance(error, InputError)
    assert "there is no side output 'nots'" in error.message


def explode(number: int) -> None:
    raise ValueError(f"can't do {number}")


def test_code_that_raises_shows_its_own_traceback_key_and_epoch(tmp_path: Path) -> None:
    error = failure(lambda p, c: explode(42), tmp_path)
    assert isinstance(error, ProcessingError)
    assert isinstance(error.__cause__, ValueError)
    first, *rest = error.message.splitlines()
    assert first == ("Bad.process raised ValueError for key (k='it', n=3) in epoch 1: can't do 42")
    text = "\n".join(rest)
    assert 'raise ValueError(f"can\'t do {number}")' in text
    assert "holdfast/operators" not in text, "only the user's own frames"


def test_a_generator_that_raises_after_some_rows(tmp_path: Path) -> None:
    def body(process: Any, ctx: Any) -> Iterator[Any]:
        yield "a", 1
        explode(1)

    error = failure(body, tmp_path)
    assert "for key (k='it', n=3) in epoch 1: can't do 1" in error.message


def test_a_timer_that_raises(tmp_path: Path) -> None:
    def on_timer(self: Any, key: Any, when: datetime, ctx: Any) -> None:
        explode(2)

    error = failure(lambda p, c: c.timers.set(5, "processing"), tmp_path, on_timer=on_timer)
    assert "Bad.on_timer raised ValueError for key (k='it', n=3) in epoch 1" in error.message


def test_open_and_close_that_raise(tmp_path: Path) -> None:
    class Opening(KeyedProcess):
        output = "s string"

        def open(self, ctx: Any) -> None:
            explode(3)

    with pytest.raises(ProcessingError, match=r"Opening.open raised ValueError in epoch 0: can't"):
        running(Opening, tmp_path).run([("a", 1, 0)], 1)

    class Closing(KeyedProcess):
        output = "s string"

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> None:
            if rows[0].a:
                explode(5)

        def close(self) -> None:
            explode(4)

    with pytest.raises(ProcessingError, match=r"Closing.close raised ValueError in epoch 0: can't"):
        running(Closing, tmp_path).run([("a", 1, 0)], 1)
    with pytest.raises(ProcessingError, match=r"Closing.process raised ValueError .*: can't do 5"):
        running(Closing, tmp_path).run([("a", 1, 1)], 1)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("long", "x", "given 'x' (str), which is no bigint"),
        ("long", 1.5, "given 1.5 (float), which is no bigint"),
        ("long", True, "given True (bool), which is no bigint"),
        ("int", 2**31, "given 2147483648 (int), which is no int"),
        ("double", "1", "given '1' (str), which is no double"),
        ("string", 5, "given 5 (int), which is no string"),
        ("boolean", 1, "given 1 (int), which is no boolean"),
        ("date", "x", "given 'x' (str), which is no date"),
        ("array<int>", [1.5], "given [1.5] (list), which is no array<int>"),
        ("struct<a:int>", {"b": 1}, "given {'b': 1} (dict), which is no struct<a:int>"),
        ("map<string,int>", {"a": "x"}, "given {'a': 'x'} (dict), which is no map<string,int>"),
    ],
)
def test_a_value_that_does_not_fit_its_state(
    kind: str, value: Any, words: str, tmp_path: Path
) -> None:
    states = {
        "one": (ValueState(kind), lambda s: setattr(s, "value", value)),
        "brief": (ValueState(kind, ttl=1), lambda s: setattr(s, "value", value)),
        "merged": (ReducingState(kind, max), lambda s: s.add(value)),
        "kept": (AggregatingState(kind, create=lambda: None, add=lambda a, x: x), _adding(value)),
        "some": (ListState(kind), lambda s: s.append(value)),
        "more": (ListState(kind), lambda s: s.set([value])),
        "named": (MapState("string", kind), lambda s: s.update({"x": value})),
    }
    for name, (state, act) in states.items():
        state.name = name
        error = failure(_on_state(name, act), tmp_path, **{name: state})
        assert "k='it', n=3" in error.message
        assert f"{name!r} " in error.message or f".{name}" in error.message
        assert words in error.message, error.message


def _putting_out(row: Any) -> Callable[[Any, Any], Any]:
    return lambda process, ctx: [row]


def _on_state(name: str, act: Callable[[Any], None]) -> Callable[[Any, Any], Any]:
    return lambda process, ctx: act(getattr(process, name))


def _adding(value: Any) -> Callable[[Any], None]:
    return lambda state: state.add(value)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (-1, "-1, which is before 1970"),
        (datetime(1969, 12, 31), "1969, 12, 31, 0, 0), which is before 1970"),
        (10**18, "1000000000000000000, which is behind the year 9999"),
        ("2026-01-01", "'2026-01-01' (str)"),
        (1.5, "1.5 (float)"),
        (True, "True (bool)"),
        (None, "None (NoneType)"),
        (date(2026, 1, 1), "datetime.date(2026, 1, 1) (date)"),
    ],
)
def test_a_timer_for_no_time(when: Any, words: str, tmp_path: Path) -> None:
    error = failure(
        lambda p, c: c.timers.set(when, "processing"), tmp_path, on_timer=lambda *_: None
    )
    assert isinstance(error, InputError)
    assert error.message.startswith("Bad.process, for key (k='it', n=3) in epoch 1: a timer can't")
    assert words in error.message


def test_timers_that_the_process_can_not_have(tmp_path: Path) -> None:
    error = failure(lambda p, c: c.timers.set(5, "processing"), tmp_path)
    assert "the process has no on_timer" in error.message
    timed = {"on_timer": lambda *_: None}
    error = failure(lambda p, c: c.timers.set(5), tmp_path, **timed)
    assert "event-time timers need a watermark, and the stream has none" in error.message
    error = failure(lambda p, c: c.timers.list("wall"), tmp_path, **timed)
    assert "there is no clock 'wall'" in error.message


def test_state_belongs_to_a_key(tmp_path: Path) -> None:
    class Early(KeyedProcess):
        output = "s string"
        total = ValueState("long")
        log = ListState("long")

        def open(self, ctx: Any) -> None:
            self.log.append(1)

    with pytest.raises(InputError, match=r"Early.open, in epoch 0: state 'log' was used outside"):
        running(Early, tmp_path).run([("a", 1, 0)], 1)
    with pytest.raises(InputError, match="state 'total' was used outside of its process"):
        Early.total.value += 1


def test_assigning_to_a_state_instead_of_its_value(tmp_path: Path) -> None:
    error = failure(lambda p, c: setattr(p, "total", 5), tmp_path, total=ValueState("long"))
    assert "Bad assigned to self.total, which is its state" in error.message


def test_a_default_is_not_shared_between_keys(tmp_path: Path) -> None:
    class Gathering(KeyedProcess):
        output = "s string"
        seen = ValueState("array<long>", default=[])

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
            seen = self.seen.value
            seen.append(rows[0].a)
            self.seen.value = seen
            yield (str(self.seen.value),)

    harness = running(Gathering, tmp_path)
    output = harness.run([("a", 1, 1), ("b", 1, 2), ("c", 1, 3)], 1).output
    assert sorted(row["s"] for row in output) == ["[1]", "[2]", "[3]"]
