"""Loops: rows that an epoch feeds back come in again in the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.errors import InputError
from holdfast.spark.flow.branch import Branch, LoopStart, WatermarkSpec
from holdfast.stream import ResultStream, Rows, Stream
from holdfast.types import quoted

if TYPE_CHECKING:
    from holdfast.spark.plans.base import OperatorPlan

__all__ = ["LoopEnd", "iterate"]


@dataclass(eq=False)
class LoopEnd(ResultStream):
    """Where rows wait that are to go round once more."""

    kind: ClassVar[str] = "loop"
    source: Stream
    """What comes into the loop from outside."""
    max_records: int
    name: str | None = None
    priority: int = 0
    feedback: Stream | None = None
    """What the body feeds back; known when it has been written."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """See :attr:`ResultStream.inputs`."""
        assert self.feedback is not None
        return (self.feedback,)

    @property
    def timed(self) -> bool:
        """Rows that go round don't move the watermark."""
        return False

    @property
    def has_watermark(self) -> bool:
        """Whether the rows from outside have one."""
        return self.source.watermark is not None

    @property
    def behind_ms(self) -> int:
        """As far as the rows from outside are: those that go round hold nothing back."""
        return self.source.behind_ms

    def plan(self, id: str | None = None) -> OperatorPlan:  # noqa: A002
        """See :meth:`ResultStream.plan`."""
        from holdfast.spark.flow.loop import plan_loop

        return plan_loop(id or self.label, self.source, self.max_records)


def iterate(
    source: Stream, body: Callable[[Stream], Any], max_records: int, name: str | None
) -> Rows:
    """Write the body of a loop down once, on rows from outside and rows that went round."""
    import pyarrow as pa

    from holdfast.spark.flow.stand_in import stand_in
    from holdfast.spark.plans.rows import check_alike, columns_of

    if max_records < 1:
        raise InputError(f"a loop can't hold {max_records} records", hint="give at least 1")
    source.must_stream()
    end = LoopEnd(source, max_records)
    if name is not None:
        end = end.named(name)
    again = stand_in(source.df.sparkSession, pa.schema(columns_of(source.df)))
    mark = source.watermark
    round_ = None
    if mark is not None:
        round_ = WatermarkSpec(
            mark.column,
            0,
            mark.lateness_ms,
            derived=True,
            behind_ms=source.behind_ms,
            is_end=mark.is_end,
        )
    begin = Stream((*source.branches, Branch(LoopStart(end), again, (), round_)))
    made = body(begin)
    if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(m, Rows) for m in made)):
        raise InputError(
            f"the body of a loop returned {made!r}",
            hint="return two streams: the rows that go round again, and those that come out",
        )
    back, out = made
    check_alike(source.df, back.rows.df)
    names = [quoted(name) for name in source.df.columns]
    end.feedback = back.rows.then(lambda df: df.select(*names))
    result: Rows = out
    return result
