"""What is made of the reports of an epoch's tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from holdfast.driver.reports import places
from holdfast.driver.site import Placement
from holdfast.placement.planner import Assignment


def report(partition: int, host: str) -> Any:
    return cast(
        Any, SimpleNamespace(partition=partition, host=host, local_bytes=10, fetched_bytes=0)
    )


def test_partitions_that_were_computed_alone_ran_where_their_own_reports_say() -> None:
    assignments = tuple(Assignment(n, f"h{n}", 0, 0, 0, 0, "state") for n in range(3))
    reports = [[report(2, "h2")], [report(0, "h0"), report(2, "h2")]]
    placed = places(Placement(assignments), reports)
    assert [(each.partition, each.host, each.why) for each in placed] == [
        (0, "h0", "state"),
        (2, "h2", "state"),
    ]
    assert [each.local_bytes for each in placed] == [10, 20]
