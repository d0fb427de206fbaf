"""The kinds of aggregates: which types each takes, and who merges its buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.aggregates.collect import CollectList, CollectSet
from holdfast.operators.aggregates.extremes import Extreme, ExtremeBy
from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.aggregates.moments import Moments
from holdfast.operators.aggregates.sketch import DistinctSketch
from holdfast.operators.aggregates.sums import Average, Count, Sum
from holdfast.state.schema import check_plain_type

__all__ = ["KINDS", "AggregateSpec", "Input", "make_merger"]


@dataclass(frozen=True, slots=True)
class Input:
    """A column that an aggregate reads: its name, for messages, and its type."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One aggregate of an operator, resolved against the input's types.

    >>> print(AggregateSpec("total", "sum", (Input("amount", pa.float32()),)))
    total: sum(float) -> double
    """

    name: str
    """The name of its result column."""
    kind: str
    inputs: tuple[Input, ...] = ()
    options: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        arguments = [str(i.type) for i in self.inputs] + [f"{k}={v}" for k, v in self.options]
        return f"{self.name}: {self.kind}({', '.join(arguments)}) -> {make_merger(self).result}"


def _is_number(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_signed_integer(kind) or t.is_floating(kind) or t.is_decimal128(kind))


def _is_boolean(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind))


def _is_primitive(kind: pa.DataType) -> bool:
    try:
        check_plain_type("", kind)  # What can be a key can be compared, stored and sent.
    except InputError:
        return False
    return True


Types = tuple[pa.DataType, ...]
Options = Mapping[str, int]

_NUMBERS = "whole numbers, float, double or decimal"
_BOOLEANS = "boolean"
_PRIMITIVES = (
    "boolean, whole numbers, float, double, decimal, string, binary, date or timestamp columns"
)
_TESTS: dict[str, Callable[[pa.DataType], bool]] = {
    _NUMBERS: _is_number,
    _BOOLEANS: _is_boolean,
    _PRIMITIVES: _is_primitive,
}

KINDS: dict[str, tuple[str, Callable[[Types, Options], Merger]]] = {
    "count": ("", lambda _t, _o: Count()),
    "sum": (_NUMBERS, lambda t, _o: Sum(t[0])),
    "avg": (_NUMBERS, lambda t, _o: Average(t[0])),
    "var_samp": (_NUMBERS, lambda _t, _o: Moments(sample=True, root=False)),
    "var_pop": (_NUMBERS, lambda _t, _o: Moments(sample=False, root=False)),
    "stddev_samp": (_NUMBERS, lambda _t, _o: Moments(sample=True, root=True)),
    "stddev_pop": (_NUMBERS, lambda _t, _o: Moments(sample=False, root=True)),
    "min": (_PRIMITIVES, lambda t, _o: Extreme(t[0], "min", greatest=False)),
    "max": (_PRIMITIVES, lambda t, _o: Extreme(t[0], "max", greatest=True)),
    "any_value": (_PRIMITIVES, lambda t, _o: Extreme(t[0], "value", greatest=False)),
    "bool_and": (_BOOLEANS, lambda t, _o: Extreme(t[0], "and", greatest=False)),
    "bool_or": (_BOOLEANS, lambda t, _o: Extreme(t[0], "or", greatest=True)),
    "first": (_PRIMITIVES, lambda t, _o: ExtremeBy(t[0], t[1], last=False)),
    "last": (_PRIMITIVES, lambda t, _o: ExtremeBy(t[0], t[1], last=True)),
    "approx_count_distinct": (_PRIMITIVES, lambda _t, o: DistinctSketch(o["lg_k"])),
    "collect_set": (_PRIMITIVES, lambda t, o: CollectSet(t[0], o["limit"])),
    "collect_list": (_PRIMITIVES, lambda t, o: CollectList(t[0], t[1], o["limit"])),
}
"""For each kind the types it takes (in words; none means any) and how to make its merger."""


def make_merger(spec: AggregateSpec) -> Merger:
    """Who merges the buffers of this aggregate; ``InputError`` if it can't take its columns."""
    takes, make = KINDS[spec.kind]
    for column in spec.inputs:
        if takes and not _TESTS[takes](column.type):
            raise InputError(
                f"aggregate {spec.name!r}: {spec.kind} can't take column {column.name!r} "
                f"of type {column.type}",
                hint=f"{spec.kind} takes {takes}; cast the column or leave it out",
            )
    return make(tuple(i.type for i in spec.inputs), dict(spec.options))
