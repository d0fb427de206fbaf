"""The first rows of each key in some order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from holdfast.changes import Changes
from holdfast.choices import SortOrder, TopOutputMode, check_choice
from holdfast.errors import InputError
from holdfast.stream import ResultStream, Stream

if TYPE_CHECKING:
    from holdfast.keyed import KeyedStream
    from holdfast.spark.plans.base import OperatorPlan

__all__ = ["TopStream", "parse_order"]


def parse_order(
    by: str | tuple[str, SortOrder] | Sequence[str | tuple[str, SortOrder]],
) -> tuple[tuple[str, bool], ...]:
    """Columns, each with whether it is descending.

    >>> parse_order([("price", "desc"), "ts"])
    (('price', True), ('ts', False))
    """
    if isinstance(by, str):
        return ((by, False),)
    if isinstance(by, tuple) and len(by) == 2 and by[1] in get_args(SortOrder):
        return ((str(by[0]), by[1] == "desc"),)
    order: list[tuple[str, bool]] = []
    given: Sequence[Any] = by if isinstance(by, list | tuple) else [by]
    for each in given:
        if not isinstance(each, str) and not (isinstance(each, list | tuple) and len(each) == 2):
            raise InputError(
                f"top can't order rows by {each!r}",
                hint='name columns, as in by=[("price", "desc"), "ts"]; compute others in a step before',
            )
        name, direction = (each, "asc") if isinstance(each, str) else each
        check_choice(f"the order of {name!r}", direction, SortOrder)
        order.append((name, direction == "desc"))
    return tuple(order)


@dataclass(frozen=True, eq=False)
class TopStream(ResultStream):
    """Changes of the first rows of each key: what ``KeyedStream.top`` returns.

    >>> import holdfast as hf
    >>> def best(bids: hf.Stream) -> hf.TopStream:
    ...     return bids.key_by("auction").top(3, by=[("price", "desc"), "ts"], rank="place")
    """

    kind: ClassVar[str] = "top"
    keyed: KeyedStream
    n: int
    order: tuple[tuple[str, bool], ...]
    rank: str | None = None
    output_mode: TopOutputMode = "retract"
    until: str | None = None
    name: str | None = None
    priority: int = 0

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        return (self.keyed.source,)

    @property
    def puts_out(self) -> Changes:
        """Rows come and go, unless they go out once."""
        return Changes(self.output_mode)

    @property
    def result_time(self) -> str | None:
        """When the rows happened; where they go out once, the time of that."""
        mark = self.keyed.source.watermark
        if self.output_mode == "append":
            return self.until
        return mark.column if mark else None

    @property
    def result_time_is_end(self) -> bool:
        """As in the input."""
        mark = self.keyed.source.watermark
        return mark is not None and mark.is_end and mark.column == self.result_time

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.plans.top import plan_top

        return plan_top(id or self.label, self)
