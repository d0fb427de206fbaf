"""Expiry of values: by either clock, for values of any type, and what is left of a row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from holdfast.state.expiry import TableClock, expire
from holdfast.state.schema import Column, TableSchema

KEY = (Column(1, "user", pa.string()),)
VALUES: dict[pa.DataType, Any] = {
    pa.int64(): 7,
    pa.string(): "text",
    pa.bool_(): False,
    pa.struct([("a", pa.int64())]): {"a": None},
    pa.list_(pa.string()): [],
    pa.map_(pa.string(), pa.int64()): [("x", 1)],
    pa.decimal128(10, 2): None,
}


def schema_of(*values: Column) -> TableSchema:
    return TableSchema("process.values", KEY, values)


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_a_value_of_any_type_goes_when_its_time_has_come(kind: pa.DataType) -> None:
    schema = schema_of(Column(2, "v", kind, 3, "processing"), Column(3, "v.expires", pa.int64()))
    value = VALUES[kind]
    values = [pa.array([value] * 4, kind), pa.array([99, 100, 101, None], pa.int64())]
    found = expire(schema, values, TableClock(100))
    assert found is not None
    assert found.values[0].to_pylist() == [None, None, value, value]
    assert found.values[1].to_pylist() == [None, None, 101, None]
    assert found.values[0].type == kind
    assert found.dead.tolist() == [True, True, False, False]


def test_a_row_lives_as_long_as_it_has_any_value() -> None:
    schema = schema_of(
        Column(2, "a", pa.int64(), 3, "processing"),
        Column(3, "a.expires", pa.int64()),
        Column(4, "b", pa.int64(), 5, "event"),
        Column(5, "b.expires", pa.int64()),
        Column(6, "timers.event", pa.list_(pa.int64())),
    )
    values = [
        pa.array([1, 1, 1, None]),
        pa.array([10, 10, 10, None], pa.int64()),
        pa.array([2, 2, None, None]),
        pa.array([10, 20, None, None], pa.int64()),
        pa.array([None, None, [5], None], pa.list_(pa.int64())),
    ]
    both = expire(schema, values, TableClock(10, 15))
    assert both is not None
    assert both.dead.tolist() == [True, False, False, False]
    assert both.values[2].to_pylist() == [None, 2, None, None]
    one = expire(schema, values, TableClock(10))
    assert one is not None
    assert one.values[2].to_pylist() == [2, 2, None, None]
    assert one.dead.tolist() == [False, False, False, False]


def test_values_may_share_an_expiry() -> None:
    schema = schema_of(
        Column(2, "a", pa.int64(), 4, "event"),
        Column(3, "b", pa.int64(), 4, "event"),
        Column(4, "expires", pa.int64()),
    )
    values = [pa.array([1, 2]), pa.array([None, 3], pa.int64()), pa.array([5, 6])]
    found = expire(schema, values, TableClock(0, 5))
    assert found is not None
    assert [v.to_pylist() for v in found.values] == [[None, 2], [None, 3], [None, 6]]
    assert found.dead.tolist() == [True, False]


def test_nothing_expires_without_a_clock_or_before_its_time() -> None:
    schema = schema_of(Column(2, "v", pa.int64(), 3, "event"), Column(3, "expires", pa.int64()))
    values = [pa.array([1]), pa.array([100])]
    assert expire(schema, values, None) is None
    assert expire(schema, values, TableClock(10**9)) is None
    assert expire(schema, values, TableClock(10**9, 99)) is None
    assert expire(schema, [v.slice(0, 0) for v in values], TableClock(0, 100)) is None


def test_a_row_that_never_had_a_value_stays() -> None:
    schema = schema_of(
        Column(2, "v", pa.int64(), 3, "processing"), Column(3, "expires", pa.int64())
    )
    values = [pa.array([None, 1], pa.int64()), pa.array([None, 1], pa.int64())]
    found = expire(schema, values, TableClock(5))
    assert found is not None
    assert found.dead.tolist() == [False, True]
