from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators.folding import Triple, aggregate, by_key, ordered, plain
from tests.operators.values import TYPES, epochs_of, partitions, values_of

ORDERS = [pa.int64(), pa.float32(), pa.string(), TYPES[-1]]


@settings(max_examples=100)
@given(st.sampled_from(TYPES), st.data(), partitions, st.booleans())
def test_min_and_max_in_sparks_order(
    kind: pa.DataType, data: st.DataObject, p: int, combine: bool
) -> None:
    epochs = data.draw(epochs_of(values_of(kind)))
    for name, best in [("min", min), ("max", max), ("any_value", min)]:
        results = aggregate(name, [kind], epochs, partitions=p, combine=combine)
        expected = by_key(
            epochs,
            lambda pairs, best=best: best(  # type: ignore[misc]
                (v for v, _ in pairs if v is not None), key=ordered, default=None
            ),
        )
        assert _plain(results) == _plain(expected)


@given(epochs_of(st.booleans()), partitions, st.booleans())
def test_bool_and_and_or_ignore_nulls(epochs: list[list[Triple]], p: int, combine: bool) -> None:
    for name, fold in [("bool_and", all), ("bool_or", any)]:
        results = aggregate(name, [pa.bool_()], epochs, partitions=p, combine=combine)
        expected = by_key(
            epochs,
            lambda pairs, fold=fold: (  # type: ignore[misc]
                fold(v) if (v := [v for v, _ in pairs if v is not None]) else None
            ),
        )
        assert results == expected


@settings(max_examples=100)
@given(st.sampled_from(TYPES), st.sampled_from(ORDERS), st.data(), partitions, st.booleans())
def test_first_and_last_go_by_order_then_value(
    kind: pa.DataType, order: pa.DataType, data: st.DataObject, p: int, combine: bool
) -> None:
    few = st.sampled_from(data.draw(st.lists(values_of(order), min_size=1, max_size=3)))
    epochs = data.draw(epochs_of(values_of(kind), few, keys=2))
    for name, best in [("first", min), ("last", max)]:
        results = aggregate(name, [kind, order], epochs, partitions=p, combine=combine)
        expected = by_key(
            epochs,
            lambda pairs, best=best: best(  # type: ignore[misc]
                ((v, o) for v, o in pairs if o is not None),
                key=lambda pair: (ordered(pair[1]), ordered(pair[0])),
                default=(None, None),
            )[0],
        )
        assert _plain(results) == _plain(expected)


def _plain(results: dict[int, object]) -> dict[int, object]:
    return {key: plain(value) for key, value in results.items()}
