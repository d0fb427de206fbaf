"""Plan joins: rows of two streams travel as one, their columns packed into shared ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.operators.event_time import EventTime
from holdfast.operators.input_rows import SOURCE, TAG, Fields
from holdfast.operators.join.interval import IntervalJoinOperator
from holdfast.operators.join.operator import JoinOperator
from holdfast.operators.join.versioned import VersionedJoinOperator
from holdfast.spark.plans.base import OperatorPlan
from holdfast.spark.plans.buffers import clean
from holdfast.spark.plans.rows import columns_of
from holdfast.spark.said import SaidIntervalJoin, SaidStream, SaidVersionedJoin
from holdfast.spark.types import spark_type
from holdfast.state.schema import HASH
from holdfast.types import quoted

__all__ = ["JoinPlan", "plan_interval_join", "plan_versioned_join"]

_SIDES = ("left", "right")


@dataclass(frozen=True)
class JoinPlan(OperatorPlan):
    """Brings rows of both sides to the task of their key."""

    operator: JoinOperator
    _lifts: dict[int, list[Column]] = field(default_factory=dict)

    @property
    def ports(self) -> tuple[str, ...]:
        """Both sides."""
        return _SIDES

    def lift(self, frame: DataFrame, *, first: bool, port: int = 0) -> DataFrame:
        """Hash, keys, order and side, then the side's columns in their slots."""
        del first
        if port not in self._lifts:
            self._lifts[port] = self._lifted(port)
        return frame.select(*self._lifts[port])

    def _lifted(self, port: int) -> list[Column]:
        packing = self.operator.packing
        names = packing.left if _SIDES[port] == "left" else packing.right
        at = {slot: name for name, slot in names.items()}
        keys = [clean(F.col(quoted(n)), kind).alias(n) for n, kind in self.operator.on]
        slots: list[Column] = []
        for slot, kind in packing.slots:
            filled = F.col(quoted(at[slot])) if slot in at else F.lit(None)
            slots.append(filled.cast(spark_type(kind)).alias(slot))
        return [
            F.xxhash64(*keys).alias(HASH),
            *keys,
            F.monotonically_increasing_id().alias(TAG),
            F.lit(port).cast("byte").alias(SOURCE),
            *slots,
        ]


def plan_interval_join(id: str, joined: SaidIntervalJoin) -> JoinPlan:  # noqa: A002
    """How rows reach an interval join, and its operator. Runs no Spark job."""
    on, left, right = _columns(joined.left, joined.right, joined.on)
    lower, upper = joined.bounds_ms
    return JoinPlan(
        IntervalJoinOperator(
            id,
            on,
            left,
            right,
            how=joined.how,
            left_time=_time(joined.left),
            right_time=_time(joined.right),
            lower_ms=lower,
            upper_ms=upper,
        )
    )


def plan_versioned_join(id: str, joined: SaidVersionedJoin) -> JoinPlan:  # noqa: A002
    """How rows reach a join with a table, and its operator. Runs no Spark job."""
    on, left, right = _columns(joined.left, joined.right, joined.on)
    return JoinPlan(
        VersionedJoinOperator(
            id,
            on,
            left,
            right,
            how=joined.how,
            left_time=_time(joined.left),
            right_time=_time(joined.right),
            deleted=joined.deleted,
        )
    )


def _columns(
    left: SaidStream, right: SaidStream, on: tuple[str, ...]
) -> tuple[Fields, Fields, Fields]:
    ours, theirs = columns_of(left.df), columns_of(right.df)
    kinds = dict(ours)
    for name in on:
        if name not in kinds:
            raise InputError(
                f"the join is on {name!r}, which the left side doesn't have",
                hint=f"choose one of: {', '.join(kinds)}",
            )
    return [(name, kinds[name]) for name in on], ours, theirs


def _time(stream: SaidStream) -> EventTime:
    assert stream.watermark is not None
    return EventTime(stream.watermark.column, stream.watermark.lateness_ms)
