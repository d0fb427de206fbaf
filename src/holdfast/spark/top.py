"""Plan the first rows of each key: resolve keys and columns, and make the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.operators.top import TopOperator
from holdfast.spark.process import event_times
from holdfast.spark.rows import RowPlan, columns_of, resolve_keys

if TYPE_CHECKING:
    from holdfast.tops import TopStream

__all__ = ["plan_top"]


def plan_top(id: str, stream: TopStream) -> RowPlan:  # noqa: A002 - the operator's word for it
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
        output=stream.output,
        expires=stream.until,
        rank=stream.rank,
    )
    return RowPlan(operator, tuple(keys), tuple(name for name, _ in columns))
