"""What state an old query has, in words: for ``holdfast adopt --show``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql import types as T  # noqa: N812

from holdfast.spark.adopt.kinds import KINDS
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator, told
from holdfast.spark.adopt.variables import timers_of, variables_of

__all__ = ["Contents", "contents"]


@dataclass(frozen=True, slots=True)
class Contents:
    """Some state of one operator."""

    what: str
    """What it is called in a program."""
    columns: tuple[str, ...]
    """The types of the key and of what is kept for it."""
    rows: int
    first: tuple[tuple[str, ...], ...]
    """The same columns of a few rows."""


def contents(old: OldQuery, operator: StatefulOperator, limit: int = 5) -> Iterator[Contents]:
    """Look at the state of one operator; a state of several stores (a join) has no rows to show."""
    what = KINDS.get(operator.name, operator.name)
    variables = variables_of(operator)
    if not variables:
        readable = operator.stores == ("default",)
        yield _read(old, operator, what, limit) if readable else Contents(what, (), 0, ())
        return
    for variable in variables:
        ttl = ", with a ttl" if variable.has_ttl else ""
        named = f"{what}, {variable.kind} {variable.name}{ttl}"
        yield _read(old, operator, named, limit, stateVarName=variable.name)
    kind = timers_of(operator)
    if kind is not None:
        timers = f"{what}, timers of {kind} time"
        yield _read(old, operator, timers, limit, readRegisteredTimers="true")


def _read(
    old: OldQuery, operator: StatefulOperator, what: str, limit: int, **options: Any
) -> Contents:
    state = old.state(operator, **options).drop("partition_id")
    shown = state.select(*(F.col(name).cast("string") for name in state.columns)).limit(limit)
    where = f"{what} of operator {operator} at {old.location}"
    count, rows = told(where, lambda: (state.count(), shown.collect()))
    first = tuple(tuple(str(value) for value in row) for row in rows)
    columns = tuple(f"{f.name}: {_fields(f.dataType)}" for f in state.schema)
    return Contents(what, columns, count, first)


def _fields(kind: T.DataType) -> str:
    if not isinstance(kind, T.StructType):
        return kind.simpleString()
    return ", ".join(f"{field.name}: {field.dataType.simpleString()}" for field in kind)
