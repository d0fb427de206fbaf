"""What is known of each epoch that has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.checkpoint.entry import EpochRecord, PlacedPartition
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.compute import Computed
from holdfast.tasks.task import TaskReport

__all__ = ["EpochProgress", "progress_of"]


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """What ``query.progress`` says of one epoch.

    >>> import holdfast as hf
    >>> def rows_per_second(query: hf.Query) -> float:
    ...     last: hf.EpochProgress = query.progress[-1]
    ...     return last.rows / last.seconds["total"]
    """

    epoch: int
    rows: int
    """Rows that came in."""
    keys: int
    """Keys whose state changed."""
    state_rows: int
    state_bytes: int
    partitions: int
    preaggregated: bool
    spilled_bytes: int
    fetched_bytes: int
    """State read from checkpoint storage because this host didn't have it."""
    seconds: Mapping[str, float]
    """Per phase: plan, job, and summed over tasks receive, state, stage, merge; and total."""
    watermark_ms: int | None = None
    late_rows: int = 0
    """Rows at or before the watermark, which went to the side output ``late``."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What user code counted with ``ctx.metrics``."""
    last_checkpoint: int | None = None
    """The newest epoch that a log entry holds."""
    placement: tuple[PlacedPartition, ...] = ()
    """On a cluster: per partition where it ran, why, and what it read from where."""
    operators: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Per operator: rows in, keys changed, rows that came into its state, seconds in its tasks."""


def progress_of(
    ledger: Ledger, record: EpochRecord, computed: Computed, total_s: float
) -> EpochProgress:
    """Add up what the tasks of an epoch reported."""
    reports, parts = computed.every, computed.parts.values()
    metrics: dict[str, float] = {}
    spent = {**computed.seconds, "total": total_s}
    for report in reports:
        for name, amount in report.metrics.items():
            metrics[name] = metrics.get(name, 0) + amount
        for phase, took in report.seconds.items():
            spent[phase] = spent.get(phase, 0.0) + took
    return EpochProgress(
        epoch=record.epoch,
        rows=computed.rows,
        keys=sum(r.keys for r in reports),
        state_rows=ledger.state_rows,
        state_bytes=sum(s.size_bytes for part in ledger.version.tables.values() for s in part),
        partitions=max((p.partitions for p in parts if p.node.stateful), default=1),
        preaggregated=any(part.shape.preaggregate for part in parts),
        spilled_bytes=sum(r.spilled_bytes for r in reports),
        fetched_bytes=sum(r.fetched_bytes for r in reports),
        seconds=spent,
        watermark_ms=record.watermark_ms,
        late_rows=sum(r.late_rows for r in reports),
        metrics=metrics,
        placement=ledger.placement,
        operators={id_: _summed(of_node) for id_, of_node in computed.reports.items()},
    )


def _summed(reports: list[TaskReport]) -> dict[str, float]:
    return {
        "rows": sum(r.rows for r in reports),
        "keys": sum(r.keys for r in reports),
        "new_state_rows": sum(r.new_keys for r in reports),
        "seconds": sum(s for r in reports for phase, s in r.seconds.items() if phase != "hand on"),
    }
