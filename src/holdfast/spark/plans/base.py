"""What the epoch loop asks of a plan: how the rows of its inputs reach the tasks of an operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.driver.pacing import StageShape
from holdfast.errors import InternalError
from holdfast.operators.base import Clock, Operator
from holdfast.spark.jvm.grouping import GROUPING, Grouped
from holdfast.spark.jvm.probing import Capability
from holdfast.state.hashing import partition_sql
from holdfast.state.schema import HASH

__all__ = ["OperatorPlan"]


class OperatorPlan(ABC):
    """How an operator gets its rows; unless a plan says otherwise, one by one and by their hash."""

    operator: Operator
    grouping: ClassVar[Capability] = GROUPING
    """What it takes to group rows before they are sent."""

    @property
    def ports(self) -> tuple[str, ...]:
        """What its inputs are called: the operator reports event times under these names."""
        return ("main",)

    @property
    def may_preaggregate(self) -> bool:
        """Whether rows can be grouped before they are sent."""
        return False

    @property
    def must_preaggregate(self) -> bool:
        """Whether they have to be."""
        return False

    @property
    def expressions(self) -> tuple[str, ...]:
        """What it makes of its input's columns, in Spark's words, besides what the operator describes."""
        return ()

    @abstractmethod
    def lift(self, frame: DataFrame, *, first: bool, port: int = 0) -> DataFrame:
        """The columns of the operator's input, for rows of a port; ``first``: no epoch was before."""

    def needed_columns(self, frame: DataFrame, port: int) -> DataFrame:
        """A frame that needs all columns that the operator does, for rows of a port."""
        return self.lift(frame, first=False, port=port)

    def at(self, clock: Clock) -> None:
        """Have frames that depend on the time go by that of an epoch, those made before as well."""
        del clock

    def preaggregate(self, frame: DataFrame) -> Grouped:
        """The same, grouped."""
        del frame
        raise InternalError(f"rows for {self.operator.id!r} can't be grouped")

    def partitioned(
        self, frame: DataFrame, shape: StageShape, wanted: frozenset[int] | None = None
    ) -> DataFrame:
        """Every row where its key's partition is; only those of ``wanted`` partitions, if given."""
        if not shape.shuffle:
            return frame.coalesce(1)
        where = F.expr(partition_sql(HASH, shape.partitions))
        if wanted is not None:
            frame = frame.filter(where.isin(*sorted(wanted)))
        return frame.repartitionById(shape.partitions, where)
