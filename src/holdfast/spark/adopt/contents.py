"""What state an old query has, in words: for ``holdfast adopt --show``."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql import types as T  # noqa: N812

from holdfast.spark.adopt.kinds import KINDS
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator

__all__ = ["Contents", "contents"]


@dataclass(frozen=True, slots=True)
class Contents:
    """The state of one operator."""

    operator: StatefulOperator
    what: str
    """What it is called in a program."""
    key: tuple[str, ...]
    """The key's columns with their types."""
    value: tuple[str, ...]
    rows: int
    first: tuple[tuple[str, str], ...]
    """Keys and values of a few rows."""


def contents(old: OldQuery, operator: StatefulOperator, limit: int = 5) -> Contents:
    """Look at the state of one operator."""
    what = KINDS.get(operator.name, operator.name)
    if operator.stores != ("default",):
        return Contents(operator, what, (), (), 0, ())
    state = old.state(operator)
    shown = state.select(*(F.col(c).cast("string") for c in ("key", "value"))).limit(limit)
    key, value = (_fields(state.schema[c].dataType) for c in ("key", "value"))
    first = tuple((row[0], row[1]) for row in shown.collect())
    return Contents(operator, what, key, value, state.count(), first)


def _fields(kind: T.DataType) -> tuple[str, ...]:
    assert isinstance(kind, T.StructType)
    return tuple(f"{field.name}: {field.dataType.simpleString()}" for field in kind)
