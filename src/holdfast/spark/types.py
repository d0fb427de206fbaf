"""Spark's types as Arrow's, and back: those that keys, aggregates and results may have."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError

__all__ = ["arrow_type", "spark_schema", "spark_type"]

_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
}
_SPARK = {arrow: spark for spark, arrow in _ARROW.items() if not pa.types.is_string(arrow)}


def arrow_type(column: str, kind: T.DataType) -> pa.DataType:
    """The Arrow type of a Spark column; ``InputError`` if Holdfast can't hold it.

    >>> arrow_type("price", T.DecimalType(10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation():
        raise InputError(
            f"column {column!r} has the collation {kind.collation}, and Holdfast compares strings "
            "byte by byte",
            hint=f"use F.collate('{column}', 'UTF8_BINARY'), or lower-case it first",
        )
    arrow = _ARROW.get(type(kind))
    if arrow is None:
        raise InputError(
            f"column {column!r} of type {kind.simpleString()} can't be a key or be aggregated",
            hint="use boolean, number, string, binary, date or timestamp columns; take a struct, "
            "array or map apart first",
        )
    return arrow


def spark_type(kind: pa.DataType) -> T.DataType:
    """The Spark type of an Arrow column that Holdfast made.

    >>> spark_type(pa.list_(pa.int32()))
    ArrayType(IntegerType(), True)
    """
    if pa.types.is_decimal128(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return T.ArrayType(spark_type(kind.value_type))
    if pa.types.is_string(kind):
        return T.StringType()
    if kind not in _SPARK:
        raise InputError(f"no Spark type corresponds to {kind}")
    return _SPARK[kind]()


def spark_schema(schema: pa.Schema) -> T.StructType:
    """The Spark schema of a table that Holdfast made.

    >>> spark_schema(pa.schema([("n", pa.int64())])).simpleString()
    'struct<n:bigint>'
    """
    return T.StructType([T.StructField(f.name, spark_type(f.type)) for f in schema])
