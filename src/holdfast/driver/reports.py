"""What tasks report of an epoch: taken in, complete or not at all, and added up."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoint.entry import PlacedPartition
from holdfast.driver.engine import NodeJob
from holdfast.driver.site import Placement
from holdfast.errors import InputError, InternalError
from holdfast.operators.loop import LoopOperator
from holdfast.state.hashing import partition_range
from holdfast.tasks.task import TaskReport

__all__ = [
    "ComputedTwiceError",
    "check_loops",
    "complete",
    "fetched",
    "places",
    "received",
    "rows_in",
]


class ComputedTwiceError(Exception):
    """Readers of a stage may have seen rows of two attempts at it."""


def received(part: NodeJob, reports: list[TaskReport]) -> int:
    """How many rows a node was sent, before they were grouped."""
    if part.source_rows:
        return sum(rows() for rows in part.source_rows)
    return sum(report.rows for report in reports)


def rows_in(parts: Iterable[tuple[NodeJob, list[TaskReport]]]) -> int:
    """Rows that came from sources, each source counted once, where most of it was read."""
    most: dict[frozenset[int], int] = {}
    for part, reports in parts:
        feeds = [feed for feeds in part.node.ports for feed in feeds]
        sources = frozenset(feed.source for feed in feeds if feed.source is not None)
        if sources:
            most[sources] = max(received(part, reports), most.get(sources, 0))
    counted: set[int] = set()
    rows = 0
    for sources in sorted(most, key=lambda each: (-len(each), sorted(each))):
        if not sources <= counted:
            rows += most[sources]
            counted |= sources
    return rows


def complete(
    reports: list[TaskReport], parts: Iterable[NodeJob], job: str, epoch: int
) -> dict[str, list[TaskReport]]:
    """Per node one report of each partition that was to be computed, or an error.

    Of a node that nobody reads the first report of a partition counts. A second one of a node that
    feeds others means that it was computed twice, and nobody knows which rows they have read.
    """
    found = {}
    for part in parts:
        first: dict[int, TaskReport] = {}
        for report in reports:
            if report.job != job or report.operator != part.node.operator.id:
                continue
            if report.partition in first and part.node.feeds:
                raise ComputedTwiceError(
                    f"partition {report.partition} of {part.node.id!r} was computed twice"
                )
            first.setdefault(report.partition, report)
        missing = part.computed - set(first)
        if missing:
            raise InternalError(
                f"epoch {epoch}: partitions {sorted(missing)} of {part.node.id!r} did not report"
            )
        found[part.node.id] = [first[partition] for partition in sorted(first)]
    return found


def check_loops(parts: Iterable[NodeJob], reports: list[TaskReport]) -> None:
    """Raise if more rows go round than a loop may hold: nothing of the epoch is recorded then."""
    for part in parts:
        operator = part.node.operator
        if not isinstance(operator, LoopOperator):
            continue
        records = sum(report.metrics.get(operator.records, 0) for report in reports)
        if records > operator.most:
            raise InputError(
                f"{records:.0f} records are in the loop {operator.id!r}, which may hold "
                f"{operator.most}: the body feeds back more than it lets out",
                hint="let rows leave the loop, or raise max_records=; the checkpoint before is as it was",
            )


def fetched(reports: list[TaskReport]) -> dict[str, list[str]]:
    """Per host the runs that its tasks brought to its disk."""
    by_host: dict[str, list[str]] = {}
    for report in reports:
        by_host.setdefault(report.host, []).extend(report.fetched)
    return by_host


def places(placement: Placement, reports: list[list[TaskReport]]) -> tuple[PlacedPartition, ...]:
    """Where the partitions ran; nothing if there was no choice."""
    placed = []
    # On a cluster all operators have as many partitions, each on the host of its number.
    by_number: dict[int, list[TaskReport]] = {}
    for report in (report for of_node in reports for report in of_node):
        by_number.setdefault(report.partition, []).append(report)
    for number, assignment in enumerate(placement.assignments):
        mine = by_number.get(number)
        if mine is None:
            continue
        local, over_wire = sum(r.local_bytes for r in mine), sum(r.fetched_bytes for r in mine)
        host = next((r.host for r in mine if r.host != assignment.host), assignment.host or "")
        # What storage gave counts as near if the planner knew of a replica on that host.
        near = assignment.host == host and not assignment.remote_bytes
        why = assignment.why
        if assignment.host != host:
            why = f"Spark ran it here instead of on {assignment.host}"
        placed.append(
            PlacedPartition(
                number,
                partition_range(number, len(placement.assignments)),
                host,
                why,
                local + (over_wire if near else 0),
                0 if near else over_wire,
            )
        )
    return tuple(placed)
