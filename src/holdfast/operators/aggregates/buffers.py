"""The buffers of several aggregates: merged and finished together, with errors that name the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.aggregates.kinds import AggregateSpec, make_merger
from holdfast.operators.aggregates.merger import Merger
from holdfast.operators.columns import column
from holdfast.operators.groups import GroupOverflow, RowGroups
from holdfast.state.text import python_rows

__all__ = ["Buffers", "Overflow", "Whose", "rows_of"]

Whose = Callable[[int], Mapping[str, object]]
"""The key that a group is of, by the group's number; asked only for a message."""


def rows_of(keys: pa.Table) -> Whose:
    """Keys that stand in a table, a row per group.

    >>> rows_of(pa.table({"user": ["ann", "bob"]}))(1)
    {'user': 'bob'}
    """

    def whose(group: int) -> Mapping[str, object]:
        (key,) = python_rows(keys.slice(group, 1)) if keys.num_columns else ({},)
        return key

    return whose


class Overflow(InputError):  # noqa: N818 - what happened
    """A result doesn't fit its type."""


class Buffers:
    """The buffer columns of some aggregates. Small and picklable.

    >>> from holdfast.operators.aggregates.kinds import Input
    >>> buffers = Buffers([AggregateSpec("n", "count"),
    ...                    AggregateSpec("mean", "avg", (Input("x", pa.int32()),))])
    >>> [name for name, _ in buffers.fields]
    ['n.count', 'mean.sum', 'mean.count']
    >>> n, mean = buffers.finish([pa.array([2]), pa.array([6.0]), pa.array([2])], lambda group: {})
    >>> mean.to_pylist()
    [3.0]
    """

    def __init__(self, aggregates: Sequence[AggregateSpec]) -> None:
        self._aggregates = tuple(aggregates)
        self._mergers: tuple[Merger, ...] = tuple(make_merger(a) for a in aggregates)
        self.fields: list[tuple[str, pa.DataType]] = [
            (f"{spec.name}.{part}", kind)
            for spec, merger in zip(self._aggregates, self._mergers, strict=True)
            for part, kind in merger.parts
        ]

    @property
    def results(self) -> list[tuple[str, pa.DataType]]:
        """Name and type of each aggregate's result."""
        pairs = zip(self._aggregates, self._mergers, strict=True)
        return [(spec.name, merger.result) for spec, merger in pairs]

    def of(self, table: pa.Table) -> list[pa.Array]:
        """The buffer columns of a table that has them."""
        return [column(table, name, kind) for name, kind in self.fields]

    def merge(self, columns: Sequence[pa.Array], groups: RowGroups, whose: Whose) -> list[pa.Array]:
        """One buffer of each aggregate per group."""
        return self._each(columns, whose, lambda merger, parts: merger.merge(parts, groups))

    def finish(self, columns: Sequence[pa.Array], whose: Whose) -> list[pa.Array]:
        """The results of buffers."""
        return self._each(columns, whose, lambda merger, parts: [merger.finish(parts)])

    def _each(
        self,
        columns: Sequence[pa.Array],
        whose: Whose,
        act: Callable[[Merger, Sequence[pa.Array]], list[pa.Array]],
    ) -> list[pa.Array]:
        results: list[pa.Array] = []
        at = 0
        for spec, merger in zip(self._aggregates, self._mergers, strict=True):
            parts = columns[at : at + len(merger.parts)]
            at += len(merger.parts)
            try:
                results += act(merger, parts)
            except GroupOverflow as overflow:
                raise _overflow(spec, overflow, whose(overflow.group)) from None
        return results


def _overflow(spec: AggregateSpec, overflow: GroupOverflow, key: Mapping[str, object]) -> Overflow:
    words = ", ".join(f"{name}={value!r}" for name, value in key.items())
    return Overflow(
        f"[ARITHMETIC_OVERFLOW] aggregate {spec.name!r}: {spec.kind} of key ({words}) "
        f"exceeds {overflow.kind}",
        hint="cast the column to a wider type, such as decimal(38, s) or double",
    )
