"""What steps do to the columns of an operator's results, as Spark's own plan of them says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from holdfast.spark.jvm.probing import Capability
from holdfast.spark.jvm.trees import analyzed, each, kind, nodes

__all__ = ["LINEAGE", "Followed", "follow"]

LINEAGE = Capability(
    "what steps do to columns",
    {
        "org.apache.spark.sql.catalyst.plans.logical.Generate": [
            "generator/0",
            "generatorOutput/0",
        ],
        "org.apache.spark.sql.catalyst.expressions.Alias": ["child/0"],
        "org.apache.spark.sql.catalyst.expressions.AttributeSet": ["toSeq/0"],
    },
)

_ONE_TO_ONE = ("Project", "Filter", "SubqueryAlias")
_ROW_BY_ROW = ("Generate", "Join")
_CLOCKS = frozenset(
    [
        "CurrentBatchTimestamp",
        "CurrentDate",
        "CurrentTime",
        "CurrentTimestamp",
        "LocalTimestamp",
        "Now",
    ]
)
_ELSEWHERE = ""
"""Stands for what isn't a column of the results."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What becomes of columns."""

    names: dict[str, tuple[str, ...]]
    """What each is called behind the steps, if it is there and has the values it had."""
    tested: frozenset[str]
    """Those that conditions look at, "" for what comes from elsewhere."""
    repeats: tuple[str, ...]
    """Steps that may make none or several rows of one, but the same of equal ones."""
    others: tuple[str, ...]
    """Further steps that aren't projections or filters."""
    deterministic: bool
    """Whether equal rows always become equal ones: nothing is random or goes by the current time."""
    made_of: dict[str, frozenset[str]]
    """Of what each column behind the steps is made."""
    tests_alike: bool
    """Whether conditions are deterministic, with all that they look at."""


def follow(frame: DataFrame, steps: Sequence[Callable[[DataFrame], DataFrame]]) -> Followed:
    """Apply steps to a frame once more, and see what they have done."""
    after = frame
    for step in steps:
        after = step(after)
    began = {_id(column): column.name() for column in each(analyzed(frame).output())}
    plan = analyzed(after)
    above = _above(plan, set(began))
    aliases = {
        _id(column): column.child()
        for node in above
        if kind(node) == "Project"
        for column in each(node.projectList())
        if kind(column) == "Alias"
    }
    aliases |= {
        _id(column): node.generator()
        for node in above
        if kind(node) == "Generate"
        for column in each(node.generatorOutput())
    }

    def same(id: int) -> str | None:  # noqa: A002 - Spark's word for it
        while id in aliases and kind(aliases[id]) == "AttributeReference":
            id = _id(aliases[id])  # noqa: A001
        return began.get(id)

    def behind(id: int) -> set[str]:  # noqa: A002
        """The columns that a column is made of."""
        if id in began:
            return {began[id]}
        if id not in aliases:
            return {_ELSEWHERE}
        return {name for part in _references(aliases[id]) for name in behind(part)}

    def alike(expression: Any) -> bool:
        """Whether it always has the same value for the same columns of the results."""
        parts = [aliases[part] for part in _references(expression) if part in aliases]
        return _is_alike(expression) and all(map(alike, parts))

    names: dict[str, tuple[str, ...]] = {}
    for column in each(plan.output()):
        if (first := same(_id(column))) is not None:
            names[first] = (*names.get(first, ()), column.name())
    conditions = [
        condition
        for node in above
        if kind(node) in ("Filter", "Join")
        for condition in each(node.expressions())
    ]
    tested = {name for each_ in conditions for part in _references(each_) for name in behind(part)}
    kinds = [name for node in above if (name := kind(node)) not in _ONE_TO_ONE]
    return Followed(
        names,
        frozenset(tested),
        tuple(name for name in kinds if name in _ROW_BY_ROW),
        tuple(name for name in kinds if name not in _ROW_BY_ROW),
        all(
            node.deterministic() and all(map(_is_alike, each(node.expressions()))) for node in above
        ),
        {column.name(): frozenset(behind(_id(column))) for column in each(plan.output())},
        all(map(alike, conditions)),
    )


def _above(plan: Any, began: set[int]) -> list[Any]:
    """The nodes of the steps: those that have the results' columns from below."""
    makes_them = kind(plan) == "Project" and any(
        kind(column) == "Alias" and _id(column) in began for column in each(plan.projectList())
    )
    if makes_them:
        return []
    below = [child for child in each(plan.children()) if _has(child, began)]
    return [plan, *(node for child in below for node in _above(child, began))]


def _has(plan: Any, began: set[int]) -> bool:
    """Whether the results' columns come from there: a step may join them with a table."""
    return any(_id(column) in began for node in nodes(plan) for column in each(node.output()))


def _id(column: Any) -> int:
    number: int = column.exprId().id()
    return number


def _is_alike(expression: Any) -> bool:
    # To Spark the current time is deterministic: it is the same all through an epoch.
    return bool(expression.deterministic()) and not any(
        kind(part) in _CLOCKS for part in nodes(expression)
    )


def _references(expression: Any) -> list[int]:
    return [_id(column) for column in each(expression.references().toSeq())]
