"""The end of a stream that no operator writes out itself: rows go through a task to their sinks."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.driver.pacing import Shape
from holdfast.operators.base import Operator
from holdfast.spark.plans.base import Plan
from holdfast.spark.plans.rows import columns_of
from holdfast.state.schema import TableSchema

__all__ = ["EmitOperator", "EmitPlan"]


class EmitOperator(Operator):
    """Puts out what comes in."""

    def __init__(self, id: str, schema: pa.Schema) -> None:  # noqa: A002
        self.id = id
        self._schema = schema

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """None."""
        return ()

    @property
    def key_columns(self) -> int:
        """None."""
        return 0

    @property
    def key_names(self) -> list[str]:
        """None."""
        return []

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of the stream."""
        return self._schema

    @property
    def output_schema(self) -> pa.Schema:
        """The same."""
        return self._schema

    def describe(self) -> str:
        """Nothing that a restart could miss."""
        return "emit"


class EmitPlan(Plan):
    """Rows stay where they are."""

    def __init__(self, id: str, df: DataFrame) -> None:  # noqa: A002
        self.operator = EmitOperator(id, pa.schema(columns_of(df)))

    def lift(self, frame: DataFrame, *, first: bool, port: int = 0) -> DataFrame:
        """The rows as they are."""
        del first, port
        return frame

    def partitioned(self, frame: DataFrame, shape: Shape) -> DataFrame:
        """The rows where they are."""
        del shape
        return frame
