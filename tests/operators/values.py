"""Hypothesis strategies for values of every type, and for epochs of rows."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.operators.folding import Triple

TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5]


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    # Decimal's context has 28 digits, so the point is moved without arithmetic.
    return st.integers(-limit, limit).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
    )


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, few enough that they repeat."""
    if pa.types.is_decimal128(kind):
        return decimals(kind.precision, kind.scale) | st.just(Decimal(0).scaleb(-kind.scale))
    return _VALUES[kind]


_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): whole(8),
    pa.int16(): whole(16) | st.integers(-2, 2),
    pa.int32(): whole(32) | st.integers(-2, 2),
    pa.int64(): whole(64) | st.integers(-2, 2),
    pa.float32(): st.floats(width=32) | st.sampled_from(SPECIAL),
    pa.float64(): st.floats() | st.sampled_from(SPECIAL),
    pa.string(): st.text(max_size=3) | st.sampled_from(["", "a", "ab", "é", "z", "\U0001f600"]),
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us"): TIMES,
    pa.timestamp("us", "UTC"): TIMES.map(lambda t: t.replace(tzinfo=timezone.utc)),
}
DECIMALS = [pa.decimal128(9, 2), pa.decimal128(20, 0), pa.decimal128(38, 18)]
TYPES: list[pa.DataType] = [*_VALUES, *DECIMALS]


@st.composite
def epochs_of(
    draw: st.DrawFn,
    value: st.SearchStrategy[Any],
    order: st.SearchStrategy[Any] | None = None,
    keys: int = 4,
) -> list[list[Triple]]:
    """Up to five epochs of rows (key, value or null, order or null)."""
    orders = st.none() if order is None else st.none() | order
    row = st.tuples(st.integers(0, keys - 1), st.none() | value, orders)
    return draw(st.lists(st.lists(row, max_size=12), max_size=5))


partitions = st.integers(1, 4)
