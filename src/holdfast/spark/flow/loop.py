"""Plan the end of a loop."""

from __future__ import annotations

from holdfast.operators.loop import LoopOperator
from holdfast.spark.plans.rows import RowPlan, columns_of
from holdfast.spark.said import SaidStream

__all__ = ["plan_loop"]


def plan_loop(id: str, source: SaidStream, max_records: int) -> RowPlan:  # noqa: A002
    """How rows that go round reach the place where they wait. Runs no Spark job."""
    columns = columns_of(source.df)
    operator = LoopOperator(id, columns, most=max_records)
    return RowPlan(operator, (), tuple(name for name, _ in columns))
