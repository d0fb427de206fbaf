"""Schemas of all kinds of table, and their way through a log entry."""

from __future__ import annotations

import base64

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptionError, InputError
from holdfast.state.schema import (
    HASH,
    KEY_HASH,
    Column,
    SchemaRecord,
    TableSchema,
    order_to_time,
    orders_after,
    time_to_order,
)

USER = Column(1, "user", pa.string())
SKU = Column(2, "map_key", pa.struct([("sku", pa.string()), ("size", pa.float64())]))
VALUE = Column(3, "value", pa.map_(pa.string(), pa.list_(pa.int64())), 4, "event")
EXPIRES = Column(4, "expires", pa.int64())

SCHEMAS = [
    TableSchema("plain", (USER,), (Column(3, "value", pa.int64()),)),
    TableSchema("expiring", (USER,), (VALUE, EXPIRES)),
    TableSchema("map", (USER, SKU), (VALUE, EXPIRES), prefix=1),
    TableSchema("due", (USER,), (), timed="processing"),
]
times = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.table)
def test_a_schema_survives_its_record(schema: TableSchema) -> None:
    encoded = msgspec.json.encode(schema.record())
    assert TableSchema.from_record(msgspec.json.decode(encoded, type=SchemaRecord)) == schema


def test_a_record_from_before_there_were_kinds_of_table_still_loads() -> None:
    fields = [pa.field(HASH, pa.uint64(), nullable=False)]
    fields += [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, name, kind in ((1, "word", pa.string()), (2, "n.count", pa.int64()))
    ]
    expected = TableSchema(
        "t", (Column(1, "word", pa.string()),), (Column(2, "n.count", pa.int64()),)
    )
    assert expected.arrow.equals(pa.schema(fields), check_metadata=True)
    assert TableSchema.from_record(expected.record()) == expected
    assert (expected.prefix, expected.timed, expected.expires) == (0, None, False)


WORD = pa.field("word", pa.string(), metadata={"PARQUET:field_id": "1"})


@pytest.mark.parametrize(
    ("fields", "metadata"),
    [
        ([pa.field("word", pa.string())], None),
        ([pa.field("word", pa.string(), metadata={"PARQUET:field_id": "one"})], None),
        ([], {"holdfast:prefix": "many"}),
        ([], {"holdfast:timed": b"\xff"}),
        ([], {"holdfast:prefix": "9"}),
        ([WORD, WORD], None),
        ([WORD.with_type(pa.list_(pa.string()))], None),
    ],
)
def test_a_record_that_nobody_wrote_is_damage(
    fields: list[pa.Field], metadata: dict[str, str | bytes] | None
) -> None:
    arrow = base64.b64encode(pa.schema(fields, metadata).serialize()).decode()
    record = msgspec.structs.replace(SCHEMAS[0].record(), arrow=arrow)
    with pytest.raises(CorruptionError, match=r"the schema of table .* can't be read"):
        TableSchema.from_record(record)


def test_what_is_special_is_said_in_metadata() -> None:
    _, expiring, prefixed, timed = (schema.arrow for schema in SCHEMAS)
    assert expiring.field("value").metadata[b"holdfast:expires"] == b"4 event"
    assert prefixed.metadata == {b"holdfast:prefix": b"1"}
    assert timed.metadata == {b"holdfast:timed": b"processing"}
    assert timed.names == [HASH, KEY_HASH, "user"]
    assert timed.field(KEY_HASH).type == pa.uint64()
    assert not timed.field(KEY_HASH).nullable


@pytest.mark.parametrize(
    ("keys", "values", "options"),
    [
        ((USER,), (), {"prefix": 1}),
        ((USER, Column(2, "sequence", pa.int64())), (), {"prefix": -1}),
        ((USER,), (EXPIRES,), {"timed": "event"}),
        ((USER, Column(2, "sequence", pa.int64())), (), {"prefix": 1, "timed": "event"}),
        ((USER,), (VALUE,), {}),
        ((USER,), (Column(3, "value", pa.int64(), expires=4), EXPIRES), {}),
        ((USER,), (VALUE, Column(4, "expires", pa.int32())), {}),
        ((USER, Column(1, "again", pa.int64())), (), {}),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(
    keys: tuple[Column, ...], values: tuple[Column, ...], options: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="'t'"):
        TableSchema("t", keys, values, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [HASH, KEY_HASH, "_holdfast_tombstone", "user"])
def test_names_of_our_own_columns_are_taken(name: str) -> None:
    with pytest.raises(InputError, match=name):
        TableSchema("t", (USER,), (Column(9, name, pa.int64()),))


def test_a_key_may_be_a_struct_but_not_hold_a_list() -> None:
    for prefix in (0, 1):
        assert TableSchema("t", (SKU, USER), (), prefix=prefix).key_names == ["map_key", "user"]
        odd = Column(2, "map_key", pa.struct([("sizes", pa.list_(pa.int64()))]))
        with pytest.raises(InputError, match=r"'map_key\.sizes'"):
            TableSchema("t", (USER, odd), (), prefix=prefix)
    with pytest.raises(InputError, match="'map_key'"):
        TableSchema("t", (Column(2, "map_key", pa.struct([])),), ())


@given(st.lists(times, min_size=1))
def test_times_keep_their_order(values: list[int]) -> None:
    order = time_to_order(np.array(values, np.int64))
    assert order_to_time(order).tolist() == values
    assert [int(o) for o in order] == [value + 2**63 for value in values]


@given(times, times, times)
def test_bounds_of_times_are_open_and_closed(time: int, after: int, until: int) -> None:
    place = int(time_to_order(np.array([time], np.int64))[0])
    found = orders_after(after, until)
    assert (found is not None and found.first <= place <= found.last) == (after < time <= until)
    unbounded = orders_after(None, until)
    assert unbounded is not None
    assert (unbounded.first <= place <= unbounded.last) == (time <= until)
