"""Aggregates as users ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Aggregate", "ColumnLike"]

ColumnLike = object
"""A column's name, or a ``pyspark.sql.Column`` (which this module doesn't import)."""


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """What to compute, not yet tied to an input. Made by :func:`count`, :func:`sum` and the like.

    >>> import holdfast as hf
    >>> spent: hf.Aggregate = hf.sum("amount")
    >>> spent.kind
    'sum'
    """

    kind: str
    columns: tuple[ColumnLike, ...] = ()
    options: Mapping[str, int] = field(default_factory=dict)
