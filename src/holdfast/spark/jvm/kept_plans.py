"""Plans that are made once: an epoch puts its own scan in the place of the last one's.

Most of what Spark does for an epoch before its first task runs is to analyse, optimise and plan how rows
reach an operator, with the same result every time. So that result is kept, as a chain of physical steps
above the scan of a source, and set upon the scan of each epoch.

Not every plan is the same every time: one may hold the time of day, random seeds or the result of a
subquery, or have more leaves than the scan. Such plans are made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.jvm.columns import TIMES_IN_PLANS
from holdfast.spark.jvm.gateway import java_class, jvm_of
from holdfast.spark.jvm.grouping import Grouped
from holdfast.spark.jvm.prepared import frame_of_plan
from holdfast.spark.jvm.probing import Capability, has
from holdfast.spark.jvm.trees import execution_of

__all__ = ["KEPT_PLANS", "KeptPlans"]

_STEPS = {
    "FilterExec",
    "HashAggregateExec",
    "ObjectHashAggregateExec",
    "ProjectExec",
    "SortAggregateExec",
    "SortExec",
    "WindowGroupLimitExec",
}
_PASSING = ("CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED", "PLAN_EXPRESSION")
KEPT_PLANS = Capability(
    "plans that are made once",
    {
        "org.apache.spark.sql.catalyst.trees.TreePattern": [f"{name}/0" for name in _PASSING],
        "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan": ["containsPattern/1"],
        "org.apache.spark.sql.execution.adaptive.LogicalQueryStage": ["new/2"],
        "org.apache.spark.sql.execution.SparkPlan": ["id/0"],
        **{
            f"org.apache.spark.sql.execution.{step}": ["withNewChildInternal/1"]
            for step in ("FilterExec", "ProjectExec")
        },
    },
    slower="Spark plans every epoch anew",
)


class _KeptLift(NamedTuple):
    logical: Any
    chain: list[Any]
    """The steps above the scan, from the top."""


class _KeptGroups(NamedTuple):
    grouped: Grouped
    chain: list[Any]


class KeptPlans:
    """The plans of one query."""

    def __init__(self) -> None:
        self._lifted: dict[Hashable, _KeptLift] = {}
        self._groups: dict[Hashable, _KeptGroups] = {}

    def lifted(
        self, key: Hashable, session: SparkSession, scan: Any, make: Callable[[], DataFrame]
    ) -> DataFrame:
        """What ``make`` made of an earlier scan, made of this one."""
        if not _can_keep():
            return make()
        known = self._lifted.get(key)
        if known is not None:
            return frame_of_plan(session, known.logical, _on(known.chain, scan))
        frame = make()
        execution = execution_of(frame)
        chain = _chain(session, execution.sparkPlan(), scan, execution.analyzed())
        if chain is not None:
            # The optimised plan has the columns that the steps have: a renaming to the same name is gone.
            self._lifted[key] = _KeptLift(execution.optimizedPlan(), chain)
        return frame

    def grouped(
        self, key: Hashable, session: SparkSession, scan: Any, make: Callable[[], Grouped]
    ) -> Grouped:
        """The same for groups."""
        if not _can_keep():
            return make()
        known = self._groups.get(key)
        if known is not None:
            return known.grouped._replace(plan=_on(known.chain, scan))
        made = make()
        chain = _chain(session, made.plan, scan, made.analyzed)
        if chain is not None:
            self._groups[key] = _KeptGroups(made, chain)
        return made


def _can_keep() -> bool:
    # Where a time can't change in a plan, it stands in it as it was.
    return has(KEPT_PLANS) and has(TIMES_IN_PLANS)


def _on(chain: list[Any], scan: Any) -> Any:
    """The steps of a chain above another scan.

    Not with ``withNewChildren``: that gives the step as it is if the new child equals the old one, and
    scans of one stream are equal in Spark's eyes, whichever of its rows they read.
    """
    plan = scan
    for step in reversed(chain):
        plan = step.withNewChildInternal(plan)
    return plan


def _chain(session: SparkSession, plan: Any, scan: Any, analyzed: Any) -> list[Any] | None:
    """The steps of a plan above a scan; None if they may be others the next time."""
    patterns = java_class(jvm_of(session), "org.apache.spark.sql.catalyst.trees.TreePattern")
    if any(analyzed.containsPattern(getattr(patterns, name)()) for name in _PASSING):
        return None
    chain: list[Any] = []
    wanted = scan.id()
    while plan.id() != wanted:
        if plan.getClass().getSimpleName() not in _STEPS:
            return None
        chain.append(plan)
        plan = plan.children().head()
    return chain
