"""The end of a stream that no operator writes out itself: rows go through a task to their sinks."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.driver.pacing import StageShape
from holdfast.operators.emit import EmitOperator
from holdfast.spark.plans.base import OperatorPlan
from holdfast.spark.plans.rows import columns_of

__all__ = ["EmitPlan"]


class EmitPlan(OperatorPlan):
    """Rows stay where they are."""

    def __init__(self, id: str, df: DataFrame) -> None:  # noqa: A002
        self.operator = EmitOperator(id, pa.schema(columns_of(df)))

    def lift(self, frame: DataFrame, *, first: bool, port: int = 0) -> DataFrame:
        """The rows as they are."""
        del first, port
        return frame

    def partitioned(
        self, frame: DataFrame, shape: StageShape, wanted: frozenset[int] | None = None
    ) -> DataFrame:
        """The rows where they are."""
        del shape, wanted
        return frame
