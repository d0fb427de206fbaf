"""Nested Spark types as Arrow's, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from holdfast.errors import InputError
from holdfast.spark.types import arrow_type, arrow_type_nested, spark_schema, spark_type
from holdfast.types import parse_type

NESTED = T.StructType(
    [
        T.StructField("plain", T.DecimalType(12, 3)),
        T.StructField("tags", T.ArrayType(T.StringType())),
        T.StructField("seen", T.MapType(T.StringType(), T.ArrayType(T.TimestampType()))),
        T.StructField(
            "place",
            T.StructType(
                [T.StructField("x", T.DoubleType()), T.StructField("when", T.TimestampNTZType())]
            ),
        ),
    ]
)


def test_nested_types_correspond_in_both_directions() -> None:
    arrow = arrow_type_nested("row", NESTED)
    assert spark_type(arrow) == NESTED
    assert arrow == parse_type(NESTED)
    assert spark_schema(pa.schema([("row", arrow)])) == T.StructType([T.StructField("row", NESTED)])


def test_a_key_or_an_aggregate_cannot_be_nested() -> None:
    with pytest.raises(InputError, match="column 'tags' of type array<string> can't be a key"):
        arrow_type("tags", NESTED["tags"].dataType)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (T.VariantType(), "column 'c.inner' is of type variant"),
        (T.DayTimeIntervalType(), "column 'c.inner' is of type interval day to second"),
        (T.StringType("UNICODE_CI"), "column 'c.inner' has the collation"),
    ],
)
def test_what_cannot_be_passed_on_is_named(kind: T.DataType, problem: str) -> None:
    struct = T.ArrayType(T.StructType([T.StructField("inner", kind)]))
    with pytest.raises(InputError, match=problem):
        arrow_type_nested("c", struct)
