"""Plan a deduplication: resolve keys and columns, and say how long keys are remembered."""

from __future__ import annotations

from holdfast.errors import InputError
from holdfast.operators.deduplicate import DeduplicateOperator
from holdfast.operators.event_time import EventTime
from holdfast.spark.plans.rows import RowPlan, columns_of, resolve_keys
from holdfast.spark.said import SaidKeyed

__all__ = ["plan_deduplicate"]


def plan_deduplicate(
    id: str,  # noqa: A002 - the operator's word for it
    keyed: SaidKeyed,
    *,
    within_watermark: bool = False,
) -> RowPlan:
    """How rows reach a deduplication, and its operator. Runs no Spark job.

    Keys are remembered for ever, unless the watermark's column is one of them, or
    ``within_watermark`` says that a key counts only as long as the watermark waits for rows.
    """
    df, watermark = keyed.source.df, keyed.source.watermark
    keys = resolve_keys(df, keyed.keys)
    columns = columns_of(df)
    if within_watermark and watermark is None:
        raise InputError(
            "within_watermark needs a watermark", hint="say with_watermark(column, delay) before"
        )
    expires_after_ms = None
    if watermark is not None and within_watermark:
        expires_after_ms = watermark.delay_ms + watermark.lateness_ms
    elif watermark is not None and watermark.column in [key.name for key in keys]:
        # A row of such a key that came later would be too late to count.
        expires_after_ms = watermark.lateness_ms
    operator = DeduplicateOperator(
        id,
        [(key.name, key.type) for key in keys],
        columns,
        event_time=EventTime(watermark.column, watermark.lateness_ms) if watermark else None,
        expires_after_ms=expires_after_ms,
    )
    return RowPlan(operator, tuple(keys), tuple(name for name, _ in columns))
