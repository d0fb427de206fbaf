"""Aggregates in SQL as those of Holdfast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from holdfast import aggregates as hf
from holdfast.errors import InputError
from holdfast.sql.dialect import name_of, text_of
from holdfast.sql.expressions import whole_number
from holdfast.sql.refuse import AGGREGATES, check_scalar, refuse
from holdfast.sql.relation import free_name

__all__ = ["ReadColumns", "aggregate_of", "is_aggregate"]

_OF_ONE: dict[str, Callable[[str], hf.Aggregate]] = {
    "COUNT": hf.count,
    "SUM": hf.sum,
    "AVG": hf.avg,
    "MEAN": hf.avg,
    "MIN": hf.min,
    "MAX": hf.max,
    "STDDEV": hf.stddev_samp,
    "STD": hf.stddev_samp,
    "STDDEV_SAMP": hf.stddev_samp,
    "STDDEV_POP": hf.stddev_pop,
    "VARIANCE": hf.var_samp,
    "VAR_SAMP": hf.var_samp,
    "VAR_POP": hf.var_pop,
    "BOOL_AND": hf.bool_and,
    "EVERY": hf.bool_and,
    "BOOL_OR": hf.bool_or,
    "SOME": hf.bool_or,
    "ANY_VALUE": hf.any_value,
    "APPROX_COUNT_DISTINCT": hf.approx_count_distinct,
}
# What takes a value by event time, and its name here.
_BY_TIME = {"FIRST": "first", "LAST": "last", "FIRST_VALUE": "first", "LAST_VALUE": "last"}
_BY_NAME = ("COUNT_IF", "MIN_BY", "MAX_BY", "FIRST", "LAST")
_ALL_ROWS = "write a hf.BatchProcess"
_SORTED = "write a hf.BatchProcess, or collect values with collect_list(x, limit)"
_INSTEAD = {
    **dict.fromkeys(("MEDIAN", "MODE", "LISTAGG", "STRING_AGG"), _SORTED),
    **dict.fromkeys(("PERCENTILE", "PERCENTILE_CONT", "PERCENTILE_DISC"), _SORTED),
    **dict.fromkeys(("PERCENTILE_APPROX", "APPROX_PERCENTILE"), _SORTED),
    "ARRAY_AGG": "say collect_list(x, 100): the first hundred values by event time",
    "FIRST_VALUE": "say first(x) or min_by(x, ts)",
    "LAST_VALUE": "say last(x) or max_by(x, ts)",
    "ANY": "say bool_or(x)",
    "GROUPING": "write a statement for each set of columns and UNION ALL",
}


@dataclass
class ReadColumns:
    """The columns that an operator reads: those of its input, and what is computed of them."""

    time: str | None
    """The column with the event time."""
    items: dict[str, str] = field(default_factory=dict)
    """What Spark computes, by the name it gets."""

    def add(self, node: exp.Expr, wanted: str) -> str:
        """The name of a column with this value."""
        text = text_of(node)
        if isinstance(node, exp.Column):
            wanted = node.name
        for name, known in self.items.items():
            if known == text:
                return name
        name = free_name(wanted, set(self.items))
        self.items[name] = text
        return name

    def add_time(self) -> None:
        """Keep the event time."""
        if self.time is not None:
            self.add(exp.column(exp.to_identifier(self.time, quoted=True)), self.time)

    @property
    def projection(self) -> list[tuple[str, str]]:
        """The columns, for Spark."""
        return [(text, name) for name, text in self.items.items()]


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it is a call of an aggregate, with what belongs to it."""
    if isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        return is_aggregate(node.this)
    return isinstance(node, exp.AggFunc) or name_of(node) in AGGREGATES


def aggregate_of(node: exp.Expr, inputs: ReadColumns) -> hf.Aggregate:
    """The aggregate of Holdfast that a call means; what it reads is added to the inputs."""
    condition = None
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        check_scalar(condition, "FILTER")
        node = node.this
    name = name_of(node)
    if not isinstance(node, exp.Anonymous) or name is None:
        _refuse_more(node, condition)
    for each in node.expressions:
        if isinstance(each, exp.Distinct):
            _refuse_distinct(name)
        if isinstance(each, exp.Order | exp.Limit | exp.IgnoreNulls | exp.RespectNulls):
            refuse(f"{text_of(node)}", f"say {name.lower()} of a column")
        if not isinstance(each, exp.Star):
            check_scalar(each, f"the aggregate {name.lower()}")
    return _Call(name, node, condition, inputs).made()


def _refuse_more(node: exp.Expr, condition: exp.Expr | None) -> NoReturn:
    """Raise for a call with something behind it."""
    bare = node.this
    name = (name_of(bare) or "").lower()
    if isinstance(node, exp.WithinGroup):
        refuse(f"the aggregate {text_of(node)}", _INSTEAD.get(name.upper()))
    if isinstance(node, exp.IgnoreNulls) and name.upper() in _BY_TIME and bare.expressions:
        refuse(f"{text_of(node)}", _without_nulls(name.upper(), bare.expressions[0], condition))
    hint = "leave out RESPECT NULLS: nulls count" if isinstance(node, exp.RespectNulls) else None
    refuse(f"{text_of(node)}", hint)


def _without_nulls(name: str, value: exp.Expr, condition: exp.Expr | None) -> str:
    x = text_of(value)
    more = "" if condition is None else f" AND ({text_of(condition)})"
    return f"say {_BY_TIME[name]}({x}) FILTER (WHERE {x} IS NOT NULL{more})"


def _with_nulls_said(name: str, arguments: list[exp.Expr], condition: exp.Expr | None) -> str:
    """What ``first(x, ignores_nulls)`` is here, where nulls count unless they are filtered out."""
    value, ignores = arguments
    without = _without_nulls(name, value, condition)
    if not isinstance(ignores, exp.Boolean):
        return f"{without} to ignore nulls, and leave out the second argument if they count"
    if ignores.this:
        return without
    return f"say {_BY_TIME[name]}({text_of(value)}): nulls count"


def _refuse_distinct(name: str) -> None:
    if name == "COUNT":
        refuse(
            "count(DISTINCT ...)",
            "say approx_count_distinct(x), or count(x) of the rows of SELECT DISTINCT in a subquery, "
            "where nulls don't count either",
        )
    refuse(f"{name.lower()}(DISTINCT ...)", "aggregate a SELECT DISTINCT in a subquery")


@dataclass
class _Call:
    name: str
    node: exp.Anonymous
    condition: exp.Expr | None
    inputs: ReadColumns

    def made(self) -> hf.Aggregate:
        arguments = self.node.expressions
        if self.name == "COUNT" and len(arguments) == 1 and self._counts_rows(arguments[0]):
            one = exp.Literal.number(1)
            return hf.count(None if self.condition is None else self.input(one))
        if self.name == "COUNT_IF" and len(arguments) == 1:
            counted = exp.Case(ifs=[exp.If(this=arguments[0], true=exp.Literal.number(1))])
            return hf.count(self.input(counted))
        if self.name in _OF_ONE and len(arguments) == 1 and not isinstance(arguments[0], exp.Star):
            return _OF_ONE[self.name](self.input(arguments[0]))
        if self.name in ("COLLECT_LIST", "COLLECT_SET"):
            return self.collected()
        return self.ordered()

    def ordered(self) -> hf.Aggregate:
        arguments = self.node.expressions
        if self.name in ("FIRST", "LAST") and len(arguments) == 1:
            make = hf.first if self.name == "FIRST" else hf.last
            return make(self.input(arguments[0]), by=self.input(self.time()))
        if self.name in ("MIN_BY", "MAX_BY") and len(arguments) == 2:
            make = hf.first if self.name == "MIN_BY" else hf.last
            return make(self.input(arguments[0]), by=self.input(arguments[1]))
        hint = _INSTEAD.get(self.name)
        if hint is None and self.name in AGGREGATES and self.name not in {*_OF_ONE, *_BY_NAME}:
            hint = _ALL_ROWS
        if self.name in _BY_TIME and len(arguments) == 2:
            hint = _with_nulls_said(self.name, arguments, self.condition)
        return refuse(f"the aggregate {text_of(self.node)}", hint)

    def collected(self) -> hf.Aggregate:
        arguments = self.node.expressions
        limit = whole_number(arguments[1]) if len(arguments) == 2 else None
        if limit is None:
            refuse(
                f"{self.name.lower()} without a limit",
                f"say how many at most: {self.name.lower()}(x, 100)",
            )
        value = self.input(arguments[0])
        if self.name == "COLLECT_SET":
            return hf.collect_set(value, limit)
        return hf.collect_list(value, by=self.input(self.time()), limit=limit)

    def time(self) -> exp.Expr:
        if self.inputs.time is None:
            raise InputError(
                f"SQL: {self.name.lower()} goes by event time, but the stream has no watermark",
                hint='say with_watermark("ts", "10 seconds"), or min_by(x, y) and max_by(x, y)',
            )
        return exp.column(exp.to_identifier(self.inputs.time, quoted=True))

    def input(self, node: exp.Expr) -> str:
        """The name of a column with the value; without one where the filter doesn't hold."""
        node = node.copy()
        if self.condition is not None:
            node = exp.Case(ifs=[exp.If(this=self.condition.copy(), true=node)])
        return self.inputs.add(node, "_in")

    @staticmethod
    def _counts_rows(node: exp.Expr) -> bool:
        return isinstance(node, exp.Star | exp.Literal)
