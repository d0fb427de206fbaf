"""Plan the first rows of each key: resolve keys and columns, and make the operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.window import WindowSpec

from holdfast.operators.base import Clock
from holdfast.operators.input_rows import TAG
from holdfast.operators.top import TopOperator
from holdfast.spark.jvm.grouping import FIRST_ROWS, Grouped, first_of_partitions
from holdfast.spark.plans.process import event_times
from holdfast.spark.plans.rows import RowPlan, columns_of, resolve_keys
from holdfast.spark.plans.times import TimeBound, event_micros
from holdfast.spark.said import SaidTop
from holdfast.state.schema import HASH
from holdfast.types import quoted

__all__ = ["TopPlan", "plan_top"]

_LATE = "_holdfast_late"
_AGE = "_holdfast_age"
_PLACE = "_holdfast_place"
_UNIT_BITS = 4
_OLDEST = (1 << 38) - 1
# With more rows per key there is little to leave out.
_MOST = 10
# Earlier than any time that Spark has, which are those of years 1 to 9999.
_NEVER = -(1 << 62)


@dataclass(frozen=True)
class TopPlan(RowPlan):
    """Brings rows to their keys' tasks; of those in one partition only the first, if that pays."""

    grouping = FIRST_ROWS
    time: Column | None = None
    """When a row happened, in µs."""

    @property
    def top(self) -> TopOperator:
        """The operator."""
        assert isinstance(self.operator, TopOperator)
        return self.operator

    @property
    def may_preaggregate(self) -> bool:
        """Whether rows that are left out would not be missed: by the watermark, as late, as over."""
        top = self.top
        latest = top.event_time is None or top.order[0] == (top.event_time.column, True)
        return top.n <= _MOST and top.expires is None and latest

    def at(self, clock: Clock) -> None:
        """See :meth:`OperatorPlan.at`."""
        self._bound.at(clock)

    def preaggregate(self, frame: DataFrame) -> Grouped:
        """Of each key the first rows of each partition, and all that may be late."""
        rows = self.lift(frame, first=False)
        if self.time is None:
            return first_of_partitions(rows, self._window, self.top.n)
        rows = rows.withColumn(_LATE, self._late(self.time)).withColumn(_AGE, self._age(self.time))
        rows = rows.withColumn(_PLACE, F.col(HASH).bitwiseAND(~_OLDEST).bitwiseOR(F.col(_AGE)))
        first = first_of_partitions(rows, self._latest, self.top.n, by=_PLACE)
        return first._replace(without=(_LATE, _AGE, _PLACE))

    @property
    def _window(self) -> WindowSpec:
        order = (
            F.col(quoted(name)).desc() if down else F.col(quoted(name)).asc()
            for name, down in (*self.top.sort_by, (TAG, False))
        )
        return Window.partitionBy(HASH, *self._keys).orderBy(*order)

    @property
    def _latest(self) -> WindowSpec:
        """The latest rows first, as far as their ages tell them apart: those that tie all stay."""
        return Window.partitionBy(HASH, *self._keys, _LATE).orderBy(_AGE)

    @property
    def _keys(self) -> list[str]:
        return [quoted(name) for name, _ in self.top.keys]

    def _late(self, time: Column) -> Column:
        """A number of its own for every row that may be late, so that each is the first of a group."""
        nothing = F.lit(None).cast("long")
        return F.when(time <= self._bound.column(time), F.col(TAG)).otherwise(nothing)

    def _age(self, time: Column) -> Column:
        """A number that is the lower, the later a row is: in units of 16 µs, which it tells apart for the
        50 days after the watermark.
        """
        after = F.shiftright(time - self._bound.column(time), _UNIT_BITS)
        age = F.lit(_OLDEST) - F.greatest(F.lit(0), F.least(F.lit(_OLDEST), after))
        return F.coalesce(age, F.lit(_OLDEST))

    @cached_property
    def _bound(self) -> TimeBound:
        """Up to when a row may be late, in µs."""

        def bound(clock: Clock) -> int:
            late = clock.late_ms
            return _NEVER if late is None else (late - self.top.lateness_ms + 1) * 1000

        return TimeBound(bound)


def plan_top(id: str, stream: SaidTop) -> TopPlan:  # noqa: A002 - the operator's word for it
    """How rows reach the operator, and the operator. Runs no Spark job."""
    source = stream.keyed.source
    keys = resolve_keys(source.df, stream.keyed.keys)
    columns = columns_of(source.df)
    operator = TopOperator(
        id,
        [(key.name, key.type) for key in keys],
        columns,
        stream.n,
        stream.order,
        event_time=event_times(source, None).get("main"),
        output_mode=stream.output_mode,
        expires=stream.until,
        rank=stream.rank,
    )
    names = tuple(name for name, _ in columns)
    return TopPlan(operator, tuple(keys), names, time=event_micros(source))
