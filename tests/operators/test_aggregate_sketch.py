from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import datasketches
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.aggregates.sketch import datasketches as need_datasketches
from tests.operators.folding import DictState, Key, Row, buffer_rows, run_epoch

LG_K = 10
Groups = Sequence[tuple[int, Iterable[int]]]


def sketch(values: Iterable[int]) -> bytes:
    made = datasketches.hll_sketch(LG_K, datasketches.tgt_hll_type.HLL_8)
    for value in values:
        made.update(value)
    data: bytes = made.serialize_updatable()
    return data


def fold(epochs: Sequence[Groups], partitions: int = 1, *, combine: bool = False) -> dict[int, int]:
    spec = AggregateSpec("x", "approx_count_distinct", (Input("v", pa.int64()),), (("lg_k", LG_K),))
    operator = AggregateOperator("test", [("key", pa.int64())], [spec])
    state = DictState(operator.tables[0])
    results: dict[Key, Row] = {}
    for epoch in epochs:
        rows = buffer_rows(operator, [(key, [sketch(values)]) for key, values in epoch])
        run_epoch(operator, state, rows, partitions, results, combine=combine)
    return {key[0]: row["x"] for key, row in results.items()}


groups = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 50), max_size=20)))


@given(st.lists(groups, max_size=4), st.integers(1, 3), st.booleans())
def test_few_values_are_counted_exactly(epochs: list[Groups], p: int, combine: bool) -> None:
    expected: dict[int, set[int]] = {}
    for key, values in (group for epoch in epochs for group in epoch):
        expected.setdefault(key, set()).update(values)
    assert fold(epochs, p, combine=combine) == {k: len(v) for k, v in expected.items()}


def test_many_values_are_counted_within_the_bound() -> None:
    epochs = [[(0, range(e * 5000, e * 5000 + 10_000)), (1, range(7))] for e in range(8)]
    results = fold(epochs)
    assert results[0] == pytest.approx(45_000, rel=4 * 1.04 / 2 ** (LG_K / 2))
    assert results[1] == 7


def test_a_missing_library_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'holdfast\[sketches\]'"):
        need_datasketches()
