"""A value of a nested type looks the same in the epoch that sets it and in every later one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import holdfast as hf
from holdfast.testing import ProcessorTester

PAIR = "struct<a:long,b:long>"


def both(x: dict[str, int], y: dict[str, int]) -> tuple[int, int]:
    return x["a"] + y["a"], max(x["b"], y["b"])


class Nested(hf.KeyedProcess):
    output = f"value {PAIR}, reduced {PAIR}, aggregated {PAIR}, shared {PAIR}"
    value = hf.ValueState(PAIR)
    reduced = hf.ReducingState(PAIR, both)
    aggregated = hf.AggregatingState(
        PAIR, create=lambda: (0, 0), add=lambda acc, n: (acc["a"] + n, max(acc["b"], n))
    )
    shared = hf.BroadcastState("string", PAIR)

    def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
        for row in rows:
            self.shared[row.name] = (row.n, row.n)

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            self.value.value = (row.n, row.n)
            self.reduced.add((row.n, row.n))
            self.aggregated.add(row.n)
        seen = (self.value.value, self.reduced.value, self.aggregated.value, self.shared["x"])
        assert all(isinstance(value, dict) for value in seen)
        yield seen


def test_tuples_given_for_structs_are_read_as_dicts_at_once_and_later() -> None:
    tester = ProcessorTester(
        Nested(), columns="k string, n long", keys="k", control_columns="name string, n long"
    )
    first = tester.process([("k", 2), ("k", 3)], control=[("x", 7)])
    assert first == [
        {
            "value": {"a": 3, "b": 3},
            "reduced": {"a": 5, "b": 3},
            "aggregated": {"a": 5, "b": 3},
            "shared": {"a": 7, "b": 7},
        }
    ]
    second = tester.process([("k", 4)])
    assert second == [
        {
            "value": {"a": 4, "b": 4},
            "reduced": {"a": 9, "b": 4},
            "aggregated": {"a": 9, "b": 4},
            "shared": {"a": 7, "b": 7},
        }
    ]
