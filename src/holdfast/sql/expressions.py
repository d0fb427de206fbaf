"""Expressions over one row: their columns found, their text for Spark, times read off them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.sql.dialect import name_of, text_of
from holdfast.sql.refuse import check_scalar, refuse
from holdfast.sql.relation import Relation

__all__ = [
    "columns_in",
    "conjuncts",
    "interval_ms",
    "output_name",
    "resolved",
    "scalar",
    "whole_number",
]

_UNITS_MS = {
    "MICROSECOND": Fraction(1, 1000),
    "MILLISECOND": Fraction(1),
    "SECOND": Fraction(1000),
    "MINUTE": Fraction(60_000),
    "HOUR": Fraction(3_600_000),
    "DAY": Fraction(86_400_000),
    "WEEK": Fraction(7 * 86_400_000),
}
_PARTS = re.compile(r"\s*([+-]?[0-9.]+\s+[A-Za-z]+\s*)+", re.ASCII)
# Functions whose first argument of three is a unit of time, which looks like a column.
_TAKE_UNITS = {"TIMESTAMPDIFF", "TIMESTAMPADD", "DATEDIFF", "DATE_DIFF", "DATEADD", "DATE_ADD"}


def columns_in(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression names; units of time aren't."""
    for column in node.find_all(exp.Column):
        if not _is_unit(column):
            yield column


def _is_unit(column: exp.Column) -> bool:
    call = column.parent
    return (
        isinstance(call, exp.Anonymous)
        and name_of(call) in _TAKE_UNITS
        and len(call.expressions) == 3
        and call.expressions[0] is column
    )


def resolved(node: exp.Expr, relation: Relation) -> exp.Expr:
    """The same expression over the columns of the stream."""
    copy: exp.Expr = exp.Paren(this=node.copy())
    for column in list(columns_in(copy)):
        if isinstance(column.this, exp.Star):
            refuse(f"{text_of(column)} in an expression", "name the columns")
        known, fields = relation.find([part.name for part in column.parts])
        _check_hidden(column, known.column)
        found: exp.Expr = exp.column(exp.to_identifier(known.column, quoted=True))
        for field in fields:
            found = exp.Dot(this=found, expression=exp.to_identifier(field, quoted=True))
        column.replace(found)
    inner: exp.Expr = copy.this
    return inner.pop()


def _check_hidden(column: exp.Column, name: str) -> None:
    """Raise if a variable of a function around it has the name that the column goes by."""
    around = column.find_ancestor(exp.Lambda)
    while around is not None:
        if any(each.name.lower() == name.lower() for each in around.expressions):
            raise InputError(
                f"SQL: {text_of(column)} is hidden by a variable in {text_of(around)}",
                hint="give the variable another name",
            )
        around = around.find_ancestor(exp.Lambda)


def scalar(node: exp.Expr, relation: Relation, where: str) -> str:
    """An expression over one row, as text for Spark."""
    check_scalar(node, where)
    return text_of(resolved(node, relation))


def output_name(node: exp.Expr) -> str | None:
    """The name of a column in the result; None if it has none."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    return str(node.name) if isinstance(node, exp.Column | exp.Dot) else None


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that a condition is made of by AND."""
    if node is None:
        return []
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Between | exp.Paren):
        return conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low, high = node.args["low"], node.args["high"]
        return [
            exp.GTE(this=node.this.copy(), expression=low.copy()),
            exp.LTE(this=node.this.copy(), expression=high.copy()),
        ]
    return [node]


def interval_ms(node: exp.Expr) -> Fraction:
    """The length of an INTERVAL in milliseconds."""
    if isinstance(node, exp.Paren):
        return interval_ms(node.this)
    if isinstance(node, exp.Neg):
        return -interval_ms(node.this)
    if isinstance(node, exp.Add | exp.Sub):
        right = interval_ms(node.expression)
        return interval_ms(node.this) + (right if isinstance(node, exp.Add) else -right)
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    name = "" if unit is None else str(unit.name).upper()
    scale = _UNITS_MS.get(name) or _UNITS_MS.get(name.removesuffix("S"))
    value = node.this
    if unit is None and isinstance(value, exp.Literal) and (parts := _PARTS.fullmatch(value.name)):
        return _sum_of_parts(parts.group())
    if isinstance(value, exp.Neg):
        return -interval_ms(exp.Interval(this=value.this, unit=unit))
    if scale is None or not isinstance(unit, exp.Var) or not isinstance(value, exp.Literal):
        raise InputError(
            f"SQL: {text_of(node)} is no length of time here",
            hint="write INTERVAL '10' SECOND, with WEEK, DAY, HOUR, MINUTE, SECOND or MILLISECOND",
        )
    try:
        return Fraction(value.name) * scale
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"SQL: {text_of(node)} is no length of time", hint="write INTERVAL '10' SECOND"
        ) from None


def _sum_of_parts(text: str) -> Fraction:
    """``1 hour 30 minutes``: each part has a sign of its own, as Spark has it."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return sum(
        (interval_ms(exp.Interval(this=exp.Literal.string(n), unit=exp.var(u))) for n, u in pairs),
        Fraction(0),
    )


def whole_number(node: exp.Expr) -> int | None:
    """The value of a whole number that is written out."""
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None
