"""The buffers of several aggregates side by side, as an operator merges and finishes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.groups import GroupOverflow, Groups
from holdfast.operators.kinds import AggregateSpec, make_merger
from holdfast.operators.merger import Merger

__all__ = ["BufferOverflow", "Buffers"]

Arrays = Sequence[pa.Array]


class BufferOverflow(InputError):  # noqa: N818 - what happened
    """A result doesn't fit its type."""


class Buffers:
    """The buffer columns of some aggregates. Small and picklable.

    >>> from holdfast.operators.kinds import Input
    >>> buffers = Buffers([AggregateSpec("n", "count"),
    ...                    AggregateSpec("mean", "avg", (Input("x", pa.int32()),))])
    >>> [name for name, _ in buffers.fields]
    ['n.count', 'mean.sum', 'mean.count']
    >>> n, mean = buffers.finish([pa.array([2]), pa.array([6.0]), pa.array([2])], pa.table({}))
    >>> mean.to_pylist()
    [3.0]
    """

    def __init__(self, aggregates: Sequence[AggregateSpec]) -> None:
        self.aggregates = tuple(aggregates)
        self._mergers: tuple[Merger, ...] = tuple(make_merger(a) for a in aggregates)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of every buffer column."""
        both = zip(self.aggregates, self._mergers, strict=True)
        return tuple((f"{a.name}.{part}", kind) for a, m in both for part, kind in m.parts)

    @property
    def results(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of every result."""
        both = zip(self.aggregates, self._mergers, strict=True)
        return tuple((a.name, m.result) for a, m in both)

    def merge(self, columns: Arrays, groups: Groups, keys: pa.Table) -> list[pa.Array]:
        """One buffer row per group; ``keys`` are the groups' keys, for messages."""
        return self._each(columns, keys, lambda merger, parts: merger.merge(parts, groups))

    def finish(self, columns: Arrays, keys: pa.Table) -> list[pa.Array]:
        """The results of buffer rows; ``keys`` are their keys, for messages."""
        return self._each(columns, keys, lambda merger, parts: [merger.finish(parts)])

    def _each(
        self, columns: Arrays, keys: pa.Table, act: Callable[[Merger, Arrays], list[pa.Array]]
    ) -> list[pa.Array]:
        """What ``act`` makes of the columns of each aggregate."""
        results: list[pa.Array] = []
        at = 0
        for spec, merger in zip(self.aggregates, self._mergers, strict=True):
            parts = columns[at : at + len(merger.parts)]
            at += len(merger.parts)
            try:
                results += act(merger, parts)
            except GroupOverflow as overflow:
                raise _overflow(spec, overflow, keys) from None
        return results


def _overflow(spec: AggregateSpec, overflow: GroupOverflow, keys: pa.Table) -> BufferOverflow:
    key = keys.slice(overflow.group, 1).to_pylist()[0] if keys.num_columns else {}
    words = ", ".join(f"{name}={value!r}" for name, value in key.items())
    return BufferOverflow(
        f"[ARITHMETIC_OVERFLOW] aggregate {spec.name!r}: {spec.kind} of key ({words}) "
        f"exceeds {overflow.kind}",
        hint="cast the column to a wider type, such as decimal(38, s) or double",
    )
