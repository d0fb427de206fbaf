"""Values that a processor gives, as state holds them and gives them back."""

from __future__ import annotations

import math
import struct
from collections import namedtuple
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from holdfast.operators.process.convert import to_arrow, to_python
from holdfast.spark.stateful.errors import PySparkRuntimeError
from holdfast.spark.stateful.values import Codec
from holdfast.types import parse_schema

UTC = timezone.utc
NOON = datetime(2024, 2, 3, 12, 30, 15, 123456)


class Point(NamedTuple):
    x: int
    y: float


Pair: Any = namedtuple("Pair", "x y")


def codec(fields: str) -> Codec:
    return Codec("total", parse_schema(fields), "Error updating value state")


def stored(fields: str, value: Any) -> tuple[Any, ...]:
    """A value after it was written to Arrow and read again."""
    own = codec(fields)
    kind = pa.struct(list(own.schema))
    (held,) = to_python(to_arrow([own.encode(value)], kind))
    assert own.decode(held) == own.decode(own.encode(value)) or "nan" in repr(held)
    return own.decode(held)


TAKEN: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("n int", (np.int64(3),), (3,)),
    ("n int", [3], (3,)),
    ("n int", (3.0,), (3,)),
    ("n int", (math.nan,), (None,)),
    ("n int", (None,), (None,)),
    ("n byte, m long", (127, -(2**63)), (127, -(2**63))),
    ("x double", (3,), (3.0,)),
    ("x double", (np.float32(0.5),), (0.5,)),
    ("x double", (Decimal("0.25"),), (0.25,)),
    ("x float", (0.5,), (0.5,)),
    ("b boolean", (np.bool_(True),), (True,)),
    ("s string", (np.str_("x"),), ("x",)),
    ("s string", (5,), ("5",)),
    ("s string", (True,), ("true",)),
    ("s string", (1.5,), ("1.5",)),
    ("s string", (Decimal("1.50"),), ("1.50",)),
    ("raw binary", ("x",), (b"x",)),
    ("raw binary", ("a\udcff",), (b"a\xff",)),
    ("raw binary", (bytearray(b"x"),), (b"x",)),
    ("m decimal(10,2)", (Decimal("1.235"),), (Decimal("1.24"),)),
    ("m decimal(10,2)", (7,), (Decimal("7.00"),)),
    ("d date", (NOON,), (date(2024, 2, 3),)),
    ("d date", (pd.Timestamp(NOON),), (date(2024, 2, 3),)),
    ("t timestamp_ntz", (pd.Timestamp(NOON),), (NOON,)),
    ("t timestamp_ntz", (NOON.replace(tzinfo=UTC),), (NOON,)),
    ("t timestamp", (NOON,), (NOON,)),
    ("t timestamp", (pd.Timestamp(NOON),), (NOON,)),
    ("t timestamp", (pd.NaT,), (None,)),
    ("t timestamp", (np.datetime64("2024-02-03T12:30:15.123456"),), (NOON,)),
    ("x int, y double", Point(1, 0.5), (1, 0.5)),
    ("x int, y double", Pair(np.int8(1), 2), (1, 2.0)),
    ("x int, y double", Row(y=1, x=0.5), (1, 0.5)),
    ("p struct<x:int,y:double>", (Point(1, 0.5),), (Row(x=1, y=0.5),)),
    ("p struct<x:int,y:double>", ({"y": 0.5},), (Row(x=None, y=0.5),)),
    ("p struct<x:int,t:timestamp>", (Row(x=1, t=NOON),), (Row(x=1, t=NOON),)),
    ("many array<int>", (np.array([1, 2]),), ([1, 2],)),
    ("many array<int>", ((1, None),), ([1, None],)),
    ("many array<timestamp>", ([NOON, None],), ([NOON, None],)),
    ("by map<string,timestamp>", ({"a": NOON, "b": None},), ({"a": NOON, "b": None},)),
    ("by map<string,int>", ([("a", np.int32(1))],), ({"a": 1},)),
    ("many array<struct<x:int>>", ([Row(x=1), (2,)],), ([Row(x=1), Row(x=2)],)),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("n int", ("x",), r"field 'n' of state 'total' is int, but was given 'x' \(str\)"),
    ("n int", (1.5,), "it is no whole number"),
    ("n int", (2**31,), "it is too large"),
    ("n int", (True,), "it is no number"),
    ("a int, b byte", (1, 128), "field 'b' of state 'total' is tinyint"),
    ("x double", ("1",), "it is no number"),
    ("b boolean", (1,), "neither True nor False"),
    ("s string", (b"x",), "it is no string"),
    ("s string", (1e20,), "it is no string"),
    ("raw binary", (5,), "it is no bytes"),
    ("m decimal(4,2)", (Decimal(100),), "too many digits"),
    ("m decimal(4,2)", (0.5,), "it is no Decimal"),
    ("t timestamp", (5,), "it is no date"),
    ("t timestamp", (date(2024, 1, 1),), "it is no datetime"),
    ("d date", ("2024-01-01",), "it is no date"),
    ("p struct<x:int,y:int>", ((1,),), "it has 1 fields, not 2"),
    ("many array<int>", (5,), "is array<int>, but was given 5"),
    ("many array<int>", (["x"],), "it is no number"),
]


@pytest.mark.parametrize(("fields", "given_value", "back"), TAKEN)
def test_values_are_taken_for_what_they_hold(
    fields: str, given_value: Any, back: tuple[Any, ...]
) -> None:
    found = stored(fields, given_value)
    assert found == back
    assert [type(v).__name__ for v in found] == [type(v).__name__ for v in back]
    for value in found:
        if isinstance(value, Row):
            assert value.__fields__ is not None


@pytest.mark.parametrize(("fields", "given_value", "problem"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_field(
    fields: str, given_value: Any, problem: str
) -> None:
    with pytest.raises(PySparkRuntimeError, match=problem) as caught:
        codec(fields).encode(given_value)
    assert str(caught.value).startswith("Error updating value state: ")


def test_a_value_needs_all_its_fields() -> None:
    for value in ((), (1, 2)):
        with pytest.raises(PySparkRuntimeError) as caught:
            codec("n int").encode(value)
        assert caught.value.getCondition() == "STRUCT_ARRAY_LENGTH_MISMATCH"
        assert f"1 fields are required while {len(value)} values" in str(caught.value)


def test_what_is_no_tuple_is_pythons_own_error() -> None:
    for value in (None, 5):
        with pytest.raises(TypeError, match="is not iterable"):
            codec("n int").encode(value)


def test_rows_carry_the_names_of_the_schema() -> None:
    own = codec("n int, s string")
    row = own.decode_row(own.encode((1, "x")))
    assert isinstance(row, Row)
    assert (row.n, row["s"], row.asDict()) == (1, "x", {"n": 1, "s": "x"})


single = st.floats(width=32, allow_nan=False)
moments = st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1))


@given(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | single,
        st.none() | st.text(),
        st.none() | st.binary(),
        st.none() | moments,
        st.none() | st.dates(),
        st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
        st.none() | st.dictionaries(st.text(max_size=3), st.none() | single, max_size=3),
    )
)
def test_values_come_back_as_they_were(value: tuple[Any, ...]) -> None:
    fields = (
        "l long, f float, s string, b binary, t timestamp_ntz, d date, many array<int>, "
        "by map<string,float>"
    )
    assert stored(fields, value) == value


@given(st.integers(-(2**40), 2**40))
def test_timestamps_mean_the_same_moment_in_any_zone(seconds: int) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=seconds)
    zone = timezone(timedelta(hours=5, minutes=30))
    own = codec("t timestamp")
    assert own.encode((moment,)) == own.encode((moment.astimezone(zone),))
    (back,) = own.decode(own.encode((moment,)))
    assert back.tzinfo is None
    assert back.astimezone(UTC) == moment


def test_single_precision_is_kept() -> None:
    (back,) = stored("f float", (0.1,))
    assert back == struct.unpack("f", struct.pack("f", 0.1))[0]
