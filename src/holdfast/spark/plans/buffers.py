"""The Spark expressions that make buffers: of one row each, or of a group of rows.

For every kind of aggregate, *lifted* expressions turn an input row into a buffer and *grouped* ones
turn all rows of a key into one. Both give the columns that the kind's merger declares as its parts,
with the same types; merging lifted buffers gives what grouping would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.operators.aggregates.collect import list_type
from holdfast.operators.aggregates.kinds import AggregateSpec
from holdfast.operators.aggregates.sums import sum_type
from holdfast.spark.types import spark_type

__all__ = ["clean", "grouped", "lifted", "must_group"]

Columns = Sequence[Column]
Types = Sequence[pa.DataType]
Options = Mapping[str, int]


def clean(column: Column, kind: pa.DataType) -> Column:
    """A float column with one NaN and no negative zero, as Spark groups and compares them.

    Also the floats in a struct, whose fields may be null from then on, whatever they were before.
    """
    if pa.types.is_struct(kind):
        return _clean_struct(column, kind).cast(spark_type(kind))
    if not pa.types.is_floating(kind):
        return column
    name = spark_type(kind).simpleString()
    return F.nanvl(column + F.lit(0.0).cast(name), F.lit(float("nan")).cast(name))


def _clean_struct(column: Column, kind: pa.DataType) -> Column:
    if not _has_floats(kind):
        return column
    fields = [clean(column.getField(f.name), f.type).alias(f.name) for f in kind]
    return F.when(column.isNotNull(), F.struct(*fields))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))


def lifted(spec: AggregateSpec, columns: Columns) -> list[Column]:
    """The buffer of one row."""
    types = [i.type for i in spec.inputs]
    cleaned = [clean(c, t) for c, t in zip(columns, types, strict=True)]
    return _LIFTED[spec.kind](cleaned, types)


def grouped(spec: AggregateSpec, columns: Columns, *, ansi: bool = True) -> list[Column]:
    """The buffer of a group of rows, by aggregate functions.

    Sums fail when they overflow; ``ansi`` says whether Spark's own do, in the session they run in.
    """
    types = [i.type for i in spec.inputs]
    cleaned = [clean(c, t) for c, t in zip(columns, types, strict=True)]
    if spec.kind in _SUMMING:
        return _SUMMING[spec.kind](cleaned, types, F.sum if ansi else _careful_sum)
    return _GROUPED[spec.kind](cleaned, types, dict(spec.options))


def must_group(spec: AggregateSpec) -> bool:
    """Whether single rows have no buffer, so that rows must be grouped before the shuffle."""
    return spec.kind not in _LIFTED


def _present(column: Column) -> Column:
    return column.isNotNull().cast("bigint")


def _double(column: Column) -> Column:
    return column.cast("double")


def _lift_count(x: Columns, _types: Types) -> list[Column]:
    return [_present(x[0]) if x else F.lit(1).cast("bigint")]


def _lift_sum(x: Columns, types: Types) -> list[Column]:
    return [x[0].cast(spark_type(sum_type(types[0])))]


def _lift_average(x: Columns, types: Types) -> list[Column]:
    return [*_average_input(x, types), _present(x[0])]


def _average_input(x: Columns, types: Types) -> list[Column]:
    return _lift_sum(x, types) if pa.types.is_decimal128(types[0]) else [_double(x[0])]


def _lift_moments(x: Columns, _types: Types) -> list[Column]:
    value = _double(x[0])
    # The deviation of an infinite or NaN value from itself is NaN, and so is Spark's variance.
    return [_present(x[0]), F.coalesce(value, F.lit(0.0)), F.coalesce(value - value, F.lit(0.0))]


def _lift_extreme(x: Columns, _types: Types) -> list[Column]:
    return [x[0]]


def _lift_by_order(x: Columns, _types: Types) -> list[Column]:
    value, order = x
    return [order, F.when(order.isNotNull(), value)]


def _list_of(item: Column, kind: pa.DataType, condition: Column) -> Column:
    array = spark_type(list_type(kind))
    return F.when(condition, F.array(item)).otherwise(F.array()).cast(array)


def _lift_set(x: Columns, types: Types) -> list[Column]:
    return [_list_of(x[0], types[0], x[0].isNotNull())]


def _lift_list(x: Columns, types: Types) -> list[Column]:
    value, order = x
    present = value.isNotNull()
    return [_list_of(order, types[1], present), _list_of(value, types[0], present)]


_LIFTED: dict[str, Callable[[Columns, Types], list[Column]]] = {
    "count": _lift_count,
    "sum": _lift_sum,
    "avg": _lift_average,
    "var_samp": _lift_moments,
    "var_pop": _lift_moments,
    "stddev_samp": _lift_moments,
    "stddev_pop": _lift_moments,
    "min": _lift_extreme,
    "max": _lift_extreme,
    "any_value": _lift_extreme,
    "bool_and": _lift_extreme,
    "bool_or": _lift_extreme,
    "first": _lift_by_order,
    "last": _lift_by_order,
    "collect_set": _lift_set,
    "collect_list": _lift_list,
}


def _group_count(x: Columns, _types: Types, _options: Options) -> list[Column]:
    return [F.count(x[0] if x else F.lit(1))]


def _careful_sum(column: Column) -> Column:
    """A sum that fails when it overflows, also where Spark's would wrap around or be null."""
    failed = F.raise_error(F.lit("a sum overflows: the column's type is too small for it"))
    return F.coalesce(F.try_sum(column), F.when(F.count(column) > 0, failed))


def _group_sum(x: Columns, _types: Types, add_up: Callable[[Column], Column]) -> list[Column]:
    return [add_up(x[0])]


def _group_average(x: Columns, types: Types, add_up: Callable[[Column], Column]) -> list[Column]:
    summand = x[0] if pa.types.is_decimal128(types[0]) else _double(x[0])
    return [add_up(summand), F.count(x[0])]


_SUMMING: dict[str, Callable[[Columns, Types, Callable[[Column], Column]], list[Column]]] = {
    "sum": _group_sum,
    "avg": _group_average,
}


def _group_moments(x: Columns, _types: Types, _options: Options) -> list[Column]:
    value, count = _double(x[0]), F.count(x[0])
    zero = F.lit(0.0)
    return [
        count,
        F.coalesce(F.avg(value), zero),
        F.coalesce(F.var_pop(value) * count.cast("double"), zero),
    ]


def _group_min(x: Columns, _types: Types, _options: Options) -> list[Column]:
    return [F.min(x[0])]


def _group_max(x: Columns, _types: Types, _options: Options) -> list[Column]:
    return [F.max(x[0])]


def _group_first(x: Columns, _types: Types, _options: Options) -> list[Column]:
    return _fields(F.min(_placed(x)))


def _group_last(x: Columns, _types: Types, _options: Options) -> list[Column]:
    return _fields(F.max(_placed(x)))


def _placed(x: Columns) -> Column:
    value, order = x
    return F.when(order.isNotNull(), F.struct(order.alias("o"), value.alias("v")))


def _fields(struct: Column) -> list[Column]:
    return [struct.getField("o"), struct.getField("v")]


def _group_sketch(x: Columns, _types: Types, options: Options) -> list[Column]:
    # Sketches take few types and leave out empty strings; hashes of values have neither trouble.
    hashed = F.when(x[0].isNotNull(), F.xxhash64(x[0]))
    return [F.hll_sketch_agg(hashed, F.lit(options["lg_k"]))]


def _group_set(x: Columns, _types: Types, options: Options) -> list[Column]:
    return [F.slice(F.array_sort(F.collect_set(x[0])), 1, options["limit"])]


def _group_list(x: Columns, _types: Types, options: Options) -> list[Column]:
    value, order = x
    row = F.when(value.isNotNull(), F.struct(order.alias("o"), value.alias("v")))
    return _fields(F.slice(F.array_sort(F.collect_list(row)), 1, options["limit"]))


_GROUPED: dict[str, Callable[[Columns, Types, Options], list[Column]]] = {
    "count": _group_count,
    "var_samp": _group_moments,
    "var_pop": _group_moments,
    "stddev_samp": _group_moments,
    "stddev_pop": _group_moments,
    "min": _group_min,
    "max": _group_max,
    "any_value": _group_min,
    "bool_and": _group_min,
    "bool_or": _group_max,
    "first": _group_first,
    "last": _group_last,
    "approx_count_distinct": _group_sketch,
    "collect_set": _group_set,
    "collect_list": _group_list,
}
