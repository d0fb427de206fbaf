from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from tests.operators.folding import Triple, aggregate, by_key, sum_type
from tests.operators.values import DECIMALS, decimals, epochs_of, partitions, whole

EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
WHOLE = [(pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 50)]
AVERAGED = [*DECIMALS[:2], pa.decimal128(38, 38), pa.decimal128(5, 5)]
finite = st.floats(-1e6, 1e6)


def present(pairs: list[tuple[Any, Any]]) -> list[Any]:
    return [value for value, _ in pairs if value is not None]


@given(epochs_of(whole(8)), partitions, st.booleans())
def test_count_adds_buffers(epochs: list[list[Triple]], p: int, combine: bool) -> None:
    assert aggregate("count", [], epochs, partitions=p, combine=combine) == by_key(epochs, len)


@given(st.sampled_from(WHOLE), st.data(), partitions, st.booleans())
def test_sums_of_whole_numbers_are_exact(
    typed: tuple[pa.DataType, int], data: st.DataObject, p: int, combine: bool
) -> None:
    kind, bits = typed
    epochs = data.draw(epochs_of(whole(bits)))
    expected = by_key(epochs, lambda pairs: sum(v) if (v := present(pairs)) else None)
    assert aggregate("sum", [kind], epochs, partitions=p, combine=combine) == expected


@given(epochs_of(whole(64) | st.sampled_from([2**63 - 1, -(2**63)]), keys=2))
def test_a_sum_beyond_64_bits_is_an_error_that_names_aggregate_and_key(
    epochs: list[list[Triple]],
) -> None:
    totals = {0: 0, 1: 0}
    overflows = set()
    for epoch in epochs:
        for key, value, _ in epoch:
            totals[key] += value or 0
        overflows |= {key for key, total in totals.items() if not -(2**63) <= total < 2**63}
        if overflows:
            break
    if overflows:
        with pytest.raises(InputError, match=r"ARITHMETIC_OVERFLOW.*'x': sum of key") as error:
            aggregate("sum", [pa.int64()], epochs)
        assert any(f"(key={key})" in str(error.value) for key in overflows)
    else:
        expected = by_key(epochs, lambda pairs: sum(v) if (v := present(pairs)) else None)
        assert aggregate("sum", [pa.int64()], epochs) == expected


@given(epochs_of(finite), partitions, st.booleans())
def test_sums_of_doubles_are_within_n_epsilon(
    epochs: list[list[Triple]], p: int, combine: bool
) -> None:
    def bounds(pairs: list[tuple[Any, Any]]) -> tuple[float, float] | None:
        values = present(pairs)
        error = len(values) * 2.0**-52 * math.fsum(map(abs, values))
        return (math.fsum(values), error) if values else None

    results = aggregate("sum", [pa.float64()], epochs, partitions=p, combine=combine)
    expected = by_key(epochs, bounds)
    assert results.keys() == expected.keys()
    for key, bound in expected.items():
        if bound is None:
            assert results[key] is None
        else:
            assert abs(results[key] - bound[0]) <= bound[1]


def test_special_doubles_add_up_as_in_java() -> None:
    rows: list[Triple] = [(0, math.inf, None), (0, -math.inf, None), (1, -0.0, None)]
    results = aggregate("sum", [pa.float64()], [rows])
    assert math.isnan(results[0])
    assert math.copysign(1, results[1]) == 1


@given(st.sampled_from(DECIMALS), st.data(), partitions, st.booleans())
def test_sums_of_decimals_are_exact_or_an_error(
    kind: pa.DataType, data: st.DataObject, p: int, combine: bool
) -> None:
    epochs = data.draw(epochs_of(decimals(kind.precision, kind.scale)))
    totals: dict[int, Decimal] = {}
    limit = EXACT.scaleb(Decimal(10 ** sum_type(kind).precision), -kind.scale)
    overflow = False
    for epoch in epochs:
        for key, value, _ in epoch:
            totals[key] = EXACT.add(totals.get(key, Decimal(0)), value or Decimal(0))
        overflow = overflow or any(total.copy_abs() >= limit for total in totals.values())
    if overflow:
        with pytest.raises(InputError, match="exceeds decimal128"):
            aggregate("sum", [kind], epochs, partitions=p)
        return
    results = aggregate("sum", [kind], epochs, partitions=p, combine=combine)
    nothing = by_key(epochs, lambda pairs: not present(pairs))
    assert results == {k: None if nothing[k] else total for k, total in totals.items()}


@given(epochs_of(whole(32)), partitions, st.booleans())
def test_averages_of_whole_numbers_are_doubles(
    epochs: list[list[Triple]], p: int, combine: bool
) -> None:
    expected = by_key(epochs, lambda pairs: sum(v) / len(v) if (v := present(pairs)) else None)
    assert aggregate("avg", [pa.int32()], epochs, partitions=p, combine=combine) == expected


@given(st.sampled_from(AVERAGED), st.data(), partitions, st.booleans())
def test_averages_of_decimals_are_rounded_half_up(
    kind: pa.DataType, data: st.DataObject, p: int, combine: bool
) -> None:
    # One digit less than the type holds, so that sums of 38 digits don't overflow.
    digits = min(kind.precision, 36)
    epochs = data.draw(epochs_of(decimals(digits, kind.scale)))

    def average(pairs: list[tuple[Any, Any]]) -> Decimal | None:
        values = present(pairs)
        if not values:
            return None
        mean = sum(map(Fraction, values), Fraction(0)) / len(values)
        return Decimal(_half_up(mean * 10**scale)).scaleb(-scale, EXACT)

    scale = min(38, kind.scale + 4)
    results = aggregate("avg", [kind], epochs, partitions=p, combine=combine)
    assert results == by_key(epochs, average)


def _half_up(number: Fraction) -> int:
    rounded = math.floor(abs(number) + Fraction(1, 2))
    return rounded if number >= 0 else -rounded
