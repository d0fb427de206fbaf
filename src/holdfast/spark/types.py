"""Spark's types as Arrow's, and back: those that keys, columns, state and results may have."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.state.schema import check_key_type

__all__ = ["arrow_key_type", "arrow_type", "arrow_type_nested", "spark_schema", "spark_type"]

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
    """The Arrow type of a Spark column that is a key or aggregated; ``InputError`` if it can't be.

    >>> arrow_type("price", T.DecimalType(10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    arrow = _plain_type(column, kind)
    if arrow is None:
        raise InputError(
            f"column {column!r} of type {kind.simpleString()} can't be a key or be aggregated",
            hint="use boolean, number, string, binary, date or timestamp columns (a key may also be a "
            "struct of those); take other structs, arrays and maps apart first",
        )
    return arrow


def arrow_key_type(column: str, kind: T.DataType) -> pa.DataType:
    """The Arrow type of a key column: a plain one, or a struct of plain ones and such structs.

    >>> arrow_key_type("place", T.StructType([T.StructField("x", T.LongType(), nullable=False)]))
    StructType(struct<x: int64>)
    """
    if not isinstance(kind, T.StructType):
        return arrow_type(column, kind)
    names = [field.name.lower() for field in kind]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"the struct {column!r} can't be a key: it has two fields named {name!r}",
                hint="give one of them another name",
            )
    arrow = pa.struct([(f.name, arrow_key_type(f"{column}.{f.name}", f.dataType)) for f in kind])
    check_key_type(column, arrow)
    return arrow


def arrow_type_nested(column: str, kind: T.DataType) -> pa.DataType:
    """The Arrow type of any Spark column that reaches user code; structs, arrays and maps too.

    >>> arrow_type_nested("items", T.MapType(T.StringType(), T.ArrayType(T.LongType())))
    MapType(map<string, list<item: int64>>)
    """
    if isinstance(kind, T.ArrayType):
        return pa.list_(arrow_type_nested(column, kind.elementType))
    if isinstance(kind, T.MapType):
        return pa.map_(
            arrow_type_nested(column, kind.keyType), arrow_type_nested(column, kind.valueType)
        )
    if isinstance(kind, T.StructType):
        fields = [
            pa.field(f.name, arrow_type_nested(f"{column}.{f.name}", f.dataType)) for f in kind
        ]
        return pa.struct(fields)
    arrow = _plain_type(column, kind)
    if arrow is None:
        raise InputError(
            f"column {column!r} is of type {kind.simpleString()}, which Holdfast can't pass on",
            hint="leave the column out, or cast it first",
        )
    return arrow


def _plain_type(column: str, kind: T.DataType) -> pa.DataType | None:
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation():
        raise InputError(
            f"column {column!r} has the collation {kind.collation}, and Holdfast compares strings "
            "byte by byte",
            hint=f"use F.collate('{column}', 'UTF8_BINARY'), or lower-case it first",
        )
    return _ARROW.get(type(kind))


def spark_type(kind: pa.DataType) -> T.DataType:
    """The Spark type of an Arrow column that Holdfast made.

    >>> spark_type(pa.list_(pa.int32()))
    ArrayType(IntegerType(), True)
    """
    if pa.types.is_decimal128(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return T.ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return T.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return T.StructType([T.StructField(f.name, spark_type(f.type)) for f in fields])
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
