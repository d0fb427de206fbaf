from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators.folding import Triple, aggregate, by_key, ordered, plain
from tests.operators.values import TYPES, epochs_of, partitions, values_of

ORDERS = [pa.int64(), pa.float32(), pa.string(), TYPES[-1]]

limits = st.integers(1, 5)


@settings(max_examples=100)
@given(st.sampled_from(TYPES), st.data(), partitions, limits, st.booleans())
def test_a_set_holds_the_least_distinct_values(
    kind: pa.DataType, data: st.DataObject, p: int, limit: int, combine: bool
) -> None:
    epochs = data.draw(epochs_of(values_of(kind)))

    def least(pairs: list[tuple[Any, Any]]) -> list[Any]:
        distinct = {plain(v): v for v, _ in pairs if v is not None}
        return [plain(v) for v in sorted(distinct.values(), key=ordered)[:limit]]

    results = aggregate("collect_set", [kind], epochs, partitions=p, combine=combine, limit=limit)
    assert _plain(results) == by_key(epochs, least)


@settings(max_examples=100)
@given(
    st.sampled_from(TYPES), st.sampled_from(ORDERS), st.data(), partitions, limits, st.booleans()
)
def test_a_list_holds_the_first_values(
    kind: pa.DataType, order: pa.DataType, data: st.DataObject, p: int, limit: int, combine: bool
) -> None:
    few = st.sampled_from(data.draw(st.lists(values_of(order), min_size=1, max_size=3)))
    epochs = data.draw(epochs_of(values_of(kind), few, keys=2))

    def first(pairs: list[tuple[Any, Any]]) -> list[Any]:
        there = [(v, o) for v, o in pairs if v is not None]
        there.sort(key=lambda pair: (ordered(pair[1]), ordered(pair[0])))
        return [plain(v) for v, _ in there[:limit]]

    results = aggregate(
        "collect_list", [kind, order], epochs, partitions=p, combine=combine, limit=limit
    )
    assert _plain(results) == by_key(epochs, first)


def test_a_key_without_values_has_an_empty_list() -> None:
    epochs: list[list[Triple]] = [[(0, None, None)]]
    assert aggregate("collect_set", [pa.int8()], epochs, limit=2) == {0: []}


def _plain(results: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return {key: [plain(v) for v in values] for key, values in results.items()}
