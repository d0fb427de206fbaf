"""A program that changes between two starts: what its state becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import ConfigurationError
from holdfast.operators.process import entries
from holdfast.operators.process.declare import (
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from holdfast.operators.process.evolution import can_become
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.types import parse_type
from tests.operators.process_harness import Harness

KEYS = (("k", pa.string()),)
COLUMNS = (*KEYS, ("do", pa.string()))


def program(**states: State) -> type[KeyedProcess]:
    """A process with these states that runs the statements of its rows."""

    def process(self: Any, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            scope = {"self": self, "ctx": ctx}
            if row.do.startswith("="):
                yield (repr(eval(row.do[1:], scope)),)
            else:
                exec(row.do, scope)

    for name, state in states.items():
        state.name = name
    body = {"output": "seen string", "process": process, **states}
    return type("Program", (KeyedProcess,), body)


def started(folder: Path, **states: State) -> Harness:
    return Harness(program(**states), folder, KEYS, COLUMNS)


def do(harness: Harness, *statements: str, key: str = "a") -> list[Any]:
    now = 1000 + len(harness.records)
    output = harness.run([(key, statement) for statement in statements], now).output
    return [eval(row["seen"]) for row in output]


def test_a_state_that_is_added_is_empty_and_the_others_stay(tmp_path: Path) -> None:
    harness = started(tmp_path, n=ValueState("long"))
    do(harness, "self.n.value = 7")
    harness.restart(
        program(n=ValueState("long"), m=MapState("string", "long"), s=ValueState("string"))
    )
    seen = do(harness, "=self.n.value", "=self.s.value", "=len(self.m)", "self.m['x'] = 1")
    assert seen == [7, None, 0]
    assert do(harness, "=dict(self.m)") == [{"x": 1}]


def test_a_state_that_is_removed_is_gone_and_comes_back_empty(tmp_path: Path) -> None:
    both = {"n": ValueState("long"), "m": MapState("string", "long"), "l": ListState("long")}
    harness = started(tmp_path, **both)
    do(harness, "self.n.value = 7", "self.m['x'] = 1", "self.l.append(5)")
    harness.restart(program(l=ListState("long")))
    assert do(harness, "=list(self.l)") == [[5]]
    harness.restart(program(**both))
    assert do(harness, "=self.n.value", "=dict(self.m)", "=list(self.l)") == [None, {}, [5]]


def test_a_new_state_never_gets_what_a_removed_one_held(tmp_path: Path) -> None:
    harness = started(tmp_path, a=ValueState("long"), b=ValueState("long"))
    do(harness, "self.a.value = 1", "self.b.value = 2")
    harness.restart(program(a=ValueState("long")))
    assert do(harness, "=self.a.value") == [1]
    harness.restart(program(a=ValueState("long"), c=ValueState("long")))
    assert do(harness, "=self.a.value", "=self.c.value") == [1, None]
    harness.restart(program(c=ValueState("long"), a=ValueState("long"), b=ValueState("string")))
    assert do(harness, "=self.a.value", "=self.b.value") == [1, None]


def test_types_may_become_wider_everywhere(tmp_path: Path) -> None:
    harness = started(
        tmp_path,
        n=ValueState("int"),
        r=ReducingState("float"),
        l=ListState("struct<a:int,b:string>"),
        m=MapState("string", "array<short>"),
    )
    do(
        harness,
        "self.n.value = 7",
        "self.r.add(0.5)",
        "self.l.append((1, 'x'))",
        "self.m['k'] = [1, 2]",
    )
    harness.restart(
        program(
            n=ValueState("long"),
            r=ReducingState("double"),
            l=ListState("struct<b:string,c:date,a:long>"),
            m=MapState("string", "array<double>"),
        )
    )
    do(harness, "self.n.value += 2**40", "self.l.append(('y', None, 2**40))")
    seen = do(harness, "=self.n.value", "=self.r.value", "=list(self.l)", "=dict(self.m)")
    assert seen == [
        7 + 2**40,
        0.5,
        [{"b": "x", "c": None, "a": 1}, {"b": "y", "c": None, "a": 2**40}],
        {"k": [1.0, 2.0]},
    ]
    harness.compact()
    assert do(harness, "=len(self.l)", "=self.n.value") == [2, 7 + 2**40]


@pytest.mark.parametrize("large", [256, 0], ids=["fetched", "entry by entry"])
def test_whole_numbers_that_name_entries_may_become_wider(
    large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "LARGE", large)
    harness = started(tmp_path, m=MapState("int", "long"))
    do(harness, "self.m[1] = 10", "self.m[-2] = 20")
    harness.restart(program(m=MapState("long", "long")))
    do(harness, "self.m[1] += 1", "self.m[2**40] = 30")
    seen = do(harness, "=self.m.get(1)", "=self.m.get(-2)", "=self.m.get(2**40)", "=len(self.m)")
    assert seen == [11, 20, 30, 3]


def test_a_time_to_live_may_be_added_and_taken_away(tmp_path: Path) -> None:
    harness = started(tmp_path, n=ValueState("long"), m=MapState("string", "long"))
    do(harness, "self.n.value = 7", "self.m['x'] = 1")
    ttl = {"n": ValueState("long", ttl=0.001), "m": MapState("string", "long", ttl=0.001)}
    harness.restart(program(**ttl))
    assert do(harness, "=self.n.value", "=dict(self.m)") == [7, {"x": 1}]
    do(harness, "self.n.value = 8", "self.m['y'] = 2")
    assert do(harness, "=self.n.value", "=dict(self.m)") == [None, {"x": 1}]
    do(harness, "self.n.value = 9")
    harness.restart(program(n=ValueState("long"), m=MapState("string", "long")))
    assert do(harness, "=self.n.value")[0] in (9, None)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (ValueState("long"), MapState("string", "long"), "'x' was a value .* and is now a map"),
        (ListState("long"), ValueState("long"), "'x' was a list .* and is now a value"),
        (MapState("string", "long"), ListState("long"), "'x' was a map .* and is now a list"),
        (ValueState("long"), ValueState("int"), r"'x' was bigint .* is now int"),
        (ValueState("string"), ValueState("long"), r"'x' was string .* is now bigint"),
        (ListState("double"), ListState("float"), r"'value' was double .* is now float"),
        (
            MapState("string", "long"),
            MapState("long", "long"),
            r"'map_key' was string .* is now bigint",
        ),
        (MapState("int", "long"), MapState("double", "long"), r"'map_key' was int .* now double"),
        (
            MapState("struct<a:int>", "long"),
            MapState("struct<a:long>", "long"),
            "'map_key' was struct<a:int> .* now struct<a:bigint>",
        ),
    ],
)
def test_another_kind_and_a_narrower_type_are_refused(
    before: State, after: State, message: str, tmp_path: Path
) -> None:
    harness = started(tmp_path, x=before)
    do(harness)
    with pytest.raises(ConfigurationError, match=message):
        harness.restart(program(x=after))


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("tinyint", "smallint", True),
        ("int", "double", True),
        ("long", "double", False),
        ("int", "float", False),
        ("date", "timestamp_ntz", True),
        ("timestamp", "timestamp_ntz", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("array<int>", "array<long>", True),
        ("map<string,int>", "map<string,long>", True),
        ("map<int,int>", "map<long,int>", False),
        ("struct<a:int,b:int>", "struct<b:long,c:string>", True),
        ("struct<a:long>", "struct<a:int>", False),
        ("struct<a:int>", "array<int>", False),
        ("string", "binary", False),
    ],
)
def test_what_may_become_what(old: str, new: str, may: bool) -> None:
    assert can_become(parse_type(old), parse_type(new)) is may
