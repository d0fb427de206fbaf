"""Packing the columns of two sides into shared slots, and unpacking them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.operators.join.packing import SideName, pack

KINDS = [pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.list_(pa.int32()), pa.bool_()]
kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=7)


def fields(prefix: str, given: list[Any]) -> list[tuple[str, Any]]:
    return [(f"{prefix}{i}", kind) for i, kind in enumerate(given)]


@given(left=kinds, right=kinds)
def test_slots_are_as_few_as_can_be_and_of_the_right_type(
    left: list[Any], right: list[Any]
) -> None:
    ours, theirs = fields("l", left), fields("r", right)
    packing = pack(ours, theirs)
    types = dict(packing.slots)
    for columns, slots in ((ours, packing.left), (theirs, packing.right)):
        assert [types[slots[name]] for name, _ in columns] == [kind for _, kind in columns]
        assert len(set(slots.values())) == len(slots)
    wanted = Counter(left) | Counter(right)
    assert Counter(kind for _, kind in packing.slots) == wanted
    assert [name for name, _ in packing.slots] == [f"_holdfast_v{i}" for i in range(len(types))]


@given(left=kinds, right=kinds)
def test_rows_come_out_as_they_went_in(left: list[Any], right: list[Any]) -> None:
    samples: dict[Any, Any] = dict(zip(KINDS, [7, "x", 5, [1, 2], True], strict=True))
    ours = [("k", pa.int64()), *fields("l", left)]
    theirs = [*fields("r", right), ("k", pa.int64())]
    packing = pack(ours, theirs, ["k"])
    assert "k" not in packing.left
    sides: tuple[SideName, SideName] = ("left", "right")
    for side, columns in zip(sides, (ours, theirs), strict=True):
        slots = packing.left if side == "left" else packing.right
        packed = {
            name: pa.array([samples[kind], None] if name in slots.values() else [None, None], kind)
            for name, kind in packing.slots
        }
        made = packing.unpack(pa.table({"k": [3, 4], **packed}), side)
        assert made.schema == pa.schema(columns)
        for name, kind in columns:
            expected = pa.array([3, 4] if name == "k" else [samples[kind], None], kind)
            assert made[name].combine_chunks() == expected
