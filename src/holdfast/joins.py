"""Joins of two streams: by key and time, and with a table that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.changes import Changes, passed_on
from holdfast.durations import Duration, parse_ms
from holdfast.errors import InputError
from holdfast.stream import ResultStream, Stream

if TYPE_CHECKING:
    from holdfast.choices import JoinKind, VersionedKind
    from holdfast.spark.plans.base import OperatorPlan

__all__ = ["JoinedStream", "VersionedStream", "interval_join", "versioned_join"]


def interval_join(
    left: Stream,
    right: Stream,
    on: str | Sequence[str],
    between: tuple[Duration, Duration] | None,
    how: JoinKind,
) -> JoinedStream:
    """Check what was said of a join."""
    _check(left, right)
    if between is None:
        raise InputError(
            "a join of two streams without a time bound would keep every row for ever",
            hint='say how far apart matching rows may be: between=("-10 minutes", "0 s") is a right '
            "row up to ten minutes older than the left one",
        )
    if not isinstance(between, list | tuple) or len(between) != 2:
        raise InputError(
            f"between can't be {between!r}",
            hint='give a lower and an upper bound: between=("-10 minutes", "0 s")',
        )
    lower, upper = (parse_ms(bound, "between", negative=True) for bound in between)
    stream = JoinedStream(left, right, _names(on), (lower, upper), how)
    stream.plan()
    return stream


def versioned_join(
    left: Stream,
    table: Stream,
    on: str | Sequence[str],
    how: VersionedKind,
    deleted: str | None,
) -> VersionedStream:
    """Check what was said of a join with a table."""
    _check(left, table)
    stream = VersionedStream(left, table, _names(on), how, deleted)
    stream.plan()
    return stream


def _check(left: Stream, right: Stream) -> None:
    for side, stream in (("left", left), ("right", right)):
        stream.must_stream()
        if stream.watermark is None:
            raise InputError(
                f"the {side} side of the join has no watermark",
                hint='say with_watermark("ts", "10 seconds") on both sides, so that rows that can '
                "match no more are let go",
            )


def _names(on: str | Sequence[str]) -> tuple[str, ...]:
    return (on,) if isinstance(on, str) else tuple(on)


class _TwoInputs(ResultStream):
    left: Stream
    right: Stream

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.left, self.right)

    @property
    def puts_out(self) -> Changes:
        """A pair stays."""
        return passed_on(self.inputs, "a join")


@dataclass(frozen=True, eq=False)
class JoinedStream(_TwoInputs):
    """Pairs of rows of two streams: what ``Rows.join`` returns.

    >>> import holdfast as hf
    >>> def answered(asked: hf.Stream, answers: hf.Stream) -> hf.JoinedStream:
    ...     return asked.join(answers, on="id", between=("0 s", "1 minute"))
    """

    kind: ClassVar[str] = "join"
    left: Stream
    right: Stream
    on: tuple[str, ...]
    bounds_ms: tuple[int, int]
    how: JoinKind
    name: str | None = None
    priority: int = 0

    @property
    def behind_ms(self) -> int:
        """A row may wait for its match: so much older can it be when it comes out."""
        lower, upper = self.bounds_ms
        wait = -lower if self.how == "right" else upper
        return max(stream.behind_ms for stream in self.inputs) + max(0, wait)

    @property
    def result_time(self) -> str | None:
        """The time of the left row; in a right join, of the right one."""
        if self.how == "full":
            return None
        mark = (self.right if self.how == "right" else self.left).watermark
        return mark.column if mark else None

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.join import plan_interval_join

        return plan_interval_join(id or self.label, self)


@dataclass(frozen=True, eq=False)
class VersionedStream(_TwoInputs):
    """Rows, each with the version of a table that was valid at its time: what ``join_as_of`` returns.

    >>> import holdfast as hf
    >>> def priced(orders: hf.Stream, prices: hf.Stream) -> hf.VersionedStream:
    ...     return orders.join_as_of(prices, on="sku", how="left")
    """

    kind: ClassVar[str] = "join"
    left: Stream
    right: Stream
    on: tuple[str, ...]
    how: VersionedKind
    deleted: str | None = None
    name: str | None = None
    priority: int = 0

    @property
    def result_time(self) -> str | None:
        """The time of the left row."""
        return self.left.watermark.column if self.left.watermark else None

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.join import plan_versioned_join

        return plan_versioned_join(id or self.label, self)
