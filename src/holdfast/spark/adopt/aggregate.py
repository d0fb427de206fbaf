"""The state of Spark's aggregations as Holdfast's: which of its buffers belong to which aggregate.

Spark keeps, per key, the buffers of an aggregation's functions one behind the other, named after what
they are (``sum``, ``count``, …) and not after the columns they were made of; equal functions of equal
columns share theirs. So the moved job names its aggregates in the order of the old query's, and each
takes the next buffers, whose names and types must be what its kind of aggregate has in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.operators.aggregates.kinds import AggregateSpec, make_merger
from holdfast.operators.aggregates.sums import sum_type
from holdfast.spark.adopt.keys import Field
from holdfast.spark.plans.buffers import clean
from holdfast.spark.types import spark_type

__all__ = ["our_buffers"]

Columns = Sequence[Column]
Wanted = tuple[tuple[str, pa.DataType], ...]

# Spark sums short decimals as whole numbers, and averages them as doubles, of the last digit.
_LONG_DIGITS = 8
_DOUBLE_DIGITS = 11


@dataclass(frozen=True, slots=True)
class _KeptBySpark:
    """One way in which Spark keeps an aggregate, and how that becomes Holdfast's parts of it."""

    wanted: Wanted
    parts: Callable[[Columns], list[Column]]

    def fits(self, buffers: Sequence[Field]) -> bool:
        return [(b.name, b.type) for b in buffers] == [
            (name, spark_type(kind)) for name, kind in self.wanted
        ]

    def __str__(self) -> str:
        return ", ".join(f"{name}: {spark_type(kind).simpleString()}" for name, kind in self.wanted)


def our_buffers(specs: Sequence[AggregateSpec], buffers: Sequence[Field]) -> list[Column]:
    """The columns of the aggregates' parts, in order; ``InputError`` if the state doesn't fit."""
    columns: list[Column] = []
    shared: dict[object, list[Column]] = {}
    at = 0
    for spec in specs:
        same = (_FUNCTIONS.get(spec.kind, spec.kind), spec.inputs)
        if same not in shared:
            form = _fitting(spec, buffers[at:])
            found = [b.column for b in buffers[at : at + len(form.wanted)]]
            kinds = [spark_type(kind) for _, kind in make_merger(spec).parts]
            shared[same] = [c.cast(kind) for c, kind in zip(form.parts(found), kinds, strict=True)]
            at += len(form.wanted)
        columns += shared[same]
    if at < len(buffers):
        rest = ", ".join(map(str, buffers[at:]))
        raise InputError(
            f"the old state has more than the program's {len(specs)} aggregates: {rest}",
            hint=_HINT,
        )
    return columns


_HINT = (
    "name the old query's aggregates, in its order and of the same columns; "
    "holdfast adopt --show prints what the state holds"
)


def _fitting(spec: AggregateSpec, buffers: Sequence[Field]) -> _KeptBySpark:
    forms = _forms(spec)
    for form in forms:
        if form.fits(buffers[: len(form.wanted)]):
            return form
    if buffers and (function := _not_adoptable(buffers[0].name)):
        raise InputError(
            f"aggregate {spec.name!r}: the old state has next what Spark keeps for {function}, "
            "which can't be adopted",
            hint="leave the job with Spark, or begin anew with a new checkpoint_dir",
        )
    wanted = " or ".join(f"({form})" for form in forms)
    found = ", ".join(map(str, buffers[: max(len(form.wanted) for form in forms)])) or "nothing"
    raise InputError(
        f"aggregate {spec.name!r}, {spec.kind}, needs {wanted} next in the old state, and there is "
        f"({found})",
        hint=_HINT,
    )


def _not_adoptable(buffer: str) -> str | None:
    if buffer.startswith("MS["):
        return "approx_count_distinct"
    return _NOT_ADOPTABLE.get(buffer)


_NOT_ADOPTABLE = {
    "buf": "collect_list, collect_set or a sketch",
    "first": "first, in the order of arrival",
    "last": "last, in the order of arrival",
}


def _forms(spec: AggregateSpec) -> list[_KeptBySpark]:
    if spec.kind not in _FORMS:
        raise InputError(
            f"aggregate {spec.name!r}: {spec.kind} can't be adopted, because Spark keeps it in "
            "another form",
            hint="leave the job with Spark, or begin anew with a new checkpoint_dir",
        )
    return _FORMS[spec.kind]([i.type for i in spec.inputs])


def _as_it_is(columns: Columns) -> list[Column]:
    return list(columns)


def _count(_kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
    return [_KeptBySpark((("count", pa.int64()),), _as_it_is)]


def _sum(kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
    kind = kinds[0]
    whole = sum_type(kind)
    if not pa.types.is_decimal128(kind):
        return [_KeptBySpark((("sum", whole),), _as_it_is)]
    forms = [_KeptBySpark((("sum", whole), ("isEmpty", pa.bool_())), _unless_empty)]
    if kind.precision <= _LONG_DIGITS:
        forms.append(_KeptBySpark((("sum", pa.int64()),), lambda c: [_scaled(c[0], whole)]))
    return forms


def _unless_empty(columns: Columns) -> list[Column]:
    total, is_empty = columns
    # A sum that overflowed is null and not empty, with try_sum or where ANSI mode is off.
    lost = F.raise_error(F.lit("a decimal sum in the old state has overflowed"))
    return [F.when(is_empty, F.lit(None)).when(total.isNull(), lost).otherwise(total)]


def _scaled(digits: Column, kind: pa.DataType) -> Column:
    """A decimal by its digits, given as a whole number: a string with an exponent is exact."""
    return F.concat(digits.cast("string"), F.lit(f"E{-kind.scale}")).cast(spark_type(kind))


def _avg(kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
    kind = kinds[0]
    count = ("count", pa.int64())
    if not pa.types.is_decimal128(kind):
        return [_KeptBySpark((("sum", pa.float64()), count), _as_it_is)]
    whole = sum_type(kind)
    forms = [_KeptBySpark((("sum", whole), count), _as_it_is)]
    if kind.precision <= _DOUBLE_DIGITS:
        forms.append(
            _KeptBySpark(
                (("sum", pa.float64()), count),
                lambda c: [_scaled(c[0].cast("decimal(38,0)"), whole), c[1]],
            )
        )
    return forms


def _moments(_kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
    wanted = tuple((name, pa.float64()) for name in ("n", "avg", "m2"))
    return [_KeptBySpark(wanted, _as_it_is)]


def _extreme(name: str) -> Callable[[Sequence[pa.DataType]], list[_KeptBySpark]]:
    def forms(kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
        kind = kinds[0]
        return [_KeptBySpark(((name, kind),), lambda c: [clean(c[0], kind)])]

    return forms


def _any_value(kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
    kind = kinds[0]
    wanted = (("first", kind), ("valueSet", pa.bool_()))
    return [_KeptBySpark(wanted, lambda c: [clean(c[0], kind)])]


def _extreme_by(kinds: Sequence[pa.DataType]) -> list[_KeptBySpark]:
    value, order = kinds
    wanted = (("valueWithExtremumOrdering", value), ("extremumOrdering", order))
    return [_KeptBySpark(wanted, lambda c: [clean(c[1], order), clean(c[0], value)])]


_FORMS: dict[str, Callable[[Sequence[pa.DataType]], list[_KeptBySpark]]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "var_samp": _moments,
    "var_pop": _moments,
    "stddev_samp": _moments,
    "stddev_pop": _moments,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "bool_and": _extreme("min"),
    "bool_or": _extreme("max"),
    "any_value": _any_value,
    "first": _extreme_by,
    "last": _extreme_by,
}

_FUNCTIONS = {"bool_and": "min", "bool_or": "max"}
