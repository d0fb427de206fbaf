"""Types as Spark writes them, in Arrow's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.types import parse_schema, parse_type, required_fields, type_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = pa.timestamp("us", "UTC")
TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "INTEGER": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "String Collate UTF8_BINARY": pa.string(),
    "char(3)": pa.string(),
    "varchar( 30 )": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ltz": UTC,
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "dec(5)": pa.decimal128(5, 0),
    "numeric(12, 4)": pa.decimal128(12, 4),
    "array<array<int>>": pa.list_(pa.list_(pa.int32())),
    "map<string,map<date,array<long>>>": pa.map_(
        pa.string(), pa.map_(pa.date32(), pa.list_(pa.int64()))
    ),
    "struct<>": pa.struct([]),
    "struct<a:int,b:struct<c:string>>": pa.struct(
        [("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]
    ),
    "struct<a int COMMENT 'it''s', b: string NOT NULL>": pa.struct(
        [("a", pa.int32()), ("b", pa.string())]
    ),
    "a int": pa.struct([("a", pa.int32())]),
    "a: int NOT NULL COMMENT 'x, y', `odd ``name` array<string>": pa.struct(
        [("a", pa.int32()), ("odd `name", pa.list_(pa.string()))]
    ),
    " map map<int , int> ,\n array array<int>": pa.struct(
        [("map", pa.map_(pa.int32(), pa.int32())), ("array", pa.list_(pa.int32()))]
    ),
    "date date, timestamp timestamp, string string": pa.struct(
        [("date", pa.date32()), ("timestamp", UTC), ("string", pa.string())]
    ),
    "not string, comment int, 1st int": pa.struct(
        [("not", pa.string()), ("comment", pa.int32()), ("1st", pa.int32())]
    ),
}
REFUSED = {
    "": "nothing is declared",
    "strange": "no type 'strange'",
    "a strange": "field 'a'",
    "a struct<b:array<strange>>": "field 'a.b'",
    "interval day to second": "can't be read",
    "a interval year": "no type 'interval'",
    "variant": "no type 'variant'",
    "void": "no type 'void'",
    "time(6)": "no type 'time(6)'",
    "array<int": "'>' is expected",
    "array<>": "'>' is no type",
    "map<int>": "',' is expected",
    "decimal(39)": "39 digits",
    "decimal(3,5)": "5 of them behind the point",
    "decimal(1,2,3)": "can't have",
    "decimal(x)": "'x' is no number",
    "int(3)": "no type 'int(3)'",
    "string collate UNICODE_CI": "UNICODE_CI",
    "a string collate UNICODE_CI": "field 'a'",
    "a int b int": "',' is expected",
    "a int,": "it ends where a field is expected",
    "a int, a string": "'a' is declared twice",
    "a": "no type 'a'",
    "int>": "no type",
    "array<int>>": "left over",
    "`a`": "it ends where a type is expected",
    "'a' int": "no name of a field",
    "a `int`": "'int' is no type",
}


@pytest.mark.parametrize("text", TYPES)
def test_ddl_strings_are_read(text: str) -> None:
    assert parse_type(text) == TYPES[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_type(text)
    assert REFUSED[text] in caught.value.message
    assert caught.value.hint


@pytest.mark.spark
def test_spark_reads_the_same(spark: SparkSession) -> None:
    from pyspark.sql.types import _parse_datatype_string

    assert spark is not None
    for text, expected in TYPES.items():
        theirs = _parse_datatype_string(text)
        assert parse_type(theirs) == expected, text


@pytest.mark.spark
def test_pyspark_types_that_cannot_be_held_are_named() -> None:
    from pyspark.sql import types as T

    collated = T.StructType([T.StructField("name", T.StringType("UNICODE_CI"))])
    with pytest.raises(InputError, match=r"field 'name' has the collation .*UNICODE_CI"):
        parse_schema(collated)
    variant = T.StructType([T.StructField("v", T.ArrayType(T.VariantType()))])
    with pytest.raises(InputError, match="an element of field 'v' is of type variant"):
        parse_schema(variant)
    with pytest.raises(InputError, match="the type is of type interval"):
        parse_type(T.DayTimeIntervalType())
    with pytest.raises(InputError, match=r"made by calling it: LongType\(\)"):
        parse_type(T.LongType)


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(InputError, match=r"3 \(int\) is no type"):
        parse_type(3)
    with pytest.raises(InputError, match="one type, not a list of fields"):
        parse_schema("array<int>")


def test_arrow_types_are_taken_as_they_are() -> None:
    schema = pa.schema([("a", pa.int8())])
    assert parse_schema(schema) is schema
    assert parse_type(pa.int8()) == pa.int8()
    assert parse_schema("struct<a:byte>") == schema


atomic = st.sampled_from(
    [kind for kind in TYPES.values() if not pa.types.is_nested(kind)] + [pa.decimal128(38, 38)]
)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.tuples(names, inner), max_size=4, unique_by=lambda pair: pair[0])
    return st.one_of(
        inner.map(pa.list_),
        st.tuples(inner, inner).map(lambda pair: pa.map_(*pair)),
        fields.map(pa.struct),
    )


@given(st.recursive(atomic, _nested, max_leaves=8))
def test_words_give_the_type_again(kind: pa.DataType) -> None:
    assert parse_type(type_words(kind)) == kind


def test_what_is_never_null_is_found_however_deep_and_in_every_form() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    paths = (("b",), ("one", "x"), ("many", "element", "x"), ("named", "value", "x"))
    words = (
        "b int NOT NULL, one struct<x: bigint NOT NULL>, many array<struct<x: bigint NOT NULL>>, "
        "named map<string, struct<x: bigint NOT NULL>>"
    )
    assert required_fields(words) == paths
    arrow = pa.schema(
        [
            pa.field("b", pa.int32(), nullable=False),
            ("one", inner),
            ("many", pa.list_(inner)),
            ("named", pa.map_(pa.string(), inner)),
        ]
    )
    assert required_fields(arrow) == paths
