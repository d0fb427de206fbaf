from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.folding import Triple, aggregate, by_key
from tests.operators.values import epochs_of, partitions

KINDS = ["var_samp", "var_pop", "stddev_samp", "stddev_pop"]


def values(pairs: list[tuple[Any, Any]]) -> list[float]:
    return [value for value, _ in pairs if value is not None]


@given(
    st.sampled_from(KINDS),
    epochs_of(st.floats(-1e6, 1e6) | st.integers(0, 3).map(float)),
    partitions,
    st.booleans(),
)
def test_moments_do_not_depend_on_epochs(
    kind: str, epochs: list[list[Triple]], p: int, combine: bool
) -> None:
    results = aggregate(kind, [pa.float64()], epochs, partitions=p, combine=combine)
    groups = by_key(epochs, values)
    assert results.keys() == groups.keys()
    for key, numbers in groups.items():
        n = len(numbers)
        divisor = n - 1 if kind.endswith("samp") else n
        if divisor < 1:
            assert results[key] is None
            continue
        mean = sum(map(Fraction, numbers), Fraction(0)) / n
        variance = float(sum((Fraction(x) - mean) ** 2 for x in numbers) / divisor)
        # Rounding acts on the deviations: their size is that of the greatest number.
        error = 8 * n * 2.0**-52 * max(abs(x) for x in numbers) ** 2
        squared = results[key] ** 2 if kind.startswith("stddev") else results[key]
        assert squared == pytest.approx(variance, rel=1e-9, abs=error)


def test_equal_numbers_have_no_variance_however_large() -> None:
    epochs: list[list[Triple]] = [[(0, 1.7e308, None)] * 3, [(0, 1.7e308, None)]]
    assert aggregate("var_pop", [pa.float64()], epochs) == {0: 0.0}


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_an_infinite_value_makes_the_variance_nan(odd: float) -> None:
    epochs: list[list[Triple]] = [[(0, odd, None)], [(0, 1.0, None), (1, odd, None)]]
    results = aggregate("var_pop", [pa.float64()], epochs)
    assert math.isnan(results[0])
    assert math.isnan(results[1])
    assert aggregate("var_samp", [pa.float64()], epochs)[1] is None
