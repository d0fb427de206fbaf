"""The stateful operators of Spark, as its state metadata names them and as programs do."""

from __future__ import annotations

from holdfast.errors import InputError
from holdfast.spark.adopt.old_query import StatefulOperator

__all__ = ["KINDS", "check_kind"]

KINDS = {
    "stateStoreSave": "groupBy().agg()",
    "dedupe": "dropDuplicates()",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark()",
    "symmetricHashJoin": "a join of two streams",
    "sessionWindowStateStoreSaveExec": "groupBy(session_window())",
    "globalLimit": "limit()",
    "flatMapGroupsWithState": "flatMapGroupsWithState()",
    "applyInPandasWithState": "applyInPandasWithState()",
    "transformWithStateExec": "transformWithState()",
    "transformWithStateInPySparkExec": "transformWithState()",
}


def check_kind(chosen: StatefulOperator, wanted: tuple[str, ...], program: str) -> None:
    """Refuse the state of an operator of another kind than the program's."""
    if chosen.name not in wanted:
        raise InputError(
            f"operator {chosen} of the old query is {KINDS.get(chosen.name, 'unknown')}, "
            f"and the program is {program}",
            hint="write the program of the same kind; which can be adopted is in docs/adopt.md",
        )
